//! The other process: this executable, started again.
//!
//! The two talk over a socket that is the new process's standard input, in lines: one of JSON says
//! what to do. A server answers with where it is to be found, and serves until that socket closes:
//! so also when the process that started it dies, and at the latest when its [`Process`] is
//! dropped. A program is run in place of this executable, on its core, and ends with its parent;
//! that the socket closes without a word says that it began.

#[cfg(feature = "_async")]
use crate::Transport;
use crate::{Error, Setup};
use rustix::{
    process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal},
    thread::{CpuSet, sched_setaffinity},
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    io::{self, BufRead, BufReader, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::{net::UnixStream, process::CommandExt},
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

/// A server that has said nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a server may take to end by itself.
const GRACE: Duration = Duration::from_secs(3);

/// The last word to a server whose work is done.
const GOOD_BYE: &str = "end";

/// The longest line between the two.
const LONGEST_LINE: u64 = 64 << 10;

/// What a process is to do, and where.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) core: Option<usize>,
    pub(crate) task: Task,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Answer calls by one of the asynchronous stacks, on the first connection.
    #[cfg(feature = "_async")]
    Serve { stack: crate::asynchronous::Stack, transport: Transport, directory: PathBuf },
    /// Answer requests in shared memory.
    #[cfg(feature = "iceoryx2")]
    Iceoryx2(crate::iceoryx2::Shape),
    /// Become a program.
    Run { program: PathBuf, arguments: Vec<OsString>, variables: Vec<(String, String)> },
}

/// A server's first word.
#[derive(Serialize, Deserialize)]
enum Answer {
    Ready(String),
    Failed(String),
}

/// A running process; gone when this has been dropped.
#[derive(Debug)]
pub(crate) struct Process {
    peer: &'static str,
    child: Child,
    program: bool,
    lines: Option<BufReader<UnixStream>>,
}

impl Process {
    /// Starts a server and waits until it says where it is.
    ///
    /// To be called on a thread that outlives the server.
    #[cfg(any(feature = "_async", feature = "iceoryx2"))]
    pub(crate) fn serve(
        peer: &'static str,
        setup: &Setup,
        task: Task,
    ) -> Result<(Process, String), Error> {
        let order = Order { core: setup.server, task };
        let mut process = Process::start(peer, setup, &order)?;
        match serde_json::from_str(&process.hear()?) {
            Ok(Answer::Ready(found_at)) => Ok((process, found_at)),
            Ok(Answer::Failed(reason)) => Err(process.failed(reason)),
            Err(_) => Err(process.failed("ended before it was ready".to_owned())),
        }
    }

    /// Starts a program with its output in pipes.
    pub(crate) fn run(peer: &'static str, setup: &Setup, order: &Order) -> Result<Process, Error> {
        let mut process = Process::start(peer, setup, order)?;
        match process.hear()? {
            silence if silence.is_empty() => Ok(process),
            line => match serde_json::from_str(&line) {
                Ok(Answer::Failed(reason)) => Err(process.failed(reason)),
                _ => Err(process.failed(line)),
            },
        }
    }

    fn start(peer: &'static str, setup: &Setup, order: &Order) -> Result<Process, Error> {
        let failed = || Error::system("starting a process");
        let (ours, theirs) = UnixStream::pair().map_err(failed())?;
        ours.set_read_timeout(Some(PATIENCE)).map_err(failed())?;
        let mut command = Command::new("/proc/self/exe");
        // Not by its path, under which an upgrade may have put another executable meanwhile.
        command.arg0("petasos").args(&setup.entry).stdin(OwnedFd::from(theirs));
        let program = matches!(order.task, Task::Run { .. });
        if program {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        } else {
            command.stdout(Stdio::null());
        }
        let child = command.spawn().map_err(failed())?;
        let mut process = Process { peer, child, program, lines: Some(BufReader::new(ours)) };
        let order = serde_json::to_string(order).map_err(|e| process.failed(e.to_string()))?;
        process.say(&order)?;
        Ok(process)
    }

    pub(crate) fn say(&mut self, line: &str) -> Result<(), Error> {
        let Some(lines) = &mut self.lines else { return Ok(()) };
        let said = writeln!(lines.get_mut(), "{line}");
        said.map_err(|error| self.failed(format!("does not listen: {error}")))
    }

    /// Its next line, or nothing if it said its last.
    fn hear(&mut self) -> Result<String, Error> {
        let Some(lines) = &mut self.lines else { return Ok(String::new()) };
        hear(lines).map_err(|error| self.failed(format!("says nothing: {error}")))
    }

    pub(crate) fn failed(&self, reason: String) -> Error {
        Error::Server { peer: self.peer, pid: self.child.id(), reason }
    }

    /// Waits for its end, so long at most.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(1)),
                Ok(status) => return status,
                Err(_) => return None,
            }
        }
    }

    /// The output of a program, once: standard output and standard error.
    pub(crate) fn outputs(&mut self) -> [Option<OwnedFd>; 2] {
        [self.child.stdout.take().map(OwnedFd::from), self.child.stderr.take().map(OwnedFd::from)]
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.program {
            // Of one that still runs; it takes its shared memory with it.
            if let (Ok(None), Some(pid)) =
                (self.child.try_wait(), Pid::from_raw(self.child.id() as i32))
            {
                let _ = kill_process(pid, Signal::TERM);
            }
        } else {
            // One that does not listen any more has ended, or will be made to.
            let _ = self.say(GOOD_BYE);
        }
        self.lines = None;
        if self.wait(GRACE).is_none() {
            // Both fail only for a process that is gone already.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn hear(lines: &mut BufReader<UnixStream>) -> io::Result<String> {
    let mut line = String::new();
    lines.by_ref().take(LONGEST_LINE).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// A server's side of the conversation.
#[derive(Debug)]
pub(crate) struct Parent(BufReader<UnixStream>);

#[cfg(any(feature = "_async", feature = "iceoryx2"))]
impl Parent {
    /// Says where the server is to be found.
    pub(crate) fn ready(&mut self, found_at: impl Into<String>) -> io::Result<()> {
        self.answer(&Answer::Ready(found_at.into()))
    }

    /// The parent's next line.
    #[cfg(feature = "_async")]
    pub(crate) fn hear(&mut self) -> io::Result<String> {
        hear(&mut self.0)
    }

    /// Waits for the end; true if the parent has said that all is done.
    pub(crate) fn until_end(mut self) -> bool {
        hear(&mut self.0).is_ok_and(|said| said == GOOD_BYE)
    }
}

impl Parent {
    fn answer(&mut self, answer: &Answer) -> io::Result<()> {
        writeln!(self.0.get_mut(), "{}", serde_json::to_string(answer)?)
    }
}

/// What the other process does, for which `main` calls this and nothing else: it answers calls
/// until its standard input ends, or becomes a program.
///
/// True if the process that started it said that all is done; else it died, and may have left
/// something in [`Setup::scratch`].
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] when standard input is not the socket that a session hands over;
/// others when what it asks for
/// cannot be done; the latter has also been told to the session.
pub fn serve() -> io::Result<bool> {
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    let mut parent = Parent(BufReader::new(UnixStream::from(input)));
    // Fails for what is not a Unix socket: the hidden subcommand was typed by hand.
    parent.0.get_ref().local_addr().map_err(|_| {
        let text = "this subcommand is for petasos itself, which talks to it over a socket";
        io::Error::new(io::ErrorKind::InvalidInput, text)
    })?;
    let line = hear(&mut parent.0)?;
    if line.is_empty() {
        // It died before it said what to do.
        return Ok(false);
    }
    let mut words = Parent(BufReader::new(parent.0.get_ref().try_clone()?));
    let outcome = serde_json::from_str(&line).map_err(io::Error::other).and_then(|order: Order| {
        pin(order.core);
        obey(order.task, parent)
    });
    if let Err(error) = &outcome {
        // That the parent has gone is no further failure.
        let _ = words.answer(&Answer::Failed(error.to_string()));
    }
    outcome
}

fn obey(task: Task, parent: Parent) -> io::Result<bool> {
    match task {
        #[cfg(feature = "_async")]
        Task::Serve { stack, transport, directory } => {
            crate::asynchronous::serve(stack, transport, &directory, parent)
        }
        #[cfg(feature = "iceoryx2")]
        Task::Iceoryx2(shape) => crate::iceoryx2::serve(&shape, parent),
        Task::Run { program, arguments, variables } => {
            // Not `KILL`: libfabric removes its shared memory first.
            set_parent_process_death_signal(Some(Signal::TERM))?;
            // The parent died before the line above took effect: the process that adopted us sends
            // no signal.
            if getppid().is_none() {
                return Ok(false);
            }
            drop(parent);
            let mut command = Command::new(program);
            Err(command.args(arguments).envs(variables).stdin(Stdio::null()).exec())
        }
    }
}

/// Keeps this thread, and those it starts, on `core`, if it can be had.
fn pin(core: Option<usize>) {
    if let Some(core) = core.filter(|&core| core < CpuSet::MAX_CPU) {
        let mut set = CpuSet::new();
        set.set(core);
        // Where not: it is measured all the same, wherever the system puts it.
        let _ = sched_setaffinity(None, &set);
    }
}
