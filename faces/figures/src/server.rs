//! A server process of the command's own: this executable, started again.
//!
//! The two talk over a socket that is the server's standard input: one line of JSON says what to
//! serve, one line answers with the URL. The server ends when that socket closes, so also when
//! the process that started it dies, and at the latest when its [`Server`] is dropped. The
//! temporary directory is an argument: the server removes it also when that process could say no
//! more.

use crate::{
    again::{self, read_line},
    bare::{Answering, End},
    channel::{Channel, Open},
    exit::{Code, Failure, Outcome},
    interrupt, limits, scratch,
    service::{Bench, Measured},
    waiting::Waiting,
};
use petasos::{Engine, EngineConfig, EngineHandle, EngineThread, OpenOptions, fabric::Endpoint};
use petasos_forward::{
    server::{self as forward, ServerConfig, StartError},
    storage::Local,
};
use rustix::{
    io::Errno,
    process::{
        Pid, Signal, WaitId, WaitIdOptions, kill_process, set_parent_process_death_signal, waitid,
    },
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    io::{self, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, ExitStatus},
    sync::Arc,
    time::{Duration, Instant},
};

/// The hidden subcommand for which `main` calls [`run`].
pub const SUBCOMMAND: &str = "server-process";

/// A server that has not said its URL for so long is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a server may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// The last word to a server whose work is done.
const GOOD_BYE: &str = "end";

/// What a server is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Order {
    /// Where to listen.
    pub url: String,
    /// A secret file, where the transport wants one.
    pub secret: Option<PathBuf>,
    /// How to wait.
    pub waiting: Waiting,
    /// Where to run.
    pub core: Option<usize>,
    /// Where to keep files, if it is to keep any.
    pub store: Option<PathBuf>,
    /// The one channel that is to be used.
    pub channel: Option<String>,
    /// From how many bytes on results are lent, if not as usual.
    pub lend_above: Option<usize>,
    /// Without calls: bare messages.
    pub bare: bool,
    /// Others need its core as well.
    pub alone: bool,
    /// Engines that serve calls, with a thread and an address each; at least one.
    pub engines: usize,
}

#[derive(Serialize, Deserialize)]
enum Answer {
    Urls(Vec<String>),
    Failed { code: u8, message: String, advice: Option<String> },
}

/// A running server process; gone when this has been dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    socket: Option<UnixStream>,
    urls: Vec<String>,
}

impl Server {
    /// Starts a server and waits for its URL. It removes `scratch` if this process is gone without
    /// having done so.
    pub fn start(order: &Order, scratch: &Path) -> Outcome<Server> {
        let failed = |error: io::Error| {
            Failure::new(Code::Failed, format!("starting a server process: {error}"))
        };
        let (child, ours) = again::start(SUBCOMMAND, [scratch], PATIENCE).map_err(failed)?;
        let mut server = Server { child, socket: Some(ours), urls: Vec::new() };
        server.urls = server.agree(order).map_err(|failure| {
            failure.within(format!("the server process {}", server.child.id()))
        })?;
        Ok(server)
    }

    fn agree(&self, order: &Order) -> Outcome<Vec<String>> {
        let Some(mut socket) = self.socket.as_ref() else { return Ok(Vec::new()) };
        let order = serde_json::to_string(order).map_err(Failure::system("writing its order"))?;
        writeln!(socket, "{order}").map_err(Failure::system("telling it what to do"))?;
        let line = read_line(socket).map_err(Failure::system("waiting for its URL"))?;
        match serde_json::from_str(&line) {
            Ok(Answer::Urls(urls)) if !urls.is_empty() => Ok(urls),
            Ok(Answer::Failed { code, message, advice }) => {
                let failure = Failure::new(Code::of(code).unwrap_or(Code::Failed), message);
                Err(advice.into_iter().fold(failure, Failure::advise))
            }
            _ => Err(Failure::new(Code::Failed, "ended before it gave its URL")),
        }
    }

    /// Where its first engine is, which may be its only one.
    pub fn url(&self) -> &str {
        &self.urls[0]
    }

    /// Where all its engines are.
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.wait(Duration::from_millis(100))
    }

    /// Takes the processor away from it, as long as the result lives.
    pub fn freeze(&self) -> Outcome<Frozen> {
        let failed = |error: Errno| {
            Failure::new(Code::Failed, format!("stopping the server for a while: {error}"))
        };
        let id = self.child.id();
        let pid = Pid::from_raw(id as i32).ok_or(Errno::SRCH).map_err(failed)?;
        kill_process(pid, Signal::STOP).map_err(failed)?;
        let frozen = Frozen { pid };
        // Without taking the news of its end from `child`.
        let news = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(pid), news).map_err(failed)?;
        Ok(frozen)
    }

    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(2)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }
}

/// A server that is stopped until this is dropped. If this thread dies first, the kernel goes on
/// with it: see [`run`].
#[derive(Debug)]
pub struct Frozen {
    pid: Pid,
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // Not reaped yet: no other process has its number. Fails if it has ended.
        let _ = kill_process(self.pid, Signal::CONT);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut socket) = self.socket.take() {
            // A server that does not listen any more has ended, or will be made to.
            let _ = writeln!(socket, "{GOOD_BYE}");
        }
        if self.wait(GRACE).is_none() {
            // Both fail only for a process that is gone already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// What a server process does: serves until its standard input ends.
pub fn run(scratch: Option<OsString>) -> Outcome {
    let parent = again::parent("petasos serve")?;
    let outcome = serve_until_told(parent);
    // Without the last word it died, and left to us what it could not remove.
    if !matches!(outcome, Ok(true))
        && let Some(path) = scratch
    {
        scratch::inherit(Path::new(&path));
    }
    outcome.map(drop)
}

/// True if the parent has said that all is done.
fn serve_until_told(mut parent: UnixStream) -> Outcome<bool> {
    interrupt::unblock_terminate().map_err(Failure::system("signals"))?;
    // It may be stopped when the process dies that would go on with it.
    set_parent_process_death_signal(Some(Signal::CONT)).map_err(Failure::system("signals"))?;
    let line = read_line(&parent).map_err(Failure::system("reading the order"))?;
    if line.is_empty() {
        // It died before it said what to do.
        return Ok(false);
    }
    let order: Order = serde_json::from_str(&line).map_err(Failure::system("the order"))?;
    let begun = begin(&order);
    let answer = match &begun {
        Ok(Serving::Calls(engines)) => {
            Answer::Urls(engines.handles().iter().map(|e| e.address().to_string()).collect())
        }
        Ok(Serving::Bare(answering)) => Answer::Urls(vec![answering.address().to_string()]),
        Err(failure) => Answer::Failed {
            code: failure.code as u8,
            message: failure.message.clone(),
            advice: failure.advice.clone(),
        },
    };
    let answer = serde_json::to_string(&answer).map_err(Failure::system("writing an answer"))?;
    // A parent that is not there to hear it has closed the socket as well.
    let _ = writeln!(parent, "{answer}");
    // Kept until then, also where nothing could be served: the parent has the word.
    let said = read_line(&parent).unwrap_or_default();
    drop(begun);
    Ok(said.trim_end() == GOOD_BYE)
}

/// What serves.
enum Serving {
    Calls(Engines),
    Bare(Answering),
}

fn begin(order: &Order) -> Outcome<Serving> {
    let mut options = OpenOptions::default();
    options.secret_file.clone_from(&order.secret);
    let scheme = order.url.split(':').next().unwrap_or_default();
    let channel = order.channel.as_ref().and_then(|name| Channel::named(scheme, name));
    let open: Open = channel.map_or(petasos::open, |channel| channel.open);
    if order.bare {
        let end = End::new(open(&order.url, &options)?, order.alone);
        let answering = Answering::start(end, order.core);
        return answering.map(Serving::Bare).map_err(Failure::system("starting a thread"));
    }
    let endpoints = (0..order.engines.max(1)).map(|_| open(&order.url, &options));
    let endpoints = endpoints.collect::<Result<_, _>>()?;
    let mut config = order.waiting.config();
    config.lend_above = order.lend_above;
    Engines::start(endpoints, &config, order.core, order.store.as_deref()).map(Serving::Calls)
}

/// Engines that answer calls, each on a thread of its own; they end when this is dropped.
pub enum Engines {
    /// [`Measured`] alone.
    Plain(Vec<EngineThread>),
    /// And files.
    Files(forward::Server),
}

impl Engines {
    /// One for each endpoint, on this core; with files where a directory is given for them.
    pub fn start(
        endpoints: Vec<Box<dyn Endpoint>>,
        config: &EngineConfig,
        core: Option<usize>,
        files: Option<&Path>,
    ) -> Outcome<Engines> {
        let set_up = move |engine: &Engine| {
            limits::pin(core);
            serve(engine);
        };
        let thread = Failure::system("starting the server's thread");
        let Some(path) = files else {
            let start = |endpoint| EngineThread::start(endpoint, config.clone(), set_up);
            let engines = endpoints.into_iter().map(start).collect::<io::Result<_>>();
            return engines.map(Engines::Plain).map_err(thread);
        };
        let storage = Local::open(path).map_err(|error| Failure::file("opening", path, &error))?;
        let mut files = ServerConfig::default();
        // Its clients begin anew: what one of them had under way is room that the next one needs.
        files.keep_staged = false;
        let config = config.clone();
        forward::Server::start_with(Arc::new(storage), endpoints, files, config, set_up)
            .map(Engines::Files)
            .map_err(|error: StartError| Failure::new(Code::Failed, error))
    }

    /// Where they are, and how they are asked.
    pub fn handles(&self) -> Vec<EngineHandle> {
        match self {
            Engines::Plain(engines) => engines.iter().map(|e| e.handle().clone()).collect(),
            Engines::Files(server) => server.engines(),
        }
    }
}

/// Registers the services of a server without files.
pub fn serve(engine: &Engine) {
    Measured::default().serve(engine, 0).expect("a fresh engine serves nothing of this name yet");
}
