//! Results that did not fit a message and that the caller does not fetch: they count as calls in
//! progress, so that no caller can make a target keep more of them than it said.

use crate::common::{engine, engine_with, run, settle};
use petasos_fabric::{Clock, Endpoint, Event, Peer};
use petasos_rpc::{CallOptions, Context, Engine, EngineConfig, Method, serve};
use petasos_self::Local;
use petasos_wire::{
    Encoding, Wire,
    rpc::{self, CallId, Frame, Request, Response, Status},
};
use std::time::{Duration, Instant};

const LARGE: Method = Method::typed("Large::large", u8::SHAPE, <Vec<u8>>::SHAPE);
const CALLS: u16 = 8;

fn server() -> Engine {
    let mut config = EngineConfig::default();
    config.calls_per_peer = CALLS;
    let server = engine_with(config);
    let large = |_: Context, byte: u8| async move { vec![byte; 1 << 20] };
    server.register(LARGE, 0, serve(large));
    server
}

/// A caller that writes its frames itself.
struct Caller {
    endpoint: Local,
    server: Peer,
    clock: Clock,
}

impl Caller {
    fn new(server: &Engine) -> Caller {
        let mut endpoint = Local::open(&"self://*".parse().unwrap()).unwrap();
        let server = endpoint.resolve(server.address(), Duration::from_secs(5)).unwrap();
        Caller { endpoint, server, clock: Clock::start() }
    }

    fn call(&mut self, slot: u32) {
        let mut frame = Vec::new();
        let request = Request {
            one_way: false,
            encoding: Encoding::Native,
            checked: false,
            overflow: false,
            trace: None,
            provider: 0,
            call: CallId { slot, generation: 1 },
            method: LARGE.id,
            signature: LARGE.signature,
            left_us: 0,
        };
        request.encode(&mut frame);
        frame.push(7);
        self.say(&frame);
    }

    fn say(&mut self, frame: &[u8]) {
        self.endpoint.inject(self.server, &[frame]).unwrap();
    }

    /// So many answers.
    fn answers(&mut self, server: &Engine, count: usize) -> Vec<Response> {
        let (mut answers, end) = (Vec::new(), Instant::now() + Duration::from_secs(5));
        while answers.len() < count {
            assert!(Instant::now() < end, "{answers:?}");
            server.progress();
            let mut events = Vec::new();
            self.endpoint.progress(self.clock.now(), 64, &mut events);
            answers.extend(events.iter().filter_map(|event| match event {
                Event::Message { message, .. } => match rpc::decode(message) {
                    Ok(Frame::Response(response, _)) => Some(response),
                    frame => panic!("{frame:?}"),
                },
                _ => None,
            }));
        }
        answers
    }
}

#[test]
fn what_is_not_fetched_counts() {
    let server = server();
    let mut caller = Caller::new(&server);
    (0..20).for_each(|slot| caller.call(slot));
    let answers = caller.answers(&server, 20);
    let lent = usize::from(CALLS);
    assert!(answers[..lent].iter().all(|answer| answer.overflow), "{answers:?}");
    assert!(answers[lent..].iter().all(|answer| answer.status == Status::Busy), "{answers:?}");
    assert_eq!(server.usage().lent_results, lent);
    // Room for one more, and for no second.
    caller.say(&rpc::release(answers[3].call));
    (30..32).for_each(|slot| caller.call(slot));
    let answers = caller.answers(&server, 2);
    assert!(answers[0].overflow && answers[1].status == Status::Busy, "{answers:?}");
    drop(caller);
    settle(&[&server]);
}

/// The same name for several calls: the last result is the one that is kept.
#[test]
fn one_name_for_many_calls() {
    let server = server();
    let mut caller = Caller::new(&server);
    for _ in 0..50 {
        caller.call(1);
    }
    let answers = caller.answers(&server, 50);
    assert!(answers.iter().all(|answer| answer.overflow), "{answers:?}");
    assert_eq!(server.usage().lent_results, 1);
    drop(caller);
    settle(&[&server]);
    assert_eq!(server.usage().lent_results, 0);
}

/// A caller that fetches its results can have all calls at a time under way, and never gets `Busy`.
#[test]
fn who_fetches_is_not_held_up() {
    let (client, server) = (engine(), server());
    let target = client.target(server.address());
    // From the first answer a caller learns how many calls it may have under way.
    let first = target.call::<u8, Vec<u8>>(LARGE, &CallOptions::default(), &1);
    run(&[&client, &server], first).unwrap();
    let calls: Vec<_> =
        (0..40u8).map(|n| target.call::<u8, Vec<u8>>(LARGE, &CallOptions::default(), &n)).collect();
    let results = run(&[&client, &server], futures_util::future::join_all(calls));
    for (n, result) in (0..40).zip(results) {
        assert_eq!(result.unwrap(), vec![n; 1 << 20]);
    }
    settle(&[&client, &server]);
}
