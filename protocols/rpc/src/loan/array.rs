//! The owner's side.

use super::given;
use super::number::{self, Number};
use crate::{BulkError, BulkHandle, Context, inner::Inner, memory::Exported};
use petasos_fabric::{Access, Region};
use petasos_wire::{DecodeError, Decoder, Encoder, Format, Wire, hash_name, shape_join};
use std::{fmt, marker::PhantomData, rc::Rc, time::Duration};

/// An array of plain numbers in memory of the transport, which peers read in place:
/// [`Engine::array`](crate::Engine::array) makes it.
///
/// Every process that has its [`Loan`] may read it, for as long as it lives; none may write it. So
/// keep it until the calls that have the loan are answered. When it is dropped or closed the memory
/// is closed: no process can begin to borrow it any more. One that has borrowed it in place can
/// still read it. The memory itself is freed when the last of them has ended.
///
/// ```
/// use petasos_rpc::{Context, Engine, EngineConfig, Loan, service};
///
/// #[service]
/// trait Statistics {
///     /// The loan takes the place of the numbers.
///     async fn mean(&self, context: Context, of: Loan<f64>) -> Result<f64, String>;
/// }
///
/// struct Reader;
///
/// impl Statistics for Reader {
///     async fn mean(&self, context: Context, of: Loan<f64>) -> Result<f64, String> {
///         let numbers = context.engine().borrow(&of).await.map_err(|e| e.to_string())?;
///         let mut sum = 0.0;
///         numbers.each_part(|_, part| sum += part.iter().sum::<f64>());
///         Ok(sum / numbers.len() as f64)
///     }
/// }
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// let engine = Engine::new(endpoint, EngineConfig::default());
/// Reader.serve(&engine, 0)?;
/// let client = StatisticsClient::new(&engine, engine.address());
///
/// let mut array = engine.array::<f64>(100_000)?;
/// array.fill(|at| at as f64);
/// let mean = engine.block_on(client.mean(array.loan()))?;
/// assert_eq!(mean, Ok(49_999.5));
/// // It may be changed and lent again.
/// array.write(0, &[100_000.0]);
/// # assert_eq!(engine.block_on(client.mean(array.loan()))?, Ok(50_000.5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Array<T> {
    memory: Region,
    exported: Option<Exported>,
    loan: Loan<T>,
    len: usize,
}

impl<T: Number> Array<T> {
    pub(crate) fn new(inner: &Rc<Inner>, len: usize) -> Result<Array<T>, BulkError> {
        let Some(bytes) = len.checked_mul(size_of::<T>()).filter(|&n| n <= isize::MAX as usize)
        else {
            let (len, limit) = (len as u64, (isize::MAX as usize / size_of::<T>()) as u64);
            return Err(BulkError::TooLarge { len, limit });
        };
        if bytes == 0 {
            // No transport has such memory, and no peer need reach it.
            let loan = Loan { handle: BulkHandle::nothing(), numbers: PhantomData };
            return Ok(Array { memory: Region::from_vec(Vec::new()), exported: None, loan, len });
        }
        let memory = inner.transport.alloc(bytes);
        let memory = memory.map_err(|error| BulkError::Register(error.to_string()))?;
        let exported = crate::memory::export(inner, &memory.whole(), Access::READ)?;
        let handle = BulkHandle::of(&exported);
        let loan = Loan { handle, numbers: PhantomData };
        Ok(Array { memory, exported: Some(exported), loan, len })
    }

    /// How many numbers it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies numbers in, from the place `at` on. Peers that read meanwhile may see some of them.
    ///
    /// # Panics
    /// If that is beyond its end.
    pub fn write(&mut self, at: usize, from: &[T]) {
        number::write(&self.memory, at, from);
    }

    /// Copies numbers out, from the place `at` on.
    ///
    /// # Panics
    /// If that is beyond its end.
    pub fn read(&self, at: usize, into: &mut [T]) {
        number::read(&self.memory, at, into);
    }

    /// Sets each number to what `make` gives for its place.
    pub fn fill(&mut self, mut make: impl FnMut(usize) -> T) {
        self.fill_parts(|at, part| {
            part.iter_mut().zip(at..).for_each(|(number, at)| *number = make(at));
        });
    }

    /// Has `make` fill the array part by part, from the first to the last: it gets where a part
    /// begins, and the part, of 8 KiB or less, in which there are any numbers, and which is in the
    /// nearest cache. So an array is built with each line of it written once.
    pub fn fill_parts(&mut self, make: impl FnMut(usize, &mut [T])) {
        number::fill_parts(&self.memory, self.len, make);
    }

    /// The argument, or result, by which peers borrow it.
    #[must_use]
    pub fn loan(&self) -> Loan<T> {
        self.loan.clone()
    }

    /// Gives it to the caller of a call, as its result or a part of that: the engine keeps the
    /// array until the caller says that it is done with it ([`Engine::give_back`]), or is lost, but
    /// for no longer than `longest`. Then it is closed, as if it were dropped.
    ///
    /// A reader that has the loan says so for all that have it: it is for one reader.
    ///
    /// ```
    /// use petasos_rpc::{Context, Engine, EngineConfig, Loan, service};
    /// use std::time::Duration;
    ///
    /// #[service]
    /// trait Simulation {
    ///     async fn field(&self, context: Context, step: u32) -> Result<Loan<f64>, String>;
    /// }
    ///
    /// struct Model;
    ///
    /// impl Simulation for Model {
    ///     async fn field(&self, context: Context, step: u32) -> Result<Loan<f64>, String> {
    ///         let array = context.engine().array::<f64>(1000);
    ///         let mut array = array.map_err(|error| error.to_string())?;
    ///         array.fill(|at| f64::from(step) + at as f64);
    ///         Ok(array.give(&context, Duration::from_secs(60)))
    ///     }
    /// }
    ///
    /// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
    /// let engine = Engine::new(endpoint, EngineConfig::default());
    /// Model.serve(&engine, 0)?;
    /// let client = SimulationClient::new(&engine, engine.address());
    /// let loan = engine.block_on(client.field(7))??;
    /// let field = engine.block_on(engine.borrow(&loan))?;
    /// assert_eq!((field.get(0), engine.usage().given), (Some(7.0), 1));
    /// engine.give_back(&loan)?;
    /// engine.block_on(engine.sleep(Duration::from_millis(5)));
    /// assert_eq!(engine.usage().given, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`Engine::give_back`]: crate::Engine::give_back
    #[must_use = "the loan is what the caller gets"]
    pub fn give(self, context: &Context, longest: Duration) -> Loan<T> {
        let Array { exported, loan, .. } = self;
        if let Some(exported) = exported {
            given::keep(context.engine().inner(), exported, context.caller(), longest);
        }
        loan
    }

    /// Closes it. When the future is ready no peer can begin to borrow it, and no pull of it is
    /// under way any more. If the future is dropped, it is closed nevertheless.
    ///
    /// # Errors
    /// As [`Exported::close`].
    pub fn close(self) -> impl Future<Output = Result<(), BulkError>> + use<T> {
        let closing = self.exported.map(Exported::start_closing);
        async {
            if let Some(closing) = closing {
                closing.await?;
            }
            Ok(())
        }
    }
}

impl<T> fmt::Debug for Array<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Array({} numbers)", self.len)
    }
}

/// An array of another process, as an argument or a result: to be borrowed with
/// [`Engine::borrow`](crate::Engine::borrow) while its owner keeps the [`Array`].
///
/// It may be passed on to other processes, which borrow it as well. Its length is what its sender
/// says; whether there is such memory shows when it is borrowed.
#[derive(PartialEq, Eq)]
pub struct Loan<T> {
    handle: BulkHandle,
    numbers: PhantomData<fn() -> T>,
}

impl<T: Number> Loan<T> {
    /// How many numbers it has, as its sender says.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.handle.len() / size_of::<T>() as u64
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The descriptor of its bytes: for readers that pull parts of it, or blocks
    /// ([`RemoteBulk::blocks`](crate::RemoteBulk::blocks)), rather than borrow all of it.
    #[must_use]
    pub fn handle(&self) -> &BulkHandle {
        &self.handle
    }
}

impl<T> Clone for Loan<T> {
    fn clone(&self) -> Loan<T> {
        Loan { handle: self.handle.clone(), numbers: PhantomData }
    }
}

impl<T> fmt::Debug for Loan<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Loan({} bytes)", self.handle.len())
    }
}

impl<T: Number> Wire for Loan<T> {
    const SHAPE: u64 = shape_join(hash_name("loan"), T::SHAPE);

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        self.handle.encode(out);
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Loan<T>, DecodeError> {
        let handle = BulkHandle::decode(from)?;
        let len = handle.len();
        if !len.is_multiple_of(size_of::<T>() as u64) {
            return Err(DecodeError::BadValue { what: "length of whole numbers", value: len });
        }
        Ok(Loan { handle, numbers: PhantomData })
    }

    fn encoded_len_hint(&self) -> usize {
        self.handle.encoded_len_hint()
    }
}
