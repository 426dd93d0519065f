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
    cmp::Ordering::{Equal, Greater, Less},
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::PathBuf,
    process::{self, Child},
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

const END: &str = "end";

/// What each client does, again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Doing {
    /// Calls that do nothing.
    Calls,
    /// Calls in which its memory is pulled.
    Bulk,
}

impl Doing {
    /// Calls between two looks at the clock, which takes a tenth of a short one.
    fn between_looks(self) -> u64 {
        if self == Doing::Calls { 16 } else { 1 }
    }
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

/// From when to when calls count, by the system's clock that only goes on, which each client reads for
/// itself. All call before, and until all have begun: starting is no part of what is measured, and
/// takes longer than that where many share a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    begin_ns: u64,
    end_ns: u64,
}

/// What each client may take to begin.
const BEGINNING: Duration = Duration::from_millis(2);

impl Window {
    /// So long, once so many clients have had the time to begin.
    fn after_the_beginning(clients: usize, time: Duration) -> Window {
        let begin_ns = now_ns() + BEGINNING.as_nanos() as u64 * (clients as u64 + 1);
        Window { begin_ns, end_ns: begin_ns + time.as_nanos() as u64 }
    }

    fn left(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(now_ns()))
    }
}

/// Calls made in a time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Made {
    calls: u64,
    time_ns: u64,
}

impl Made {
    /// Those of both in the time of both; of who made none in that time, and took longer, nothing counts.
    fn and(self, other: Made) -> Made {
        match self.time_ns.cmp(&other.time_ns) {
            Less => self,
            Equal => Made { calls: self.calls + other.calls, ..self },
            Greater => other,
        }
    }

    /// Calls a second.
    pub(crate) fn rate(&self) -> f64 {
        self.calls as f64 / self.time_ns.max(1) as f64 * 1e9
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

    /// Has all call: what they made together in so much time.
    pub(crate) fn call_for(mut self, time: Duration) -> Outcome<Made> {
        let window = Window::after_the_beginning(self.all.len(), time);
        let go =
            serde_json::to_string(&window).map_err(Failure::system("writing when to begin"))?;
        self.all.iter_mut().try_for_each(|one| one.say(&go))?;
        thread::sleep(window.left());
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
    let go = hear(&mut lines);
    if go.is_empty() {
        return Ok(());
    }
    let window: Window = serde_json::from_str(&go).map_err(Failure::system("when to begin"))?;
    let listening = thread::spawn(move || {
        if hear(&mut lines).trim_end() != END {
            // Nobody wants the answer, and a call may take long.
            process::exit(0);
        }
        hear(&mut lines);
    });
    let calling = client.call_in(window, order.doing.between_looks());
    let made = client.engine.block_on(calling)?;
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

    /// Calls from now to the end of the window, looking at the clock after each so many, which count if
    /// that was in it. On however crowded a core, some count: if none are in it, the first after it.
    async fn call_in(&self, window: Window, looks: u64) -> Outcome<Made> {
        let Window { begin_ns, end_ns } = window;
        let mut calls = 0;
        loop {
            for _ in 0..looks {
                self.once().await?;
            }
            match now_ns() {
                now if now < begin_ns => {}
                now if now < end_ns => calls += looks,
                now if calls == 0 => return Ok(Made { calls: looks, time_ns: now - begin_ns }),
                _ => return Ok(Made { calls, time_ns: end_ns - begin_ns }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_made_nothing_in_time_does_not_count() {
        let in_time = Made { calls: 100, time_ns: 1_000 };
        let late = Made { calls: 16, time_ns: 9_000 };
        let rates = [in_time.and(late).and(in_time), late.and(in_time), late.and(late)];
        let rates = rates.map(|made| made.rate().round());
        assert_eq!(rates, [200e6, 100e6, 3_555_556.0], "but somebody does");
    }
}
