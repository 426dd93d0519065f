//! The result of the one call that a thread blocks on stays where it came in, until it is decoded:
//! whatever happens before that, it is there, and the next one as well.

use petasos::{
    CallError, Context, Engine, EngineConfig, Failure, Idle, Method, OpenOptions, Usage, service,
    typed,
    wire::{DecodeError, Decoder, Encoder, Format, Wire},
};
use std::{
    cell::RefCell,
    future::poll_fn,
    pin::Pin,
    rc::Rc,
    task::{self, Poll},
};

thread_local! {
    /// The engine that is driven while a result is decoded.
    static DRIVEN: RefCell<Option<Rc<Engine>>> = const { RefCell::new(None) };
}

/// A number whose decoding drives an engine.
#[derive(Debug, PartialEq)]
struct Driving(u64);

impl Wire for Driving {
    const SHAPE: u64 = u64::SHAPE;

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        self.0.encode(out);
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Driving, DecodeError> {
        let engine = DRIVEN.with_borrow(Option::clone);
        engine.inspect(|engine| assert!(!engine.progress(), "no message is taken meanwhile"));
        u64::decode(from).map(Driving)
    }
}

#[service]
trait Same {
    async fn number(&self, n: u64) -> u64;
    async fn line(&self, bytes: [u8; 64]) -> [u8; 64];
    async fn bytes(&self, bytes: Vec<u8>) -> Vec<u8>;
    async fn driving(&self, n: u64) -> Driving;
}

struct Here;

impl Same for Here {
    async fn number(&self, n: u64) -> u64 {
        n
    }

    async fn line(&self, bytes: [u8; 64]) -> [u8; 64] {
        bytes
    }

    async fn bytes(&self, bytes: Vec<u8>) -> Vec<u8> {
        bytes
    }

    async fn driving(&self, n: u64) -> Driving {
        Driving(n)
    }
}

/// A client and a server over shared memory, on this thread.
struct Pair {
    client: Rc<Engine>,
    server: Engine,
    same: SameClient,
}

impl Pair {
    fn new() -> Pair {
        let engine = || {
            let mut config = EngineConfig::default();
            config.idle = Idle::Spin;
            Engine::new(petasos::open("shm://*", &OpenOptions::default()).unwrap(), config)
        };
        let (client, server) = (Rc::new(engine()), engine());
        Here.serve(&server, 0).unwrap();
        let same = SameClient::new(&client, server.address());
        let pair = Pair { client, server, same };
        assert_eq!(pair.run(pair.same.number(7)).unwrap(), 7, "they are connected now");
        pair
    }

    /// Blocks on a future, and drives the server whenever it waits.
    fn run<F: Future>(&self, future: F) -> F::Output {
        let mut future = std::pin::pin!(future);
        self.client.block_on(poll_fn(|context| {
            let polled = future.as_mut().poll(context);
            if polled.is_pending() {
                self.server.progress();
                context.waker().wake_by_ref();
            }
            polled
        }))
    }

    /// Waits for a call until its result is there, and does not look at it.
    fn leave<F: Future + Unpin>(&self, call: &mut F) {
        let mut polled = false;
        self.client.block_on(poll_fn(|context: &mut task::Context<'_>| {
            if std::mem::replace(&mut polled, true) {
                return Poll::Ready(());
            }
            assert!(Pin::new(&mut *call).poll(context).is_pending());
            while !self.server.progress() {}
            Poll::Pending
        }));
    }
}

#[test]
fn it_is_kept_when_others_come() {
    let pair = Pair::new();
    let (line, long) = ([3; 64], vec![4; 5000]);
    for n in 0..100 {
        let mut number = pair.same.number(n);
        pair.leave(&mut number);
        assert_eq!(pair.run(pair.same.number(n + 1)).unwrap(), n + 1);
        assert_eq!(pair.run(number).unwrap(), n);
        let mut lines = pair.same.line(line);
        pair.leave(&mut lines);
        assert_eq!(pair.run(pair.same.bytes(long.clone())).unwrap(), long);
        assert_eq!(pair.run(lines).unwrap(), line);
        let mut bytes = pair.same.bytes(long.clone());
        pair.leave(&mut bytes);
        assert_eq!(pair.run(pair.same.line(line)).unwrap(), line);
        assert_eq!(pair.run(bytes).unwrap(), long);
    }
    assert_eq!(pair.client.usage(), Usage::default());
}

#[test]
fn nobody_may_want_it_any_more() {
    let pair = Pair::new();
    for n in 0..100 {
        let mut number = pair.same.number(n);
        pair.leave(&mut number);
        drop(number);
        assert_eq!(pair.client.usage(), Usage::default());
        // Without a pass in between, in the same slot.
        let mut next = pair.same.number(n + 1);
        pair.leave(&mut next);
        assert_eq!(pair.run(next).unwrap(), n + 1);
    }
    assert_eq!(pair.client.stats().calls_cancelled, 0);
}

#[test]
fn the_engine_ends_before_it_is_looked_at() {
    let pair = Pair::new();
    let mut number = pair.same.number(5);
    pair.leave(&mut number);
    pair.client.shut_down();
    let polled = number.poll_now();
    assert!(matches!(polled, Poll::Ready(Ok(5) | Err(CallError::EngineEnded))), "{polled:?}");
}

/// To look at a call outside of any engine.
trait PollNow: Future + Unpin {
    fn poll_now(&mut self) -> Poll<Self::Output> {
        Pin::new(self).poll(&mut task::Context::from_waker(task::Waker::noop()))
    }
}

impl<F: Future + Unpin> PollNow for F {}

#[test]
fn decoding_it_may_drive_the_engine() {
    let pair = Pair::new();
    DRIVEN.set(Some(Rc::clone(&pair.client)));
    for n in 0..100 {
        assert_eq!(pair.run(pair.same.driving(n)).unwrap(), Driving(n));
    }
    DRIVEN.set(None);
    assert_eq!(pair.run(pair.same.number(1)).unwrap(), 1);
}

/// Ready at once; panics when it is dropped.
struct Explosive(bool);

impl Future for Explosive {
    type Output = Result<u64, Failure>;
    fn poll(self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(Ok(9))
    }
}

impl Drop for Explosive {
    fn drop(&mut self) {
        assert!(!self.0, "after the answer");
    }
}

#[test]
fn a_handler_that_panics_after_its_answer_has_answered_once() {
    let pair = Pair::new();
    let method = Method::typed("explosive", <(u64,)>::SHAPE, u64::SHAPE);
    let handler = typed(|_: &mut petasos::Arrival<'_>, (n,): (u64,)| Explosive(n % 2 == 1));
    assert!(pair.server.register(method, 0, handler));
    let target = pair.client.target(pair.server.address());
    for n in 0..10u64 {
        let call = target.call::<_, u64>(method, &Default::default(), &(n,));
        assert_eq!(pair.run(call).unwrap(), 9);
    }
    assert_eq!(pair.server.stats().calls_served, 11);
    assert_eq!((pair.client.stats().garbage, pair.server.usage()), (0, Usage::default()));
}

#[test]
fn a_handler_may_ask_about_the_call() {
    let pair = Pair::new();
    let method = Method::typed("asks", <(u64,)>::SHAPE, u64::SHAPE);
    let handler = petasos::serve(|context: Context, (n,): (u64,)| async move {
        assert_eq!((context.provider(), context.method().name), (3, "asks"));
        assert!(context.time_limit().is_some() && context.trace().is_none());
        n
    });
    assert!(pair.server.register(method, 3, handler));
    let target = pair.client.target(pair.server.address());
    let mut options = petasos::CallOptions::default();
    options.provider = 3;
    assert_eq!(pair.run(target.call::<_, u64>(method, &options, &(8u64,))).unwrap(), 8);
}
