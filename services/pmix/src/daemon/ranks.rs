//! The processes of this node: fed, listened to, and ended with all that they started.

use super::{Daemon, child::Process, control::Control};
use crate::{Node, Termination, names::Group};
use petasos_fabric::Time;
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
const LINGER: Duration = Duration::from_millis(500);
/// Output that the head has not taken yet, of one node, in bytes.
const WINDOW: u64 = 1 << 20;

/// A process.
#[derive(Debug)]
pub(crate) struct Rank {
    process: Process,
    /// How often its rank had been started again before it.
    pub(super) restarts: u32,
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
    pub(crate) out: Option<PipeReader>,
    pub(crate) err: Option<PipeReader>,
    pub(crate) input: Option<PipeWriter>,
    pub(crate) feed: VecDeque<u8>,
    feed_ends: bool,
    pub(crate) ended: Option<Termination>,
    /// Why it has failed, also if it does not notice.
    pub(super) failed: Option<String>,
    /// Its end, its output and its errors are waited for.
    pub(crate) watched: [bool; 3],
    until: Time,
}

/// Our ends of its standard streams.
#[derive(Debug)]
pub(crate) struct Pipes {
    pub(crate) input: Option<PipeWriter>,
    pub(crate) out: PipeReader,
    pub(crate) err: PipeReader,
}

impl Rank {
    /// A process that has been started, and is ended again if it cannot be looked after.
    pub(crate) fn new(process: Process, pipes: Pipes, restarts: u32) -> io::Result<Rank> {
        let (pid, Pipes { input, out, err }) = (process.pid, pipes);
        let ready = process.pidfd().and_then(|pidfd| {
            ioctl_fionbio(&out, true)?;
            ioctl_fionbio(&err, true)?;
            input.as_ref().map_or(Ok(()), |fd| ioctl_fionbio(fd, true))?;
            Ok(pidfd)
        });
        let pidfd = ready.inspect_err(|_| {
            let _ = kill_process_group(pid, Signal::KILL);
            let _ = process.wait();
        })?;
        Ok(Rank {
            process,
            restarts,
            pid,
            pidfd,
            out: Some(out),
            err: Some(err),
            input,
            feed: VecDeque::new(),
            feed_ends: false,
            ended: None,
            failed: None,
            watched: [false; 3],
            until: Time::NEVER,
        })
    }

    /// Whether its end has come.
    fn has_ended(&self) -> bool {
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // If this is interrupted, it is said again.
        poll(&mut [PollFd::new(&self.pidfd, PollFlags::IN)], Some(&now))
            .is_ok_and(|ready| ready > 0)
    }

    /// Its number, while that is its own.
    pub(crate) fn running(&self) -> Option<Pid> {
        self.ended.is_none().then_some(self.pid)
    }

    fn is_done(&self, now: Time) -> bool {
        self.ended.is_some() && ((self.out.is_none() && self.err.is_none()) || now >= self.until)
    }
}

impl Daemon {
    /// The process has ended: ends what it started, and says so.
    pub(crate) fn rank_ended(&mut self, number: u32) {
        let now = self.clock.now();
        let Some(rank) = self.ranks.get_mut(&number).filter(|rank| rank.ended.is_none()) else {
            return;
        };
        // Perhaps it is the one before it of which the set of descriptors tells: where that has just been closed, a
        // process that is becoming its program may have it still.
        if !rank.has_ended() {
            return;
        }
        // What it said last may not have been read.
        self.read_rest_of(number);
        let Some(rank) = self.ranks.get_mut(&number) else { return };
        // It is not waited for yet, so that its number still is its own.
        let _ = kill_process_group(rank.pid, Signal::KILL);
        if let Some(guard) = &self.guard {
            guard.ended(rank.pid);
        }
        let why = match rank.process.wait() {
            Ok(status) => match (status.code(), status.signal()) {
                (Some(code), _) => Termination::Exited(code),
                (None, signal) => Termination::Signalled(signal.unwrap_or_default()),
            },
            Err(error) => Termination::NotStarted(error.to_string()),
        };
        let why = match rank.failed.take() {
            Some(failed) if why.is_clean() => Termination::Failed(failed),
            _ => why,
        };
        tracing::debug!(rank = number, %why, "a rank has ended");
        rank.ended = Some(why.clone());
        rank.until = now.after(LINGER);
        rank.input = None;
        let (restarts, unread) = (rank.restarts, rank.feed.len() as u64);
        rank.feed.clear();
        if unread > 0 {
            self.report(Control::InputTaken(unread));
        }
        self.explain_end(number, &why);
        if let Some(job) = &self.job {
            let why = self.engine.proc_ended(now, job.proc(number), restarts, why);
            if let Some(rank) = self.ranks.get_mut(&number) {
                rank.ended = Some(why);
            }
        }
        self.close_clients_of(number);
        self.settle_rank(number, now);
    }

    /// Reports a process if it has ended and has nothing more to say.
    fn settle_rank(&mut self, number: u32, now: Time) {
        if self.ranks.get(&number).is_none_or(|rank| !rank.is_done(now)) {
            return;
        }
        let over = self.ranks.remove(&number).map(|rank| (rank.restarts, rank.ended));
        if let Some((restarts, Some(why))) = over {
            self.report_end(number, restarts, why);
        }
        self.begin_again(number);
    }

    /// Reports processes that have ended and have nothing more to say.
    pub(crate) fn settle_ranks(&mut self, now: Time) {
        let done: Vec<u32> =
            self.ranks.iter().filter(|(_, r)| r.is_done(now)).map(|(n, _)| *n).collect();
        for number in done {
            self.settle_rank(number, now);
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
                self.settle_rank(number, self.clock.now());
            }
        }
    }

    /// Standard input for rank 0; empty: it ends.
    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.input_ended |= bytes.is_empty();
        if self.node_of_rank(0) != Some(self.me) {
            // Its node is lost, and this is the one that takes its place.
            self.early_input.extend(bytes);
            return;
        }
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
            let _ = kill_process_group(rank.pid, signal);
        }
    }

    /// Sends a signal to those of these processes that are on this node, and to what they have started.
    pub(crate) fn signal_some(&self, group: &Group, number: i32) {
        let Some((job, signal)) = self.job.as_ref().zip(Signal::from_named_raw(number)) else {
            return;
        };
        let named = self.ranks.iter().filter(|(number, _)| group.contains(job.proc(**number)));
        for pid in named.filter_map(|(_, rank)| rank.running()) {
            let _ = kill_process_group(pid, signal);
        }
    }

    /// Ends all processes of this node, at once and for good.
    pub(crate) fn kill_ranks(&mut self) {
        self.again.clear();
        self.signal_ranks(Signal::KILL.as_raw());
        for rank in self.ranks.values_mut().filter(|rank| rank.ended.is_none()) {
            if let Some(guard) = &self.guard {
                guard.ended(rank.pid);
            }
            let _ = rank.process.wait();
        }
        self.ranks.clear();
    }

    /// Where a rank runs.
    pub(crate) fn node_of_rank(&self, rank: u32) -> Option<Node> {
        self.job.as_ref()?.node_of(rank)
    }
}
