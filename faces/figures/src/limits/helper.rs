//! The other process of a measurement: this executable, started again.
//!
//! Its standard input is one end of a socket pair, over which it gets a line that says what to
//! do and answers in lines. It ends when that socket closes, when the process that started it dies
//! (`PR_SET_PDEATHSIG`: with the thread, to be exact), and at the latest when its [`Helper`] is
//! dropped.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::order::{Order, Request};
use super::{LimitError, Plan};

/// The hidden subcommand for which `main` calls [`super::run_helper`].
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

/// The parent's next line.
pub(super) fn hear(parent: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    parent.by_ref().take(LONGEST_LINE).read_line(&mut line)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;
    use std::os::unix::process::ExitStatusExt;
    use std::path::Path;
    use std::process::ExitStatus;
    use std::time::Instant;

    use rustix::process::Signal;

    use super::*;
    use crate::limits::run_helper;

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
}
