//! Where nothing listens, the system refuses a connection at once: a call to a server that has
//! ended fails then, and one to a server that has not started yet waits.

use petasos::{
    CallError, CallOptions, Engine, EngineConfig, EngineThread, Method, OpenOptions, Refused,
    fabric::LostReason, open, serve,
};
use std::{
    net::TcpListener,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

const DOUBLE: Method = Method::raw("Refused::double").of::<u64, u64>();
/// A call that waits for a server ends by this, and not by the peer's loss.
const LIMIT: Duration = Duration::from_secs(2);
/// Longer than any call: nothing ends because a patience is over.
const PATIENCE: Duration = Duration::from_secs(3600);
const SCHEMES: [&str; 4] = ["self", "shm", "tcp", "auto"];

/// An address of our own at which nothing listens, now and until it is opened.
fn free(scheme: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let port = || {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let name = || {
        let nth = NEXT.fetch_add(1, Ordering::Relaxed);
        format!("petasos-refused-{}-{nth}", std::process::id())
    };
    match scheme {
        "tcp" => format!("tcp://127.0.0.1:{}", port()),
        "auto" => format!("auto://127.0.0.1:{}", port()),
        scheme => format!("{scheme}://{}", name()),
    }
}

fn server(url: &str) -> EngineThread {
    let endpoint = open(url, &OpenOptions::default()).unwrap();
    EngineThread::start(endpoint, EngineConfig::default(), |engine| {
        engine.register(DOUBLE, 0, serve(async |_, n: u64| 2 * n));
    })
    .unwrap()
}

fn client(scheme: &str, refused: Refused) -> Engine {
    let any = format!("{scheme}://*");
    let config = EngineConfig::default().patience(PATIENCE).refused(refused);
    Engine::new(open(&any, &OpenOptions::default()).unwrap(), config)
}

fn double(engine: &Engine, at: &str, limit: Duration) -> Result<u64, CallError> {
    let target = engine.lookup(at).unwrap();
    engine.block_on(target.call(DOUBLE, &CallOptions::default().timeout(limit), &21u64))
}

/// Where the server of an address is, in full.
fn whole(server: &EngineThread) -> String {
    server.handle().address().to_string()
}

fn is_refused(result: &Result<u64, CallError>) -> bool {
    let Err(CallError::PeerLost { reason: LostReason::Unreachable(patience, _), .. }) = result
    else {
        return false;
    };
    patience.is_zero()
}

#[test]
fn a_call_to_a_server_that_has_ended_fails_at_once() {
    for scheme in SCHEMES {
        let engine = client(scheme, Refused::default());
        let first = server(&free(scheme));
        let at = whole(&first);
        assert_eq!(double(&engine, &at, PATIENCE).unwrap(), 42, "{scheme}");
        drop(first);
        // Whether it is known already that it has ended: a call finds out.
        let mut last = double(&engine, &at, LIMIT);
        for _ in 0..3 {
            assert!(!matches!(last, Err(CallError::Deadline { .. })), "{scheme}: {last:?}");
            last = double(&engine, &at, LIMIT);
        }
        assert!(is_refused(&last), "{scheme}: {last:?}");
        let text = last.unwrap_err().to_string();
        assert!(!text.contains("within") && text.contains("could not be reached: "), "{text}");
        // One that is started there again is found.
        let _second = server(&at);
        assert_eq!(double(&engine, &at, PATIENCE).unwrap(), 42, "{scheme}");
    }
}

#[test]
fn a_server_that_has_not_started_yet_is_waited_for() {
    for scheme in SCHEMES {
        for refused in [Refused::WaitForFirst, Refused::Wait] {
            let (engine, at) = (client(scheme, refused), free(scheme));
            let early = double(&engine, &at, Duration::from_millis(100));
            assert!(matches!(early, Err(CallError::Deadline { .. })), "{scheme}: {early:?}");
        }
        let (engine, at) = (client(scheme, Refused::default()), free(scheme));
        let target = engine.lookup(at.as_str()).unwrap();
        let options = CallOptions::default().timeout(PATIENCE);
        let early = target.call::<u64, u64>(DOUBLE, &options, &21);
        engine.block_on(engine.sleep(Duration::from_millis(50)));
        let _late = server(&at);
        assert_eq!(engine.block_on(early).unwrap(), 42, "{scheme}");
    }
}

#[test]
fn whether_to_wait_is_the_programs_choice() {
    for scheme in SCHEMES {
        // Told to wait, it waits for a server that is started again, too.
        let engine = client(scheme, Refused::Wait);
        let first = server(&free(scheme));
        let at = whole(&first);
        assert_eq!(double(&engine, &at, PATIENCE).unwrap(), 42, "{scheme}");
        drop(first);
        let lost = double(&engine, &at, LIMIT);
        let again = double(&engine, &at, Duration::from_millis(100));
        assert!(!is_refused(&lost), "{scheme}: {lost:?}");
        assert!(matches!(again, Err(CallError::Deadline { .. })), "{scheme}: {again:?}");
        let _second = server(&at);
        assert_eq!(double(&engine, &at, PATIENCE).unwrap(), 42, "{scheme}");

        // Told not to, it does not wait for a first one either.
        let engine = client(scheme, Refused::Fail);
        let nobody = double(&engine, &free(scheme), LIMIT);
        assert!(is_refused(&nobody), "{scheme}: {nobody:?}");
    }
}
