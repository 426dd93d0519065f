//! Client processes of the command's own, many at a time: this executable, started again.
//!
//! Each talks with the command over a socket that is its standard input. A line of JSON says what to
//! do; when it has connected and done it once, it says so, and waits for the word to go on. It ends
//! when it is told to, when that socket closes, so also when the process that started it dies, and at
//! the latest when its [`Clients`] are dropped.

use crate::{
    again::{self, read_line},
    client,
    exit::{Code, Failure, Outcome},
    interrupt, limits,
    server::Waiting,
    service::{BenchClient, Way},
};
use petasos::{
    Bulk, Engine,
    fabric::{Access, Address, Region},
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{self, Child},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// The hidden subcommand for which `main` calls [`run`].
pub(crate) const SUBCOMMAND: &str = "client-process";

/// Bytes of a transfer.
pub(crate) const TRANSFER: usize = 1 << 20;

/// A client that says nothing for so long is given up: with many on a core each waits for its turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long connecting may take, and a call.
const CONNECTING: Duration = Duration::from_secs(20);

/// How long they may take to end by themselves, all together.
const GRACE: Duration = Duration::from_secs(5);

const GO: &str = "go";
const END: &str = "end";

/// What each client does, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Doing {
    /// Calls that do nothing.
    Calls,
    /// Calls in which its memory is pulled.
    Bulk,
}

/// What a client is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// Whom to call.
    pub(crate) url: String,
    pub(crate) secret: PathBuf,
    /// Where to run.
    pub(crate) core: Option<usize>,
    pub(crate) doing: Doing,
}

/// What a client answers; also to the order, with nothing made.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Made(Made),
    Failed(String),
}

/// Calls made, and when, by the system's clock that only goes on. Each client reads it for itself: on
/// a crowded core nobody else can say when it began.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Made {
    calls: u64,
    begin_ns: u64,
    end_ns: u64,
}

impl Made {
    /// Those of both.
    fn and(self, other: Made) -> Made {
        Made {
            calls: self.calls + other.calls,
            begin_ns: self.begin_ns.min(other.begin_ns),
            end_ns: self.end_ns.max(other.end_ns),
        }
    }

    /// Calls a second.
    pub(crate) fn rate(&self) -> f64 {
        self.calls as f64 / (self.end_ns.saturating_sub(self.begin_ns).max(1)) as f64 * 1e9
    }
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Client processes; gone when this has been dropped.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: Vec<One>,
}

#[derive(Debug)]
struct One {
    child: Child,
    socket: UnixStream,
}

impl Clients {
    /// Starts one for each order, all at a time, and waits until each has done it once.
    pub(crate) fn start(orders: impl Iterator<Item = Order>) -> Outcome<Clients> {
        let mut clients = Clients::default();
        for order in orders {
            let started = again::start(SUBCOMMAND, [""; 0], PATIENCE);
            let (child, socket) = started.map_err(Failure::system("starting a client process"))?;
            clients.all.push(One { child, socket });
            let order = serde_json::to_string(&order);
            let order = order.map_err(Failure::system("writing an order"))?;
            clients.all.last_mut().map_or(Ok(()), |one| one.say(&order))?;
        }
        clients.all.iter().try_for_each(|one| one.hear::<Answer>()?.made().map(drop))?;
        Ok(clients)
    }

    /// Has all go on until [`Clients::end`].
    pub(crate) fn go(&mut self) -> Outcome {
        self.all.iter_mut().try_for_each(|one| one.say(GO))
    }

    /// Has all end: what they made together.
    pub(crate) fn end(mut self) -> Outcome<Made> {
        for one in &mut self.all {
            // Who does not listen has said why, which is heard below.
            let _ = one.say(END);
        }
        let mut all: Option<Made> = None;
        for one in &self.all {
            let made = one.hear::<Answer>()?.made()?;
            all = Some(all.map_or(made, |all| all.and(made)));
        }
        all.ok_or_else(|| Failure::new(Code::Failed, "no client at all"))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        for one in &self.all {
            let _ = one.socket.shutdown(Shutdown::Both);
        }
        let end = Instant::now() + GRACE;
        for one in &mut self.all {
            while matches!(one.child.try_wait(), Ok(None)) && Instant::now() < end {
                thread::sleep(Duration::from_millis(1));
            }
            // Both fail only for a process that is gone already.
            let _ = one.child.kill();
            let _ = one.child.wait();
        }
    }
}

impl One {
    fn failed(&self, error: impl std::fmt::Display) -> Failure {
        let text = format!("the client process {}: {error}", self.child.id());
        Failure::new(Code::Failed, text)
    }

    fn say(&mut self, line: &str) -> Outcome {
        let said = writeln!(self.socket, "{line}");
        said.map_err(|error| self.failed(format!("does not listen: {error}")))
    }

    fn hear<T: DeserializeOwned>(&self) -> Outcome<T> {
        let line = read_line(&self.socket).map_err(|error| self.failed(error))?;
        serde_json::from_str(&line).map_err(|_| self.failed("ended before it was done"))
    }
}

impl Answer {
    fn made(self) -> Outcome<Made> {
        match self {
            Answer::Made(made) => Ok(made),
            Answer::Failed(text) => Err(Failure::new(Code::Failed, text)),
        }
    }
}

/// What a client process does.
pub(crate) fn run() -> Outcome {
    let mut parent = again::parent("petasos bench clients")?;
    interrupt::unblock_terminate().map_err(Failure::system("signals"))?;
    let outcome = obey(&mut parent);
    if let Err(failure) = &outcome {
        // Nobody there to hear it is no further failure; who is there says it.
        let _ = say(&mut parent, &Answer::Failed(failure.to_string()));
        return Ok(());
    }
    outcome
}

fn say(parent: &mut UnixStream, answer: &Answer) -> Outcome {
    let answer = serde_json::to_string(answer).map_err(Failure::system("writing an answer"))?;
    writeln!(parent, "{answer}").map_err(Failure::system("answering"))
}

fn obey(parent: &mut UnixStream) -> Outcome {
    let listening = parent.try_clone().map_err(Failure::system("a socket"))?;
    let mut lines = BufReader::new(listening);
    let line = hear(&mut lines);
    if line.is_empty() {
        // It died before it said what to do.
        return Ok(());
    }
    let order: Order = serde_json::from_str(&line).map_err(Failure::system("the order"))?;
    limits::pin(order.core);
    let client = Caller::begin(&order)?;
    say(parent, &Answer::Made(Made::default()))?;
    if hear(&mut lines).trim_end() != GO {
        return Ok(());
    }
    let listening = thread::spawn(move || {
        let told = hear(&mut lines).trim_end() == END;
        OVER.store(true, Ordering::Relaxed);
        if !told {
            // Nobody wants the answer, and a call may take long.
            process::exit(0);
        }
        hear(&mut lines);
    });
    let made = client.until_over()?;
    say(parent, &Answer::Made(made))?;
    // Who is done says good-bye to the server when all are: it ends when the socket does.
    let _ = listening.join();
    Ok(())
}

/// The next line; none if whoever started this is gone.
fn hear(lines: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    // What could not be read whole is no word that is known.
    let _ = lines.read_line(&mut line);
    line
}

/// Said by the thread that listens.
static OVER: AtomicBool = AtomicBool::new(false);

/// A client, connected.
struct Caller {
    // Closed before the engine ends.
    lent: Option<Bulk>,
    bench: BenchClient,
    engine: Engine,
}

impl Caller {
    /// Connects, and tries once.
    fn begin(order: &Order) -> Outcome<Caller> {
        let address = Address::parse(&order.url).map_err(Failure::system("the server's URL"))?;
        let secret = Some(order.secret.as_path());
        let engine = client::engine(&address, secret, Waiting::Adaptive, CONNECTING)?;
        let bench = BenchClient::new(&engine, &address);
        let lent = match order.doing {
            Doing::Calls => None,
            Doing::Bulk => Some(engine.bulk(Region::zeroed(TRANSFER).whole(), Access::READ)?),
        };
        let caller = Caller { lent, bench, engine };
        caller.engine.block_on(caller.once())?;
        Ok(caller)
    }

    async fn once(&self) -> Outcome {
        match &self.lent {
            None => Ok(self.bench.null().await?),
            Some(lent) => {
                let moved = self.bench.transfer(lent.handle(), Way::Pull, 1).await?;
                moved.map_err(|text| Failure::new(Code::Failed, text))
            }
        }
    }

    fn until_over(&self) -> Outcome<Made> {
        let (mut calls, begin_ns) = (0, now_ns());
        self.engine.block_on(async {
            // Once at least, on however crowded a core.
            while calls == 0 || !OVER.load(Ordering::Relaxed) {
                self.once().await?;
                calls += 1;
            }
            Ok(Made { calls, begin_ns, end_ns: now_ns() })
        })
    }
}
