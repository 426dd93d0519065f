//! Arrays that are built in memory of the transport, and read where they lie.

use crate::common::{engine_over, run, settle};
use petasos_rpc::{
    Array, BulkError, CallOptions, Context, Engine, EngineConfig, Loan, Method, serve, service,
    wire::{Encoding, Wire, from_bytes, to_vec},
};
use std::{
    cell::RefCell,
    sync::atomic::{AtomicBool, Ordering},
};

/// Where endpoints open, and whether arrays are read there in place.
const TRANSPORTS: [(&str, bool); 3] =
    [("self://*", true), ("shm://*", true), ("tcp://127.0.0.1:0", false)];

/// More than a part, and no whole number of parts.
const LEN: usize = 10_007;

const SUM: Method = Method::typed("Loans::sum", <Loan<u64>>::SHAPE, <(u64, bool)>::SHAPE);

/// Sums up an array, and says whether it was read in place.
async fn sum_of(context: Context, loan: Loan<u64>) -> (u64, bool) {
    let borrowed = context.engine().borrow(&loan).await.unwrap();
    assert_eq!(borrowed.len() as u64, loan.len());
    let (mut sum, mut next) = (0, 0);
    borrowed.each_part(|at, part| {
        assert_eq!(at, next);
        next += part.len();
        sum += part.iter().sum::<u64>();
    });
    assert_eq!(next, borrowed.len());
    (sum, borrowed.is_in_place())
}

fn pair(address: &str) -> (Engine, Engine) {
    let open = || engine_over(address, EngineConfig::default());
    (open(), open())
}

#[test]
fn an_argument_is_read_where_it_lies_or_pulled() {
    for (address, in_place) in TRANSPORTS {
        let (client, server) = pair(address);
        server.register(SUM, 0, serve(sum_of));
        let target = client.target(server.address());
        let mut array = client.array::<u64>(LEN).unwrap();
        array.fill(|at| at as u64);
        // Lent again and again, changed in between.
        for first in 0..3 {
            array.write(0, &[first]);
            let call = target.call(SUM, &CallOptions::default(), &array.loan());
            let found: (u64, bool) = run(&[&client, &server], call).unwrap();
            assert_eq!(found, (first + (LEN * (LEN - 1) / 2) as u64, in_place), "{address}");
        }
        run(&[&client, &server], array.close()).unwrap();
        settle(&[&client, &server]);
    }
}

#[service]
trait Results {
    /// An array that the service keeps until it is told to let it go.
    async fn squares(&self, count: u64) -> Loan<f64>;
    async fn done(&self);
}

struct Squares {
    engine: Engine,
    kept: RefCell<Option<Array<f64>>>,
}

impl Results for Squares {
    async fn squares(&self, count: u64) -> Loan<f64> {
        let mut array = self.engine.array(count as usize).unwrap();
        array.fill(|at| (at * at) as f64);
        let loan = array.loan();
        *self.kept.borrow_mut() = Some(array);
        loan
    }

    async fn done(&self) {
        self.kept.take();
    }
}

#[test]
fn a_result_is_borrowed_until_its_owner_lets_it_go() {
    for (address, in_place) in TRANSPORTS {
        let (client, server) = pair(address);
        let squares = Squares { engine: server.clone(), kept: RefCell::default() };
        squares.serve(&server, 0).unwrap();
        let engines = [&client, &server];
        let results = ResultsClient::new(&client, server.address());
        for len in [0, 1, LEN] {
            let loan = run(&engines, results.squares(len as u64)).unwrap();
            let borrowed = run(&engines, client.borrow(&loan)).unwrap();
            assert_eq!((borrowed.len(), borrowed.is_in_place()), (len, in_place && len > 0));
            run(&engines, results.done()).unwrap();
            // It is held by the process that borrowed it, and lent to no other any more.
            let expected: Vec<_> = (0..len).map(|at| (at * at) as f64).collect();
            assert_eq!(borrowed.to_vec(), expected, "{address}");
            assert_eq!(borrowed.get(len.wrapping_sub(1)), expected.last().copied());
            assert_eq!(borrowed.get(len), None);
            let again = run(&engines, client.borrow(&loan));
            assert_eq!(again.is_err(), len > 0, "{address}: {again:?}");
        }
        server.shut_down();
    }
}

#[test]
fn an_owner_that_scribbles_harms_nobody() {
    let (client, server) = pair("shm://*");
    let mut array = client.array::<u32>(1 << 16).unwrap();
    let borrowed = run(&[&client, &server], server.borrow(&array.loan())).unwrap();
    assert!(borrowed.is_in_place());
    array.fill(|_| 1);
    assert_eq!(borrowed.get(77), Some(1), "it is the same memory");
    // While one thread writes, another reads: one value or the other, number by number.
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..200 {
                borrowed.each_part(|_, part| {
                    assert!(part.iter().all(|number| [1, 2].contains(number)));
                });
            }
            end.store(true, Ordering::Relaxed);
        });
        for value in (1..=2).cycle().take_while(|_| !end.load(Ordering::Relaxed)) {
            array.fill_parts(|_, part| part.fill(value));
        }
    });
}

#[test]
fn what_a_loan_says_is_checked() {
    let (client, server) = pair("tcp://127.0.0.1:0");
    let array = client.array::<u8>(10).unwrap();
    let encoded = to_vec(Encoding::Native, &array.loan());
    // Ten bytes are no whole number of numbers of four.
    let wrong = from_bytes::<Loan<u32>>(Encoding::Native, &encoded);
    assert!(wrong.unwrap_err().to_string().contains("whole numbers"));
    assert_ne!(<Loan<u32>>::SHAPE, <Loan<f32>>::SHAPE);
    // It says more than its key does, as any process can.
    let longer = |len: u64| {
        let mut bytes = to_vec(Encoding::Native, &array.loan());
        let at = bytes.windows(8).position(|window| window == 10u64.to_le_bytes()).unwrap();
        bytes[at..at + 8].copy_from_slice(&len.to_le_bytes());
        from_bytes::<Loan<u8>>(Encoding::Native, &bytes).unwrap()
    };
    for len in [11, u64::MAX] {
        let borrowed = run(&[&client, &server], server.borrow(&longer(len)));
        assert!(matches!(borrowed, Err(BulkError::OutOfBounds { .. })), "{borrowed:?}");
    }
    // Or less.
    let part = run(&[&client, &server], server.borrow(&longer(9))).unwrap();
    assert_eq!(part.to_vec(), [0; 9]);
}

#[test]
fn a_copy_is_bounded() {
    let mut config = EngineConfig::default();
    config.max_body = 1000;
    let (client, server) = (
        engine_over("tcp://127.0.0.1:0", EngineConfig::default()),
        engine_over("tcp://127.0.0.1:0", config),
    );
    let array = client.array::<u64>(126).unwrap();
    let borrowed = run(&[&client, &server], server.borrow(&array.loan()));
    assert!(
        matches!(borrowed, Err(BulkError::TooLarge { len: 1008, limit: 1000 })),
        "{borrowed:?}"
    );
    let beyond = client.array::<u64>(usize::MAX / 8);
    assert!(matches!(beyond, Err(BulkError::TooLarge { .. })), "{beyond:?}");
}

#[test]
#[should_panic = "beyond the 3 numbers"]
fn reading_beyond_the_end_is_a_fault_of_the_program() {
    let (client, server) = pair("self://*");
    let array = client.array::<u16>(3).unwrap();
    let borrowed = run(&[&client, &server], server.borrow(&array.loan())).unwrap();
    borrowed.read(2, &mut [0; 2]);
}
