//! A broker in a thread, and endpoints that are driven in turn.

use petasos_broker::{Ask, Broker, Config, Stop, ask};
use petasos_fabric::{
    Address, Clock, Done, Endpoint, Event, Level, Operation, Payload, Peer, Token,
};
use std::{
    path::{Path, PathBuf},
    thread::JoinHandle,
    time::{Duration, Instant},
};
use tempfile::TempDir;

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A broker that serves; it ends when this is dropped.
pub(crate) struct Serving {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    pub(crate) fn start(config: Config, file: Option<&Path>) -> Serving {
        Serving::of(Broker::open(config, file).unwrap())
    }

    pub(crate) fn of(mut broker: Broker) -> Serving {
        let stop = broker.stop();
        Serving { stop, thread: Some(std::thread::spawn(move || broker.run())) }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the broker does not fail");
        }
    }
}

/// A directory with the sockets of tenants `a`, `b` and `c`.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    pub(crate) fn new() -> Place {
        Place { directory: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Tenants, of which `a` and `b` may talk to each other.
    pub(crate) fn config(&self) -> Config {
        let mut config = Config::new(self.path("control"));
        ["a", "b", "c"].into_iter().for_each(|name| config.add_tenant(name, self.path(name)));
        config.allow("a", "b").unwrap();
        config
    }

    pub(crate) fn try_open(&self, url: &str, tenant: &str) -> Result<Box<dyn Endpoint>, String> {
        let url = format!("{url}?broker={}", self.path(tenant).display());
        let endpoint = petasos_tenant::Endpoint::open(&Address::parse(&url).unwrap(), None);
        Ok(Box::new(endpoint.map_err(|error| error.to_string())?))
    }

    pub(crate) fn open(&self, url: &str, tenant: &str) -> Box<dyn Endpoint> {
        self.try_open(url, tenant).unwrap()
    }

    pub(crate) fn status(&self) -> serde_json::Value {
        serde_json::from_str(&ask(&self.path("control"), Ask::Status).unwrap()).unwrap()
    }
}

/// Two endpoints, and what happened at each.
pub(crate) struct Two {
    pub(crate) ends: [Box<dyn Endpoint>; 2],
    pub(crate) events: [Vec<Event>; 2],
    pub(crate) clock: Clock,
}

impl Two {
    pub(crate) fn of(ends: [Box<dyn Endpoint>; 2]) -> Two {
        Two { ends, events: Default::default(), clock: Clock::start() }
    }

    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&[Vec<Event>; 2]) -> bool) {
        let begin = Instant::now();
        while !done(&self.events) {
            assert!(begin.elapsed() < PATIENCE, "not in time: {what}: {:?}", self.events);
            for (end, events) in self.ends.iter_mut().zip(&mut self.events) {
                end.progress(self.clock.now(), 64, events);
            }
            std::thread::yield_now();
        }
    }

    /// The first resolves the second: both are up.
    pub(crate) fn connect(&mut self) -> Peer {
        let address = self.ends[1].address().clone();
        let peer = self.ends[0].resolve(&address, PATIENCE).unwrap();
        let up = |events: &Vec<Event>| events.iter().any(|e| matches!(e, Event::PeerUp { .. }));
        self.until("both are up", |events| events.iter().all(up));
        self.events = Default::default();
        peer
    }

    /// A message from the first to the second.
    pub(crate) fn message(&mut self, to: Peer, bytes: &[u8]) {
        let payload = Payload::Bytes(bytes.to_vec().into());
        let (token, level) = (Token(1), Level::Reusable);
        let send = Operation::Send { token, peer: to, payload, level };
        self.ends[0].submit(&mut [send].into());
        let is = |event: &Event| matches!(event, Event::Message { message, .. } if message[..] == *bytes);
        self.until("a message", |events| events[1].iter().any(is));
        let sent = |event: &Event| matches!(event, Event::Done { result: Ok(Done::Sent), .. });
        self.until("it is sent", |events| events[0].iter().any(sent));
        self.events = Default::default();
    }
}
