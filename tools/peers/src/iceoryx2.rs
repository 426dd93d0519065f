//! iceoryx2's request-response: both sides poll, and payloads are written where they are read.
//!
//! What is measured is the path its documentation shows for slices: a loan, one copy into it, and
//! no copy at the reader, which looks at it in place. Each measurement has a service of its own,
//! with exactly the sizes and numbers that it needs, as memory for all of them is taken beforehand.
//!
//! Its files lie in a directory of the session's own; its shared memory has a prefix of its own.
//! Both are gone with the session.

use crate::{
    Error, Session, Setup, Times, Transport, Unavailable, Waiting,
    payload::{Check, payload},
    process::{Parent, Process, Task},
    timing::{Meter, Transfers, Watch},
};
use ::iceoryx2::{
    pending_response::PendingResponse,
    port::client::Client,
    prelude::{
        Config, FileName, LogLevel, NodeBuilder, Path, SemanticString, SignalHandlingMode, ipc,
        set_log_level,
    },
};
use serde::{Deserialize, Serialize};
use std::{
    collections::VecDeque,
    fs, hint, io,
    path::{self, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

pub(crate) const NAME: &str = "iceoryx2";
pub(crate) const VERSION: &str = "0.10.0";
pub(crate) const HOW: &str = "request-response of slices, which both sides poll; one copy into a loan \
                              on each side, read where it lies";

const SERVICE: &str = "echo";

/// The answer to a payload that is not wanted back.
const SHORT: &[u8] = &[1];

/// A client looks whether its server still is there after so many looks at nothing.
const LOOKS: u32 = 1 << 24;

/// What a service is made for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Shape {
    /// Where its files are.
    directory: PathBuf,
    /// What the names of its shared memory begin with.
    prefix: String,
    /// The longest payload in bytes.
    bytes: usize,
    /// Requests under way at a time.
    in_flight: usize,
    /// Whether the payload comes back, or just a byte.
    back: bool,
    /// Both sides are on one core.
    alone: bool,
}

type Node = ::iceoryx2::prelude::Node<ipc::Service>;
type Caller = Client<ipc::Service, [u8], (), [u8], ()>;
type Pending = PendingResponse<ipc::Service, [u8], (), [u8], ()>;

fn failed<E: std::fmt::Display>(doing: &'static str) -> impl FnOnce(E) -> Error {
    Error::peer(NAME, doing)
}

pub(crate) fn open(
    setup: &Setup,
    _: Transport,
    _: Waiting,
) -> Result<Box<dyn Session>, Unavailable> {
    let session = Polling { setup: setup.clone() };
    // Whatever it lacks here, it lacks for the smallest service.
    session.link(1, 1, true)?;
    Ok(Box::new(session))
}

impl Shape {
    fn node(&self) -> Result<Node, Error> {
        set_log_level(LogLevel::Fatal);
        let text = self.directory.to_str().unwrap_or_default();
        let mut config = Config::default();
        let directory = Path::new(text.as_bytes()).map_err(failed("its directory"))?;
        config.global.set_root_path(&directory);
        let prefix = FileName::new(self.prefix.as_bytes());
        config.global.prefix = prefix.map_err(failed("its prefix"))?;
        NodeBuilder::new()
            .config(&config)
            .signal_handling_mode(SignalHandlingMode::Disabled)
            .create()
            .map_err(failed("a node"))
    }

    fn relax(&self) {
        if self.alone { thread::yield_now() } else { hint::spin_loop() }
    }
}

/// A client, and the process with its server.
struct Link {
    // Dropped in this order.
    client: Caller,
    node: Option<Node>,
    process: Option<Process>,
    shape: Shape,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.process = None;
        self.node = None;
        sweep(&self.shape);
    }
}

/// Removes what is left if a side could not do it: of a process that was killed.
fn sweep(shape: &Shape) {
    // All of this fails only for what is not there.
    let _ = fs::remove_dir_all(&shape.directory);
    for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(&shape.prefix) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

struct Polling {
    setup: Setup,
}

impl Polling {
    fn link(&self, bytes: usize, in_flight: usize, back: bool) -> Result<Link, Error> {
        static LINKS: AtomicU64 = AtomicU64::new(0);
        let number = LINKS.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("petasos-peer-{}-{number}-", std::process::id());
        let directory = self.setup.scratch.join(&prefix);
        let directory = path::absolute(directory).map_err(Error::system("a directory"))?;
        let shape = Shape { directory, prefix, bytes, in_flight, back, alone: self.setup.alone() };
        fs::create_dir(&shape.directory).map_err(Error::system("a directory for iceoryx2"))?;
        let begun = || {
            let task = Task::Iceoryx2(shape.clone());
            let (process, _) = Process::serve(NAME, &self.setup, task)?;
            let node = shape.node()?;
            let name = SERVICE.try_into().map_err(failed("a name"))?;
            let service = node
                .service_builder(&name)
                .request_response::<[u8], [u8]>()
                .open()
                .map_err(failed("opening the service"))?;
            let client = service
                .client_builder()
                .initial_max_slice_len(bytes.max(1))
                .create()
                .map_err(failed("a client"))?;
            Ok((client, node, process))
        };
        match begun() {
            Ok((client, node, process)) => {
                Ok(Link { client, node: Some(node), process: Some(process), shape })
            }
            Err(error) => {
                sweep(&shape);
                Err(error)
            }
        }
    }
}

impl Link {
    fn send(&self, payload: &[u8]) -> Result<Pending, Error> {
        let request = self.client.loan_slice_uninit(payload.len()).map_err(failed("a loan"))?;
        request.write_from_slice(payload).send().map_err(failed("a request"))
    }

    /// Polls until there is an answer; `check` says how closely it is looked at.
    fn receive(&mut self, pending: &Pending, sent: &[u8], check: Check) -> Result<(), Error> {
        let mut looks = 0;
        let response = loop {
            if let Some(response) = pending.receive().map_err(failed("an answer"))? {
                break response;
            }
            self.shape.relax();
            looks += 1;
            if looks >= LOOKS {
                looks = 0;
                self.see_that_it_lives()?;
            }
        };
        let expected = if self.shape.back { sent } else { SHORT };
        check.check(NAME, expected, response.payload())
    }

    fn call(&mut self, payload: &[u8], check: Check) -> Result<(), Error> {
        let pending = self.send(payload)?;
        self.receive(&pending, payload, check)
    }

    fn see_that_it_lives(&mut self) -> Result<(), Error> {
        let Some(process) = &mut self.process else { return Ok(()) };
        match process.wait(Duration::ZERO) {
            Some(status) => Err(process.failed(format!("ended: {status}"))),
            None => Ok(()),
        }
    }
}

impl Session for Polling {
    fn echo(&mut self, bytes: usize, time: Duration) -> Result<Times, Error> {
        let (mut link, payload) = (self.link(bytes, 1, true)?, payload(bytes));
        link.call(&payload, Check::Whole)?;
        let mut watch = Watch::new(time);
        while let Some(calls) = watch.next() {
            let begin = Instant::now();
            for _ in 0..calls {
                link.call(&payload, Check::Ends)?;
            }
            watch.record(begin.elapsed());
        }
        Ok(watch.times())
    }

    fn rate(&mut self, bytes: usize, in_flight: usize, time: Duration) -> Result<f64, Error> {
        let in_flight = in_flight.max(1);
        let (mut link, payload) = (self.link(bytes, in_flight, true)?, payload(bytes));
        link.call(&payload, Check::Whole)?;
        let mut calls = VecDeque::with_capacity(in_flight);
        let mut meter = Meter::new(time);
        loop {
            while calls.len() < in_flight {
                calls.push_back(link.send(&payload)?);
            }
            // The oldest is awaited before the next begins, as the bench does with ours.
            if let Some(call) = calls.pop_front() {
                link.receive(&call, &payload, Check::Ends)?;
            }
            if !meter.call() {
                break;
            }
        }
        for call in calls {
            link.receive(&call, &payload, Check::Ends)?;
        }
        Ok(meter.rate())
    }

    fn stream(&mut self, bytes: usize, time: Duration) -> Result<f64, Error> {
        let (mut link, payload) = (self.link(bytes, 1, false)?, payload(bytes));
        let mut transfers = Transfers::new(bytes, time);
        loop {
            let begin = Instant::now();
            link.call(&payload, Check::Ends)?;
            if !transfers.record(begin.elapsed()) {
                return Ok(transfers.bandwidth());
            }
        }
    }
}

/// What a server process does. True if the parent has said that all is done.
pub(crate) fn serve(shape: &Shape, mut parent: Parent) -> io::Result<bool> {
    let other = |error: Error| io::Error::other(error);
    let node = shape.node().map_err(other)?;
    let name = SERVICE.try_into().map_err(failed("a name")).map_err(other)?;
    let service = node
        .service_builder(&name)
        .request_response::<[u8], [u8]>()
        .max_clients(1)
        .max_servers(1)
        .max_nodes(2)
        .max_active_requests_per_client(shape.in_flight)
        .max_loaned_requests(1)
        .max_response_buffer_size(1)
        .max_borrowed_responses_per_pending_response(1)
        .create()
        .map_err(failed("creating the service"))
        .map_err(other)?;
    let server = service
        .server_builder()
        .initial_max_slice_len(if shape.back { shape.bytes.max(1) } else { SHORT.len() })
        .max_loaned_responses_per_request(1)
        .create()
        .map_err(failed("a server"))
        .map_err(other)?;
    parent.ready(SERVICE)?;

    let over = Arc::new(AtomicBool::new(false));
    let end = thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let told = parent.until_end();
            over.store(true, Ordering::Relaxed);
            told
        }
    });
    while !over.load(Ordering::Relaxed) {
        let Some(request) = server.receive().map_err(failed("a request")).map_err(other)? else {
            shape.relax();
            continue;
        };
        let answer = if shape.back { request.payload() } else { SHORT };
        let loan = request.loan_slice_uninit(answer.len()).map_err(failed("a loan"));
        let response = loan.map_err(other)?.write_from_slice(answer);
        response.send().map_err(failed("an answer")).map_err(other)?;
    }
    let told = end.join().unwrap_or(false);
    if !told {
        // The client died, and left to us what it could not remove.
        drop((server, service, node));
        sweep(shape);
    }
    Ok(told)
}
