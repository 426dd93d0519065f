//! Client processes of the command's own, many at a time: this executable, started again.
//!
//! Each communicates with the command over a socket that is its standard input. A line of JSON is
//! the [`Order`]; when the client has connected and called once, it answers, and waits for the
//! [`Window`] in which calls count. It ends when it gets the line `end`, when that socket closes,
//! so also when the process that started it dies, and at the latest when its [`Clients`] are
//! dropped.

use crate::{
    again::{self, read_line},
    client,
    exit::{Code, Failure, Outcome},
    interrupt, limits,
    service::{BenchClient, Direction},
    waiting::Waiting,
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

/// A client without an answer for so long is given up: with many on a core each waits for its turn.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long connecting may take, and a call.
const CONNECTING: Duration = Duration::from_secs(20);

/// How long all of them together may take to end by themselves.
const GRACE: Duration = Duration::from_secs(5);

const END: &str = "end";

/// What each client does repeatedly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Workload {
    /// Calls that do nothing.
    Calls,
    /// Calls in which its memory is pulled.
    Bulk,
}

impl Workload {
    /// Calls between two readings of the clock, which takes a tenth of a short call.
    fn between_readings(self) -> u64 {
        if self == Workload::Calls { 16 } else { 1 }
    }
}

/// What a client is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The server's URL.
    pub(crate) url: String,
    pub(crate) secret: PathBuf,
    /// The core to run on.
    pub(crate) core: Option<usize>,
    pub(crate) workload: Workload,
}

/// What a client answers; to the order, with no calls.
#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Completed(Completed),
    Failed(String),
}

/// The time in which calls count, by the monotonic clock, which each client reads for itself. All
/// clients call before it as well, until all have begun: starting is not measured, and takes longer
/// than the window where many share a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Window {
    begin_ns: u64,
    end_ns: u64,
}

/// How long each client may take to begin.
const BEGINNING: Duration = Duration::from_millis(2);

impl Window {
    /// A window of this length, once so many clients have had the time to begin.
    fn after_the_beginning(clients: usize, time: Duration) -> Window {
        let begin_ns = now_ns() + BEGINNING.as_nanos() as u64 * (clients as u64 + 1);
        Window { begin_ns, end_ns: begin_ns + time.as_nanos() as u64 }
    }

    fn left(&self) -> Duration {
        Duration::from_nanos(self.end_ns.saturating_sub(now_ns()))
    }
}

/// Calls that were completed in a time, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Completed {
    calls: u64,
    time_ns: u64,
}

impl Completed {
    /// The calls of both in the time of both. A client that completed none in the window took
    /// longer, and does not count.
    fn and(self, other: Completed) -> Completed {
        match self.time_ns.cmp(&other.time_ns) {
            Less => self,
            Equal => Completed { calls: self.calls + other.calls, ..self },
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

/// Client processes; all have ended when this has been dropped.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    all: Vec<ClientProcess>,
}

#[derive(Debug)]
struct ClientProcess {
    child: Child,
    socket: UnixStream,
}

impl Clients {
    /// Starts one for each order, all at a time, and waits until each has called once.
    pub(crate) fn start(orders: impl Iterator<Item = Order>) -> Outcome<Clients> {
        let mut clients = Clients::default();
        for order in orders {
            let started = again::start(SUBCOMMAND, [""; 0], PATIENCE);
            let (child, socket) = started.map_err(Failure::system("starting a client process"))?;
            clients.all.push(ClientProcess { child, socket });
            let order = serde_json::to_string(&order);
            let order = order.map_err(Failure::system("writing an order"))?;
            clients.all.last_mut().map_or(Ok(()), |one| one.send(&order))?;
        }
        clients.all.iter().try_for_each(|one| one.receive::<Answer>()?.completed().map(drop))?;
        Ok(clients)
    }

    /// Lets all clients call: what they completed together in so much time.
    pub(crate) fn call_for(mut self, time: Duration) -> Outcome<Completed> {
        let window = Window::after_the_beginning(self.all.len(), time);
        let go =
            serde_json::to_string(&window).map_err(Failure::system("writing when to begin"))?;
        self.all.iter_mut().try_for_each(|one| one.send(&go))?;
        thread::sleep(window.left());
        for one in &mut self.all {
            // A client that does not read has sent its failure, which is received below.
            let _ = one.send(END);
        }
        let mut all: Option<Completed> = None;
        for one in &self.all {
            let completed = one.receive::<Answer>()?.completed()?;
            all = Some(all.map_or(completed, |all| all.and(completed)));
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
            // Both fail only for a process that has ended already.
            let _ = one.child.kill();
            let _ = one.child.wait();
        }
    }
}

impl ClientProcess {
    fn failed(&self, error: impl std::fmt::Display) -> Failure {
        let text = format!("the client process {}: {error}", self.child.id());
        Failure::new(Code::Failed, text)
    }

    fn send(&mut self, line: &str) -> Outcome {
        let sent = writeln!(self.socket, "{line}");
        sent.map_err(|error| self.failed(format!("does not read: {error}")))
    }

    fn receive<T: DeserializeOwned>(&self) -> Outcome<T> {
        let line = read_line(&self.socket).map_err(|error| self.failed(error))?;
        serde_json::from_str(&line).map_err(|_| self.failed("ended before it was done"))
    }
}

impl Answer {
    fn completed(self) -> Outcome<Completed> {
        match self {
            Answer::Completed(completed) => Ok(completed),
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
        // If the parent has ended, the failure has no reader; else the parent reports it.
        let _ = send_answer(&mut parent, &Answer::Failed(failure.to_string()));
        return Ok(());
    }
    outcome
}

fn send_answer(parent: &mut UnixStream, answer: &Answer) -> Outcome {
    let answer = serde_json::to_string(answer).map_err(Failure::system("writing an answer"))?;
    writeln!(parent, "{answer}").map_err(Failure::system("answering"))
}

fn obey(parent: &mut UnixStream) -> Outcome {
    let listening = parent.try_clone().map_err(Failure::system("a socket"))?;
    let mut lines = BufReader::new(listening);
    let line = next_line(&mut lines);
    if line.is_empty() {
        // The parent died before it sent the order.
        return Ok(());
    }
    let order: Order = serde_json::from_str(&line).map_err(Failure::system("the order"))?;
    limits::pin(order.core);
    let client = Caller::begin(&order)?;
    send_answer(parent, &Answer::Completed(Completed::default()))?;
    let go = next_line(&mut lines);
    if go.is_empty() {
        return Ok(());
    }
    let window: Window = serde_json::from_str(&go).map_err(Failure::system("when to begin"))?;
    let listening = thread::spawn(move || {
        if next_line(&mut lines).trim_end() != END {
            // The parent has ended, and a call may take long.
            process::exit(0);
        }
        next_line(&mut lines);
    });
    let calling = client.call_in(window, order.workload.between_readings());
    let completed = client.engine.block_on(calling)?;
    send_answer(parent, &Answer::Completed(completed))?;
    // A client stays connected to the server until all are done: it ends when the socket does.
    let _ = listening.join();
    Ok(())
}

/// The next line; empty if the process that started this one has ended.
fn next_line(lines: &mut BufReader<UnixStream>) -> String {
    let mut line = String::new();
    // A line that was not read whole is not `end`.
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
    /// Connects, and calls once.
    fn begin(order: &Order) -> Outcome<Caller> {
        let address = Address::parse(&order.url).map_err(Failure::system("the server's URL"))?;
        let secret = Some(order.secret.as_path());
        let engine = client::engine(&address, secret, Waiting::Adaptive, CONNECTING)?;
        let bench = BenchClient::new(&engine, &address);
        let lent = match order.workload {
            Workload::Calls => None,
            Workload::Bulk => Some(engine.bulk(Region::zeroed(TRANSFER).whole(), Access::READ)?),
        };
        let caller = Caller { lent, bench, engine };
        caller.engine.block_on(caller.once())?;
        Ok(caller)
    }

    async fn once(&self) -> Outcome {
        match &self.lent {
            None => Ok(self.bench.null().await?),
            Some(lent) => {
                let moved = self.bench.transfer(lent.handle(), Direction::Pull, 1).await?;
                moved.map_err(|text| Failure::new(Code::Failed, text))
            }
        }
    }

    /// Calls from now to the end of the window, and reads the clock after each batch, which counts
    /// if that reading was in the window. Some calls count on any core: if none are in the window,
    /// the first after it.
    async fn call_in(&self, window: Window, batch: u64) -> Outcome<Completed> {
        let Window { begin_ns, end_ns } = window;
        let mut calls = 0;
        loop {
            for _ in 0..batch {
                self.once().await?;
            }
            match now_ns() {
                now if now < begin_ns => {}
                now if now < end_ns => calls += batch,
                now if calls == 0 => {
                    return Ok(Completed { calls: batch, time_ns: now - begin_ns });
                }
                _ => return Ok(Completed { calls, time_ns: end_ns - begin_ns }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_without_calls_in_the_window_do_not_count() {
        let in_time = Completed { calls: 100, time_ns: 1_000 };
        let late = Completed { calls: 16, time_ns: 9_000 };
        let rates = [in_time.and(late).and(in_time), late.and(in_time), late.and(late)];
        let rates = rates.map(|made| made.rate().round());
        assert_eq!(rates, [200e6, 100e6, 3_555_556.0], "unless there is no other");
    }
}
