//! How a job ends: because all ranks have ended, for a failure, by a signal, or because its time is
//! over.

use super::{Controller, Order, Phase, Unwritten, begin::START};
use crate::{daemon::parent, launch::Outcome};
use nix::sys::signal::Signal;
use petasos_fabric::Time;
use petasos_pmix::Node;
use std::{collections::BTreeSet, time::Duration};

/// How long ranks get to end by themselves once the job is to end, and daemons to say that they
/// have.
pub(super) const GRACE: Duration = Duration::from_secs(3);
/// The exit code of a job whose time is over.
const TIMED_OUT: i32 = 124;
/// The most ranks that are named where the time is over.
const MAX_NAMED: usize = 16;
const SIGTERM: i32 = Signal::SIGTERM as i32;
const SIGKILL: i32 = Signal::SIGKILL as i32;

impl Controller {
    /// The job is to end, for this reason; the first one counts.
    pub(crate) fn fail(&mut self, now: Time, code: i32, why: String) {
        if self.phase != Phase::Finished {
            self.failures.end_job(code, why);
            self.end(now, SIGTERM);
        }
    }

    /// The ranks are asked to end by this signal, if there are any.
    fn end(&mut self, now: Time, signal: i32) {
        match self.phase {
            Phase::Ending | Phase::Finished => {}
            Phase::Running => {
                self.phase = Phase::Ending;
                self.until = now.after(GRACE);
                self.orders.push_back(Order::AllowRestarts(None));
                self.signal_ranks(signal);
                self.finish_if_all_ended();
            }
            _ => {
                // What was to be done next is of no use any more.
                self.orders.clear();
                self.orders.push_back(Order::StopStaging);
                self.finish();
            }
        }
    }

    /// Sends a signal to all ranks, if they were started.
    fn signal_ranks(&mut self, signal: i32) {
        if matches!(self.phase, Phase::Running | Phase::Ending) {
            self.order_all(|node| Order::Signal(node, signal));
        }
    }

    pub(super) fn finish_if_all_ended(&mut self) {
        let started = matches!(self.phase, Phase::Running | Phase::Ending);
        if started && self.ranks.all_have_ended() {
            self.finish();
        }
    }

    fn finish(&mut self) {
        self.phase = Phase::Finished;
        self.until = Time::NEVER;
        let arrived = self.arrived.iter().filter(|node| **node != Node::HEAD);
        let living = arrived.filter(|node| !self.ranks.is_lost(**node));
        self.orders.extend(living.map(|node| Order::Release(*node)));
        self.orders.push_back(Order::Finish);
    }

    /// This process got a signal.
    pub(crate) fn signal(&mut self, now: Time, signal: i32) {
        if [Signal::SIGUSR1 as i32, Signal::SIGUSR2 as i32].contains(&signal) {
            return self.signal_ranks(signal);
        }
        if self.phase == Phase::Finished {
            return;
        }
        if signal == Signal::SIGTSTP as i32 {
            // Ranks cannot be asked to stop by themselves: without a terminal of their own the
            // system would not do it.
            self.signal_ranks(Signal::SIGSTOP as i32);
            return self.orders.push_back(Order::Pause);
        }
        if std::mem::replace(&mut self.interrupted, true) {
            return self.signal_ranks(SIGKILL);
        }
        let name = Signal::try_from(signal).map_or("a signal", Signal::as_str);
        self.failures.end_job(128 + signal, format!("interrupted by {name}"));
        self.end(now, signal);
    }

    /// This process was stopped for so long: the time of the job stood still as well.
    pub(crate) fn resumed(&mut self, stopped: Duration) {
        if self.phase != Phase::Finished {
            self.until = self.until.after(stopped);
        }
        self.signal_ranks(Signal::SIGCONT as i32);
    }

    /// It is this time now.
    pub(crate) fn time(&mut self, now: Time) {
        if now < self.until {
            return;
        }
        match self.phase {
            Phase::Gathering => {
                // Others that are missing are so because of these.
                let is_first = |node: &Node| {
                    let by = parent(*node, self.settings.fan_out);
                    by == Node::HEAD || self.arrived.contains(&by)
                };
                let text = self.names(self.others_not_in(&self.arrived).filter(is_first));
                let late = self.hosts.len() - 1 - self.arrived.len();
                let all =
                    if late > 1 { format!(" ({late} are missing in all)") } else { String::new() };
                self.fail(now, 1, format!("{text}: no daemon came up within {START:?}{all}"));
            }
            Phase::Surveying => {
                let text = format!("the nodes have not said what they have within {START:?}");
                self.fail(now, 1, text);
            }
            Phase::Preparing => {
                let text = self.names(self.others_not_in(&self.ready));
                self.fail(now, 1, format!("{text}: not ready within {START:?}"));
            }
            Phase::Staging => {
                let time = self.settings.timeout.unwrap_or_default();
                let text = format!("the files were not on all nodes within {time:?}");
                self.fail(now, TIMED_OUT, text);
            }
            Phase::Running => {
                let time = self.settings.timeout.unwrap_or_default();
                let left = self.ranks.running().take(MAX_NAMED).map(|rank| rank.to_string());
                let left = left.collect::<Vec<_>>().join(", ");
                let text = format!("the time of {time:?} is over; running: rank {left}");
                self.fail(now, TIMED_OUT, text);
            }
            Phase::Ending => {
                self.until = now.after(GRACE);
                match std::mem::replace(&mut self.killed, true) {
                    true => self.give_up_daemons(),
                    false => self.signal_ranks(SIGKILL),
                }
            }
            Phase::Finished => {}
        }
    }

    fn others_not_in(&self, those: &BTreeSet<Node>) -> impl Iterator<Item = Node> {
        self.nodes().skip(1).filter(|node| !those.contains(node))
    }

    fn names(&self, nodes: impl Iterator<Item = Node>) -> String {
        nodes.map(|node| self.host(node)).collect::<Vec<_>>().join(", ")
    }

    /// The ranks of some nodes were to be ended, and the daemons have not said that they are: these
    /// are stopped, or stand still.
    fn give_up_daemons(&mut self) {
        let nodes = self.ranks.nodes_running().into_iter();
        let others = nodes.filter(|node| *node != Node::HEAD && !self.ranks.is_lost(*node));
        let why = "the daemon there does not end its processes";
        self.orders.extend(others.map(|node| Order::GiveUp(node, why)).collect::<Vec<_>>());
    }

    /// How the job ended, after [`Order::Finish`]. `unwritten`: output that could not be written in
    /// the end.
    pub(crate) fn outcome(mut self, unwritten: Option<Unwritten>) -> Outcome {
        unwritten.into_iter().for_each(|lost| self.failures.lose_output(lost));
        let named = |node: Node| self.host(node).to_owned();
        let verdict = self.failures.verdict(self.settings.keep_going);
        let (code, why) = verdict.map_or((0, None), |(code, why)| (code, Some(why)));
        let ends = self.ranks.ends().iter();
        let replaced = self.ranks.replacements();
        Outcome {
            code,
            why,
            unread: self.failures.unread(),
            output_lost: self.failures.output_lost(),
            ranks: ends.map(|(rank, (on, why))| (*rank, (named(*on), why.clone()))).collect(),
            restarts: self.ranks.restarts().clone(),
            replaced: replaced
                .map(|(node, why, by)| (named(node), why.to_owned(), named(by)))
                .collect(),
            staged: self.staged,
        }
    }
}
