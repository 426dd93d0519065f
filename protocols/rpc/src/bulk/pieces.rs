//! Memory in pieces, as one argument.

use petasos_fabric::{Region, Slice};

/// Pieces of memory, wherever they lie, that are lent as one: to the target of the call they are
/// contiguous, with one length and one space of offsets. It reaches all of them by one key, and one
/// transfer may begin and end anywhere in them.
///
/// They are lent by value for the target to read, and by reference for it to write, as a `#[bulk]`
/// parameter, in [`Lent`](crate::Lent) and in [`Engine::bulk`](crate::Engine::bulk). At most
/// [`EngineConfig::bulk_pieces`](crate::EngineConfig::bulk_pieces) are lent at a time. Empty pieces
/// are left out. The owner's engine serves transfers of several pieces: it has to run meanwhile,
/// over shared memory too.
///
/// ```
/// use petasos_rpc::{Engine, EngineConfig, Pieces, Region, service};
///
/// #[service]
/// trait Store {
///     async fn write(&self, #[bulk(pull)] data: Region) -> u64;
///     async fn read(&self, #[bulk(push)] into: Region);
/// }
///
/// struct Ones;
///
/// impl Store for Ones {
///     async fn write(&self, data: Region) -> u64 {
///         data.to_vec().iter().map(|byte| u64::from(*byte)).sum()
///     }
///     async fn read(&self, into: Region) {
///         into.write(0, &vec![1; into.len()]);
///     }
/// }
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// let engine = Engine::new(endpoint, EngineConfig::default());
/// Ones.serve(&engine, 0)?;
/// let store = StoreClient::new(&engine, engine.address());
///
/// // One column of a matrix of 1,000 rows: a piece of each row.
/// let matrix = Region::zeroed(1000 * 80);
/// let piece = |row: usize| matrix.slice(row * 80 + 4 * 8, 8).expect("within the matrix");
/// let fourth: Pieces = (0..1000).map(piece).collect();
/// engine.block_on(store.read(&fourth))?;
/// assert_eq!(engine.block_on(store.write(fourth))?, 8000);
/// assert_eq!(matrix.slice(4 * 8, 8).unwrap().to_vec(), [1; 8]);
/// assert_eq!(matrix.slice(5 * 8, 8).unwrap().to_vec(), [0; 8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Pieces(Slice);

impl Pieces {
    /// These pieces, in this order.
    ///
    /// # Panics
    /// If they are longer than `isize::MAX` bytes together.
    #[must_use]
    pub fn of(pieces: impl IntoIterator<Item: Into<Slice>>) -> Pieces {
        let mut pieces = pieces.into_iter().map(Into::into).filter(|piece| !piece.is_empty());
        let (first, second) = (pieces.next(), pieces.next());
        match (first, second) {
            (None, _) => Pieces(Region::zeroed(0).whole()),
            // One alone is reached as the memory that it is.
            (Some(only), None) => Pieces(only),
            (first, second) => {
                let all = first.into_iter().chain(second).chain(pieces);
                Pieces(Region::of_pieces(all).whole())
            }
        }
    }

    /// Their length together, in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether they have no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many they are, without those that are empty.
    #[must_use]
    pub fn count(&self) -> usize {
        count(&self.0)
    }

    /// All of them as one.
    #[must_use]
    pub fn as_slice(&self) -> &Slice {
        &self.0
    }
}

impl<S: Into<Slice>> FromIterator<S> for Pieces {
    fn from_iter<I: IntoIterator<Item = S>>(pieces: I) -> Pieces {
        Pieces::of(pieces)
    }
}

impl From<Pieces> for Slice {
    fn from(pieces: Pieces) -> Slice {
        pieces.0
    }
}

/// Of how many pieces this is.
pub(super) fn count(memory: &Slice) -> usize {
    match memory.pieces() {
        Some(pieces) => pieces.count(),
        None => usize::from(!memory.is_empty()),
    }
}

/// The memory, piece by piece.
pub(super) fn each(memory: &Slice) -> Vec<Slice> {
    memory.pieces().map_or_else(|| vec![memory.clone()], Iterator::collect)
}
