//! A process of a rank: fed, listened to, and ended with all that it started.

use super::{
    child::Process,
    watch::{self, Watch},
};
use petasos_fabric::Time;
use petasos_pmix::Termination;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::ioctl_fionbio,
    process::{Pid, Signal, kill_process_group},
};
use std::{
    collections::VecDeque,
    io::{self, ErrorKind, PipeReader, PipeWriter, Read, Write},
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    time::Duration,
};

/// What a process that ended may still have in its pipes comes within this time.
const DRAIN: Duration = Duration::from_millis(500);

#[derive(Debug)]
pub(super) struct Rank {
    process: Process,
    restarts: u32,
    pidfd: OwnedFd,
    out: Option<PipeReader>,
    err: Option<PipeReader>,
    input: Option<PipeWriter>,
    /// What it has not taken of its standard input.
    unread: VecDeque<u8>,
    input_ends: bool,
    ended: Option<Termination>,
    /// Why it has failed, also if it does not notice.
    failed: Option<String>,
    /// Its end, its output and its errors are waited for.
    watched: [bool; 3],
    /// Once it has ended, how long its output is waited for.
    until: Time,
}

/// Our ends of its standard streams.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) input: Option<PipeWriter>,
    pub(super) out: PipeReader,
    pub(super) err: PipeReader,
}

impl Rank {
    /// A process that has been started, of a rank that was restarted so often before. It is ended
    /// again if it cannot be looked after.
    pub(super) fn new(process: Process, pipes: Pipes, restarts: u32) -> io::Result<Rank> {
        let Pipes { input, out, err } = pipes;
        let ready = process.pidfd().and_then(|pidfd| {
            ioctl_fionbio(&out, true)?;
            ioctl_fionbio(&err, true)?;
            input.as_ref().map_or(Ok(()), |fd| ioctl_fionbio(fd, true))?;
            Ok(pidfd)
        });
        let pidfd = ready.inspect_err(|_| {
            let _ = kill_process_group(process.pid, Signal::KILL);
            let _ = process.wait();
        })?;
        Ok(Rank {
            process,
            restarts,
            pidfd,
            out: Some(out),
            err: Some(err),
            input,
            unread: VecDeque::new(),
            input_ends: false,
            ended: None,
            failed: None,
            watched: [false; 3],
            until: Time::NEVER,
        })
    }

    /// How often its rank had been restarted before it.
    pub(super) fn restarts(&self) -> u32 {
        self.restarts
    }

    pub(super) fn pid(&self) -> Pid {
        self.process.pid
    }

    /// Its number, while that is its own.
    pub(super) fn running(&self) -> Option<Pid> {
        self.ended.is_none().then_some(self.process.pid)
    }

    /// It has failed for this, also if it does not notice; the first reason counts.
    pub(super) fn fail(&mut self, why: String) {
        self.failed.get_or_insert(why);
    }

    /// Sends it a signal, with what it has started, while its number is its own.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(pid) = self.running() {
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Whether its end has come, and was not seen to.
    pub(super) fn has_just_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If this is interrupted, it is said again.
        let ends = || poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&now));
        self.ended.is_none() && ends().is_ok_and(|ready| ready > 0)
    }

    /// Waits for its end, which has come; gives how it ended, and how many bytes of its input it
    /// has not taken.
    pub(super) fn wait(&mut self, now: Time) -> (Termination, u64) {
        let why = match self.process.wait() {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Termination::Exited(code),
                (None, signal) => Termination::Signalled(signal.unwrap_or_default()),
            },
            Err(error) => Termination::NotStarted(error.to_string()),
        };
        let why = match self.failed.take() {
            Some(failed) if why.is_clean() => Termination::Failed(failed),
            _ => why,
        };
        self.ended = Some(why.clone());
        self.until = now.after(DRAIN);
        self.input = None;
        (why, std::mem::take(&mut self.unread).len() as u64)
    }

    /// The engine knows better how it ended: whether it had finalized.
    pub(super) fn ended_so(&mut self, why: Termination) {
        self.ended = Some(why);
    }

    pub(super) fn ended(&self) -> Option<&Termination> {
        self.ended.as_ref()
    }

    /// Whether it has ended, and has nothing more to say.
    pub(super) fn is_done(&self, now: Time) -> bool {
        self.ended.is_some() && ((self.out.is_none() && self.err.is_none()) || now >= self.until)
    }

    /// When that is to be looked at.
    pub(super) fn deadline(&self) -> Time {
        self.until
    }

    /// What it wrote, if there is something; empty: it closed its end.
    pub(super) fn read(&mut self, error: bool) -> Option<Vec<u8>> {
        let pipe = if error { &mut self.err } else { &mut self.out };
        let mut bytes = vec![0; 64 << 10];
        match pipe.as_mut()?.read(&mut bytes) {
            Ok(len) if len > 0 => bytes.truncate(len),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return None;
            }
            _ => {
                *pipe = None;
                bytes.clear();
            }
        }
        Some(bytes)
    }

    /// More of its standard input; empty: it ends. Gives how many bytes have been taken, or go
    /// nowhere.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> u64 {
        if self.input.is_none() {
            return bytes.len() as u64;
        }
        self.input_ends |= bytes.is_empty();
        self.unread.extend(bytes);
        self.write_input()
    }

    /// Writes what it takes of its input; gives how many bytes that is, with those that go nowhere.
    pub(super) fn write_input(&mut self) -> u64 {
        let mut taken = 0;
        while let Some(input) = &mut self.input {
            let (first, _) = self.unread.as_slices();
            if first.is_empty() {
                if self.input_ends {
                    self.input = None;
                }
                break;
            }
            match input.write(first) {
                Ok(written) => {
                    self.unread.drain(..written);
                    taken += written as u64;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => {
                    taken += self.unread.len() as u64;
                    self.unread.clear();
                    self.input = None;
                }
            }
        }
        taken
    }

    /// Where it takes the input that waits for it.
    pub(super) fn takes_input(&self) -> Option<&PipeWriter> {
        self.input.as_ref().filter(|_| !self.unread.is_empty())
    }

    /// Has what is waited for of it in the set.
    pub(super) fn watch(&mut self, number: u32, takes_output: bool, set: &Watch) {
        let (number, alive) = (u64::from(number), self.ended.is_none());
        let [process, out, err] = &mut self.watched;
        set.set(process, alive, &self.pidfd, watch::RANK, number);
        if let Some(pipe) = &self.out {
            set.set(out, takes_output, pipe, watch::OUT, number);
        }
        if let Some(pipe) = &self.err {
            set.set(err, takes_output, pipe, watch::ERR, number);
        }
    }
}
