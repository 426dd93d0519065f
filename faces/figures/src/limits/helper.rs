//! The other process of a measurement: this executable, started again.
//!
//! Its standard input is one end of a socket pair, over which it gets a line that says what to
//! do and answers in lines. It ends when that socket closes, when the process that started it dies
//! (`PR_SET_PDEATHSIG`: with the thread, to be exact), and at the latest when its [`Helper`] is
//! dropped.

use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::Duration;

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::buffer::Buffer;
use super::connect::{self, Family};
use super::{LimitError, Plan, Waiting, pin, stream, tcp};

/// The hidden subcommand for which `main` calls [`run_helper`].
pub const HELPER_SUBCOMMAND: &str = "limits-helper";

/// A helper that has said nothing for this long is given up; touching much memory takes seconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Longest line on the socket between the two.
const LONGEST_LINE: u64 = 4096;

#[cfg(not(test))]
const ARGUMENTS: [&str; 1] = [HELPER_SUBCOMMAND];
/// The executable of the unit tests has no subcommands, but an ignored test of that name.
#[cfg(test)]
const ARGUMENTS: [&str; 4] =
    ["limits::helper::tests::as_helper", "--exact", "--ignored", "--nocapture"];

/// What the helper is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    /// Hold memory that the parent reads.
    Memory { bytes: usize },
    /// Send messages of so many bytes back over TCP.
    Echo { waiting: Waiting, bytes: usize },
    /// Send up to `bytes` over TCP each time it is asked to.
    Stream { bytes: usize },
    /// Take new connections, one after the other.
    Connect { family: Family, waiting: Waiting },
}

/// A request, and where it is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Order {
    core: Option<usize>,
    alone: bool,
    request: Request,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.request {
            Request::Memory { bytes } => write!(f, "memory {bytes}")?,
            Request::Echo { waiting: Waiting::Spinning, bytes } => {
                write!(f, "echo spinning {bytes}")?;
            }
            Request::Echo { waiting: Waiting::Sleeping, bytes } => {
                write!(f, "echo sleeping {bytes}")?;
            }
            Request::Stream { bytes } => write!(f, "stream {bytes}")?,
            Request::Connect { family, waiting } => {
                let family = if family == Family::Tcp { "tcp" } else { "unix" };
                let waiting = if waiting == Waiting::Spinning { "spinning" } else { "sleeping" };
                write!(f, "connect {family} {waiting}")?;
            }
        }
        if let Some(core) = self.core {
            write!(f, " core {core}")?;
        }
        if self.alone { write!(f, " alone") } else { Ok(()) }
    }
}

impl FromStr for Order {
    type Err = io::Error;

    fn from_str(line: &str) -> io::Result<Self> {
        let unknown = || io::Error::new(io::ErrorKind::InvalidInput, format!("asked for {line:?}"));
        let number = |word: &str| word.parse::<usize>().map_err(|_| unknown());
        let words: Vec<&str> = line.split_whitespace().collect();
        let (request, place) = match words.as_slice() {
            ["memory", bytes, place @ ..] => (Request::Memory { bytes: number(bytes)? }, place),
            ["stream", bytes, place @ ..] => (Request::Stream { bytes: number(bytes)? }, place),
            ["echo", "spinning", bytes, place @ ..] => {
                (Request::Echo { waiting: Waiting::Spinning, bytes: number(bytes)? }, place)
            }
            ["echo", "sleeping", bytes, place @ ..] => {
                (Request::Echo { waiting: Waiting::Sleeping, bytes: number(bytes)? }, place)
            }
            ["connect", family, waiting, place @ ..] => {
                let family = match *family {
                    "tcp" => Family::Tcp,
                    "unix" => Family::Unix,
                    _ => return Err(unknown()),
                };
                let waiting = match *waiting {
                    "spinning" => Waiting::Spinning,
                    "sleeping" => Waiting::Sleeping,
                    _ => return Err(unknown()),
                };
                (Request::Connect { family, waiting }, place)
            }
            _ => return Err(unknown()),
        };
        let (core, alone) = match place {
            [] => (None, false),
            ["alone"] => (None, true),
            ["core", core] => (Some(number(core)?), false),
            ["core", core, "alone"] => (Some(number(core)?), true),
            _ => return Err(unknown()),
        };
        Ok(Self { core, alone, request })
    }
}

/// A running helper process; gone when this has been dropped.
#[derive(Debug)]
pub(super) struct Helper {
    child: Child,
    lines: BufReader<UnixStream>,
}

impl Helper {
    /// Starts a helper and tells it what to do.
    ///
    /// To be called on a thread that outlives the helper, which dies with it.
    pub(super) fn start(plan: &Plan, request: Request) -> Result<Self, LimitError> {
        let failed = LimitError::system("starting a helper process");
        let (ours, theirs) = UnixStream::pair().map_err(&failed)?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(&failed)?;
        // Not by its path, under which an upgrade may have put another executable meanwhile.
        let child = Command::new("/proc/self/exe")
            .arg0("petasos")
            .args(ARGUMENTS)
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .map_err(&failed)?;
        let mut helper = Self { child, lines: BufReader::new(ours) };
        let cores = plan.cores;
        helper.say(&Order { core: cores.server, alone: cores.alone(), request }.to_string())?;
        Ok(helper)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a line.
    pub(super) fn say(&mut self, line: &str) -> Result<(), LimitError> {
        let sent = writeln!(self.lines.get_mut(), "{line}");
        sent.map_err(|error| self.failed(format!("does not listen: {error}")))
    }

    /// Waits for the line `KEY NUMBER`.
    pub(super) fn number(&mut self, key: &str) -> Result<usize, LimitError> {
        let mut line = String::new();
        let got = self.lines.by_ref().take(LONGEST_LINE).read_line(&mut line);
        match (got, line.trim_end().split_once(' ')) {
            (Err(error), _) => Err(self.failed(format!("gave no {key}: {error}"))),
            (Ok(0), _) => Err(self.failed(format!("ended before it gave its {key}"))),
            (Ok(_), Some((word, number))) if word == key && number.parse::<usize>().is_ok() => {
                Ok(number.parse().unwrap_or_default())
            }
            (Ok(_), _) => Err(self.failed(line.trim_end().to_owned())),
        }
    }

    /// An error that names this helper.
    pub(super) fn failed(&self, reason: String) -> LimitError {
        LimitError::Helper { pid: self.pid(), reason }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // Both fail only for a process that is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a helper process does: reads an order from its standard input and carries it out.
///
/// # Errors
///
/// When standard input is not the socket that a measurement hands over, and when the order cannot
/// be carried out; the latter has also been told to the parent.
pub fn run_helper() -> io::Result<()> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let mut parent = BufReader::new(UnixStream::from(input));
    // Fails for what is not a Unix socket: a user has typed the hidden subcommand.
    parent.get_ref().peer_addr().map_err(|_| {
        io::Error::other("this subcommand is for petasos itself, which talks to it over a socket")
    })?;
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // Dead before the line above took effect: the process that adopted this one sends no signal.
    if getppid().is_none() {
        return Ok(());
    }
    let outcome = obey(&mut parent);
    if let Err(error) = &outcome {
        // That the parent has gone is no further failure.
        let _ = writeln!(parent.get_mut(), "failed: {error}");
    }
    outcome
}

fn obey(parent: &mut BufReader<UnixStream>) -> io::Result<()> {
    let order: Order = hear(parent)?.parse()?;
    pin(order.core);
    match order.request {
        Request::Memory { bytes } => {
            let memory = Buffer::pattern(bytes).map_err(io::Error::other)?;
            writeln!(parent.get_mut(), "address {}", memory.as_ptr() as usize)?;
            wait_for_end(parent)
        }
        Request::Echo { waiting, bytes } => tcp::serve(parent, waiting, bytes, order.alone),
        Request::Stream { bytes } => stream::serve(parent, bytes),
        Request::Connect { family, waiting } => {
            connect::serve(parent, family, waiting, order.alone)
        }
    }
}

/// The parent's next line.
pub(super) fn hear(parent: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    parent.by_ref().take(LONGEST_LINE).read_line(&mut line)?;
    Ok(line)
}

fn wait_for_end(parent: &mut BufReader<UnixStream>) -> io::Result<()> {
    while !hear(parent)?.is_empty() {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::ExitStatus;
    use std::time::Instant;

    use super::*;

    /// Not a test: what the executable of the tests runs when it is started as a helper.
    #[test]
    #[ignore = "entry of the helper process of other tests"]
    fn as_helper() {
        if let Err(error) = run_helper() {
            eprintln!("helper: {error}");
        }
    }

    fn memory(bytes: usize) -> Helper {
        let mut helper = Helper::start(&Plan::default(), Request::Memory { bytes }).unwrap();
        assert_ne!(helper.number("address").unwrap(), 0);
        helper
    }

    fn end_of(helper: &mut Helper) -> ExitStatus {
        let begin = Instant::now();
        loop {
            if let Some(status) = helper.child.try_wait().unwrap() {
                return status;
            }
            assert!(begin.elapsed() < Duration::from_secs(10), "the helper lives on");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn gone_after_use() {
        let helper = memory(1 << 20);
        let path = format!("/proc/{}", helper.pid());
        assert!(Path::new(&path).exists());
        drop(helper);
        assert!(!Path::new(&path).exists());
    }

    #[test]
    fn ends_when_its_input_closes() {
        let mut helper = memory(1);
        helper.lines.get_ref().shutdown(Shutdown::Both).unwrap();
        assert!(end_of(&mut helper).success());
    }

    #[test]
    fn dies_with_the_thread_that_started_it() {
        let mut helper = std::thread::spawn(|| memory(1)).join().unwrap();
        assert_eq!(end_of(&mut helper).signal(), Some(Signal::KILL.as_raw()));
    }

    #[test]
    fn failures_are_reported() {
        let bytes = usize::MAX / 2;
        let mut helper = Helper::start(&Plan::default(), Request::Memory { bytes }).unwrap();
        let error = helper.number("address").unwrap_err().to_string();
        assert!(error.contains("no memory for a buffer"), "{error}");
        assert!(error.contains(&helper.pid().to_string()), "{error}");
    }

    #[test]
    fn orders_survive_the_way() {
        let requests = [
            Request::Memory { bytes: 7 },
            Request::Echo { waiting: Waiting::Spinning, bytes: 64 },
            Request::Echo { waiting: Waiting::Sleeping, bytes: 65_536 },
            Request::Stream { bytes: 1 << 30 },
            Request::Connect { family: Family::Tcp, waiting: Waiting::Spinning },
            Request::Connect { family: Family::Unix, waiting: Waiting::Sleeping },
        ];
        for request in requests {
            for (core, alone) in [(None, false), (Some(3), false), (Some(0), true), (None, true)] {
                let order = Order { core, alone, request };
                assert_eq!(order.to_string().parse::<Order>().unwrap(), order);
            }
        }
        for line in [
            "",
            "memory",
            "memory x",
            "echo loudly",
            "stream 1 core",
            "stream 1 alone 2",
            "connect x spinning",
        ] {
            assert!(line.parse::<Order>().is_err(), "{line}");
        }
    }
}
