//! The ranks of this node: the processes that they are now, those that they will be, and what goes
//! in and out of them.

use super::{Daemon, control::Control, guards::Guards, rank::Rank, watch::Watch};
use petasos_fabric::Time;
use petasos_pmix::{Group, Node};
use rustix::process::{Pid, Signal};
use std::{collections::BTreeMap, io::PipeWriter};

/// Output that the head node has not taken yet, of one node, in bytes.
const WINDOW: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct LocalRanks {
    /// Their processes, until all that one wrote was read.
    all: BTreeMap<u32, Rank>,
    /// Ranks that are to be restarted, once nothing is left of the process before: for the how
    /// manieth time.
    again: BTreeMap<u32, u32>,
    /// The process that each rank is, or was when it finalized.
    clients: BTreeMap<u32, Pid>,
    /// Bytes of output that the head node has not taken.
    untaken: u64,
    /// The rank that standard input goes to.
    reader: Option<u32>,
    /// Its input has ended.
    input_ended: bool,
    /// What of it came before it was heard that this rank is here now.
    early_input: Vec<u8>,
    /// The processors for ranks, in turn, if each keeps to one.
    cores: Vec<u32>,
}

impl LocalRanks {
    /// The rank that standard input goes to.
    pub(super) fn set_reader(&mut self, reader: Option<u32>) {
        self.reader = reader;
    }

    /// Whether standard input goes to this rank.
    pub(super) fn reads_input(&self, number: u32) -> bool {
        self.reader == Some(number)
    }

    /// A rank has begun.
    pub(super) fn insert(&mut self, number: u32, rank: Rank) {
        self.all.insert(number, rank);
    }

    pub(super) fn get(&self, number: u32) -> Option<&Rank> {
        self.all.get(&number)
    }

    fn get_mut(&mut self, number: u32) -> Option<&mut Rank> {
        self.all.get_mut(&number)
    }

    /// The process of a rank, while its number is its own.
    pub(super) fn running(&self, number: u32) -> Option<Pid> {
        self.get(number).and_then(Rank::running)
    }

    /// The processors for ranks, in turn, if each keeps to one.
    pub(super) fn cores(&self) -> &[u32] {
        &self.cores
    }

    pub(super) fn keep_to(&mut self, cores: &[u32]) {
        self.cores = cores.to_vec();
    }

    /// All processes that run.
    pub(super) fn all_running(&self) -> impl Iterator<Item = Pid> {
        self.all.values().filter_map(Rank::running)
    }

    /// A rank has failed for this, also if it does not notice.
    pub(super) fn fail(&mut self, number: u32, why: String) {
        self.all.get_mut(&number).into_iter().for_each(|rank| rank.fail(why.clone()));
    }

    /// A rank is to be restarted, for the how manieth time, once nothing is left of the process
    /// before; that is ended, if it is there. Says whether nothing is left of it now.
    pub(super) fn restart(&mut self, number: u32, restarts: u32) -> bool {
        self.again.insert(number, restarts);
        // It closed its connection, and may still be there; or the last that it wrote is still on
        // its way.
        self.get(number).is_none_or(|rank| {
            rank.signal(Signal::KILL);
            false
        })
    }

    /// Whether a rank is to be restarted now, and for the how manieth time.
    pub(super) fn take_restart(&mut self, number: u32) -> Option<u32> {
        let restarts = self.again.remove(&number)?;
        self.clients.remove(&number);
        Some(restarts)
    }

    /// Whether a process has been this rank.
    pub(super) fn was_a_client(&self, number: u32) -> bool {
        self.clients.contains_key(&number)
    }

    /// This process says that it is a rank. Says whether that has been so before.
    pub(super) fn connects(&mut self, number: u32, process: Pid) -> bool {
        *self.clients.entry(number).or_insert(process) == process
    }

    /// This process has finalized as a rank.
    pub(super) fn finalizes(&mut self, number: u32, process: Pid) {
        self.clients.insert(number, process);
    }

    /// Sends a signal to all, and to what they have started.
    pub(super) fn signal(&self, signal: Signal) {
        self.all.values().for_each(|rank| rank.signal(signal));
    }

    /// Ends all, at once and for good.
    fn kill(&mut self, now: Time, guards: &Guards) {
        self.again.clear();
        self.signal(Signal::KILL);
        for rank in self.all.values_mut().filter(|rank| rank.ended().is_none()) {
            guards.process_ended(rank.pid());
            rank.wait(now);
        }
        self.all.clear();
    }

    /// Those that have ended and have nothing more to say.
    fn done(&self, now: Time) -> Vec<u32> {
        self.all.iter().filter(|(_, rank)| rank.is_done(now)).map(|(number, _)| *number).collect()
    }

    /// When there may be more of them.
    pub(super) fn deadline(&self) -> Time {
        self.all.values().map(Rank::deadline).min().unwrap_or(Time::NEVER)
    }

    /// The head node has taken so many bytes of output.
    pub(super) fn output_taken(&mut self, bytes: u64) {
        self.untaken = self.untaken.saturating_sub(bytes);
    }

    /// Where the rank that reads input takes what waits for it.
    pub(super) fn takes_input(&self) -> Option<&PipeWriter> {
        self.get(self.reader?).and_then(Rank::takes_input)
    }

    /// More input for that rank; empty: it ends. Where it is not here so far, its node is lost, and
    /// this is the one that takes its place. Gives how many bytes have been taken, or go nowhere.
    fn feed(&mut self, bytes: &[u8], is_here: bool) -> u64 {
        self.input_ended |= bytes.is_empty();
        if !is_here {
            self.early_input.extend(bytes);
            return 0;
        }
        match self.reader.and_then(|reader| self.get_mut(reader)) {
            Some(rank) => rank.feed(bytes),
            None => bytes.len() as u64,
        }
    }

    /// The rank that reads input has begun here again: gives it what came before.
    fn feed_again(&mut self) -> u64 {
        let early = std::mem::take(&mut self.early_input);
        let mut taken = if early.is_empty() { 0 } else { self.feed(&early, true) };
        if self.input_ended {
            taken += self.feed(&[], true);
        }
        taken
    }

    /// Has what is waited for of all in the set.
    pub(super) fn watch(&mut self, takes_output: bool, set: &Watch) {
        for (number, rank) in &mut self.all {
            rank.watch(*number, takes_output, set);
        }
    }
}

impl Daemon {
    /// The process of a rank has ended: ends what it started, and says so.
    pub(super) fn rank_ended(&mut self, number: u32) {
        let now = self.clock.now();
        // Perhaps it is the one before it of which the set of descriptors tells: where that has
        // just been closed, a process that is becoming its program may have it still.
        if !self.ranks.get(number).is_some_and(Rank::has_just_ended) {
            return;
        }
        // What it said last may not have been read.
        self.read_rest_of(number);
        let Some(rank) = self.ranks.get_mut(number) else { return };
        // It is not waited for yet, so that its number still is its own.
        rank.signal(Signal::KILL);
        self.guards.process_ended(rank.pid());
        let (why, unread) = rank.wait(now);
        let restarts = rank.restarts();
        tracing::debug!(rank = number, %why, "a rank has ended");
        self.input_taken(unread);
        self.explain_end(number, &why);
        if let Some(job) = &self.job {
            let why = self.engine.proc_ended(now, job.proc(number), restarts, why);
            if let Some(rank) = self.ranks.get_mut(number) {
                rank.ended_so(why);
            }
        }
        self.close_clients_of(number);
        self.settle_rank(number, now);
    }

    /// Reports a process if it has ended and has nothing more to say.
    fn settle_rank(&mut self, number: u32, now: Time) {
        if self.ranks.get(number).is_none_or(|rank| !rank.is_done(now)) {
            return;
        }
        if let Some(rank) = self.ranks.all.remove(&number)
            && let Some(why) = rank.ended()
        {
            self.report_end(number, rank.restarts(), why.clone());
        }
        self.begin_again(number);
    }

    /// Reports processes that have ended and have nothing more to say.
    pub(super) fn settle_ranks(&mut self, now: Time) {
        for number in self.ranks.done(now) {
            self.settle_rank(number, now);
        }
    }

    /// Whether output can be taken from the processes now.
    pub(super) fn takes_output(&self) -> bool {
        match &self.head {
            Some(head) => head.printer.has_room(),
            None => self.ranks.untaken < WINDOW,
        }
    }

    /// A process wrote something, or closed its end.
    pub(super) fn read_output(&mut self, number: u32, error: bool) {
        let Some(bytes) = self.ranks.get_mut(number).and_then(|rank| rank.read(error)) else {
            return;
        };
        if bytes.is_empty() {
            return self.settle_rank(number, self.clock.now());
        }
        self.ranks.untaken += bytes.len() as u64;
        self.report(Control::Output { rank: number, error, bytes });
    }

    /// Standard input for the rank that reads it; empty: it ends.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        let node = self.ranks.reader.and_then(|reader| self.node_of_rank(reader));
        let is_here = node == Some(self.me);
        let taken = self.ranks.feed(bytes, is_here);
        self.input_taken(taken);
    }

    /// The rank that reads input has begun here again.
    pub(super) fn feed_again(&mut self) {
        let taken = self.ranks.feed_again();
        self.input_taken(taken);
    }

    /// Writes what the rank that reads input takes.
    pub(super) fn write_input(&mut self) {
        let Some(reader) = self.ranks.reader else { return };
        let taken = self.ranks.get_mut(reader).map_or(0, Rank::write_input);
        self.input_taken(taken);
    }

    fn input_taken(&mut self, bytes: u64) {
        if bytes > 0 {
            self.report(Control::InputTaken(bytes));
        }
    }

    /// Sends a signal to all processes of this node, and to what they have started.
    pub(super) fn signal_ranks(&self, number: i32) {
        Signal::from_named_raw(number).into_iter().for_each(|signal| self.ranks.signal(signal));
    }

    /// Sends a signal to those of these processes that are on this node, and to what they have
    /// started.
    pub(super) fn signal_some(&self, group: &Group, number: i32) {
        let Some((job, signal)) = self.job.as_ref().zip(Signal::from_named_raw(number)) else {
            return;
        };
        let all = self.ranks.all.iter();
        let named = all.filter(|(number, _)| group.contains(job.proc(**number)));
        named.for_each(|(_, rank)| rank.signal(signal));
    }

    /// Ends all processes of this node, at once and for good.
    pub(super) fn kill_ranks(&mut self) {
        self.ranks.kill(self.clock.now(), &self.guards);
    }

    /// Where a rank runs.
    pub(super) fn node_of_rank(&self, rank: u32) -> Option<Node> {
        self.job.as_ref()?.node_of(rank)
    }
}
