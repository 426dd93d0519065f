//! The processes of this node: started, fed, listened to, and ended with all that they started.

use super::{Daemon, control::Control, rank};
use crate::{Gone, Node, job::JobMap};
use petasos_fabric::Time;
use rustix::{
    io::{Errno, ioctl_fionbio},
    process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open},
};
use std::{
    collections::VecDeque,
    io::{ErrorKind, Read, Write},
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio},
    time::Duration,
};

/// What a process that ended may still have in its pipes comes within this time.
const LINGER: Duration = Duration::from_millis(500);
/// Output that the head has not taken yet, of one node, in bytes.
const WINDOW: u64 = 1 << 20;

/// A process.
#[derive(Debug)]
pub(crate) struct Rank {
    child: Child,
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) out: Option<ChildStdout>,
    pub(crate) err: Option<ChildStderr>,
    pub(crate) input: Option<ChildStdin>,
    pub(crate) feed: VecDeque<u8>,
    feed_ends: bool,
    pub(crate) ended: Option<Gone>,
    /// Its end, its output and its errors are waited for.
    pub(crate) watched: [bool; 3],
    until: Time,
}

impl Rank {
    fn is_done(&self, now: Time) -> bool {
        self.ended.is_some() && ((self.out.is_none() && self.err.is_none()) || now >= self.until)
    }
}

impl Daemon {
    /// Starts all processes of this node.
    pub(crate) fn start_ranks(&mut self) {
        let Some(job) = self.job.clone() else { return };
        for rank in job.ranks_on(self.me) {
            match self.start_rank(*rank, &job) {
                Ok(started) => {
                    self.engine
                        .proc_started(job.proc(*rank), started.pid.as_raw_nonzero().get() as u32);
                    self.ranks.insert(*rank, started);
                }
                Err(error) => {
                    let why = Gone::NotStarted(error.to_string());
                    self.engine.proc_ended(self.clock.now(), job.proc(*rank), why.clone());
                    self.report(Control::Ended { rank: *rank, why });
                }
            }
        }
    }

    fn start_rank(&mut self, number: u32, job: &JobMap) -> std::io::Result<Rank> {
        let (Some(setup), Some(place)) = (&self.setup, &self.place) else {
            return Err(std::io::Error::other("the job is not set up"));
        };
        let program = &setup.program;
        let local = job.local_rank(number).unwrap_or_default();
        let mut command = Command::new(&self.own);
        command.arg(rank::RANK).arg(std::process::id().to_string());
        command.arg(if program.bind { local.to_string() } else { "-".to_owned() });
        command.arg(&program.wire).args(&program.arguments).current_dir(&program.directory);
        command.envs(program.environment.iter().map(|(name, value)| (name, value)));
        command.env("PETASOS_JOB_DIR", place.path());
        command.env("PETASOS_RANK", number.to_string());
        command.env("PETASOS_SIZE", job.size().to_string());
        command.env("PETASOS_JOB_NAME", &job.spec().name);
        command.env("PETASOS_NODE_NAME", job.node(self.me).map_or("", |node| &node.name));
        command.env("PETASOS_LOCAL_RANK", local.to_string());
        command.env("PETASOS_LOCAL_SIZE", job.ranks_on(self.me).len().to_string());
        command.stdin(if number == 0 { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let (out, err, input) = (child.stdout.take(), child.stderr.take(), child.stdin.take());
        let ready = pidfd_open(pid, PidfdFlags::empty()).and_then(|pidfd| {
            out.as_ref().map_or(Ok(()), |fd| ioctl_fionbio(fd, true))?;
            err.as_ref().map_or(Ok(()), |fd| ioctl_fionbio(fd, true))?;
            input.as_ref().map_or(Ok(()), |fd| ioctl_fionbio(fd, true))?;
            Ok(pidfd)
        });
        let pidfd = match ready {
            Ok(pidfd) => pidfd,
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(error.into());
            }
        };
        if let Some(guard) = &mut self.guard {
            guard.add(pid);
        }
        Ok(Rank {
            child,
            pid,
            pidfd,
            out,
            err,
            input,
            feed: VecDeque::new(),
            feed_ends: false,
            ended: None,
            watched: [false; 3],
            until: Time::NEVER,
        })
    }

    /// The process has ended: ends what it started, and says so.
    pub(crate) fn rank_ended(&mut self, number: u32) {
        let now = self.clock.now();
        let Some(rank) = self.ranks.get_mut(&number).filter(|rank| rank.ended.is_none()) else {
            return;
        };
        // It is not waited for yet, so that its number still is its own.
        let _ = kill_process_group(rank.pid, Signal::KILL);
        let why = match rank.child.wait() {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Gone::Exited(code),
                (None, signal) => Gone::Signalled(signal.unwrap_or_default()),
            },
            Err(error) => Gone::NotStarted(error.to_string()),
        };
        if let Some(guard) = &mut self.guard {
            guard.remove(rank.pid);
        }
        rank.ended = Some(why.clone());
        rank.until = now.after(LINGER);
        rank.input = None;
        if let Some(job) = &self.job {
            self.engine.proc_ended(now, job.proc(number), why);
        }
        self.close_clients_of(number);
        self.settle_ranks(now);
    }

    /// Reports processes that have ended and have nothing more to say.
    pub(crate) fn settle_ranks(&mut self, now: Time) {
        let done: Vec<u32> =
            self.ranks.iter().filter(|(_, r)| r.is_done(now)).map(|(n, _)| *n).collect();
        for number in done {
            if let Some(rank) = self.ranks.remove(&number)
                && let Some(why) = rank.ended
            {
                self.report(Control::Ended { rank: number, why });
            }
        }
    }

    /// When [`Daemon::settle_ranks`] is wanted.
    pub(crate) fn ranks_deadline(&self) -> Time {
        self.ranks.values().map(|rank| rank.until).min().unwrap_or(Time::NEVER)
    }

    /// Whether output can be taken from the processes now.
    pub(crate) fn takes_output(&self) -> bool {
        match &self.head {
            Some(head) => head.printer.has_room(),
            None => self.untaken < WINDOW,
        }
    }

    /// A process wrote something, or closed its end.
    pub(crate) fn read_output(&mut self, number: u32, error: bool) {
        let Some(rank) = self.ranks.get_mut(&number) else { return };
        let mut bytes = vec![0; 64 << 10];
        let read = match (&mut rank.out, &mut rank.err) {
            (Some(out), _) if !error => out.read(&mut bytes),
            (_, Some(err)) if error => err.read(&mut bytes),
            _ => return,
        };
        match read {
            Ok(len) if len > 0 => {
                bytes.truncate(len);
                self.untaken += len as u64;
                self.report(Control::Output { rank: number, error, bytes });
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            _ => {
                if error {
                    rank.err = None
                } else {
                    rank.out = None
                }
                self.settle_ranks(self.clock.now());
            }
        }
    }

    /// Standard input for rank 0; empty: it ends.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        match self.ranks.get_mut(&0) {
            Some(rank) if rank.input.is_some() => {
                rank.feed_ends |= bytes.is_empty();
                rank.feed.extend(bytes);
                self.write_input();
            }
            // It does not read any more: the bytes go nowhere.
            _ => self.report(Control::InputTaken(bytes.len() as u64)),
        }
    }

    /// Writes what rank 0 takes.
    pub(crate) fn write_input(&mut self) {
        let Some(rank) = self.ranks.get_mut(&0) else { return };
        let mut taken = 0;
        while let Some(input) = &mut rank.input {
            let (first, _) = rank.feed.as_slices();
            if first.is_empty() {
                if rank.feed_ends {
                    rank.input = None;
                }
                break;
            }
            match input.write(first) {
                Ok(written) => {
                    rank.feed.drain(..written);
                    taken += written as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    taken += rank.feed.len() as u64;
                    rank.feed.clear();
                    rank.input = None;
                }
            }
        }
        if taken > 0 {
            self.report(Control::InputTaken(taken));
        }
    }

    /// Sends a signal to all processes of this node, and to what they have started.
    pub(crate) fn signal_ranks(&self, number: i32) {
        let Some(signal) = Signal::from_named_raw(number) else { return };
        for rank in self.ranks.values().filter(|rank| rank.ended.is_none()) {
            // It may not have a group of its own yet.
            if kill_process_group(rank.pid, signal) == Err(Errno::SRCH) {
                let _ = kill_process(rank.pid, signal);
            }
        }
    }

    /// Ends all processes of this node, at once and for good.
    pub(crate) fn kill_ranks(&mut self) {
        self.signal_ranks(Signal::KILL.as_raw());
        for rank in self.ranks.values_mut().filter(|rank| rank.ended.is_none()) {
            let _ = rank.child.wait();
            if let Some(guard) = &mut self.guard {
                guard.remove(rank.pid);
            }
        }
        self.ranks.clear();
    }

    /// Where a rank runs.
    pub(crate) fn node_of_rank(&self, rank: u32) -> Option<Node> {
        self.job.as_ref()?.node_of(rank)
    }
}
