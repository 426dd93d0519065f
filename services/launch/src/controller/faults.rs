//! What befalls ranks and nodes while the job runs, and what of that ends the job.

use super::{Controller, Order, Phase, Unwritten};
use petasos_fabric::Time;
use petasos_pmix::{JobId, Missing, Node, Proc, Termination};
use std::path::PathBuf;

/// The exit code of a job with a rank that could not be started, as in a shell.
const NOT_STARTED: i32 = 127;

/// A node that is lost, and what the daemon of the head node can tell of that.
#[derive(Clone, Debug)]
pub(crate) struct Loss {
    pub(crate) node: Node,
    pub(crate) why: String,
    /// Before the ranks start: a node whose daemon has started this one's, perhaps by way of
    /// others, and has ended.
    pub(crate) ended_above: Option<Node>,
    /// The file that was on its way there.
    pub(crate) file: Option<PathBuf>,
    /// Why the engine does not replace the node.
    pub(crate) not_replaced: Option<String>,
}

impl Controller {
    /// The process of a rank, which was restarted so often before, has ended. Where the engine
    /// restarts it, that is to be told before this.
    pub(crate) fn rank_ended(
        &mut self,
        now: Time,
        on: Node,
        rank: u32,
        restarts: u32,
        why: Termination,
    ) {
        let Some(before) = self.ranks.end(rank, restarts, on, why.clone()) else { return };
        let code = match &why {
            Termination::Exited(code) => *code,
            Termination::Signalled(signal) => 128 + signal,
            Termination::NotStarted(_) => NOT_STARTED,
            _ => 1,
        };
        if code != 0 && !self.failures.end_the_job() {
            let host = self.host(on);
            let text = match before {
                0 => format!("rank {rank} on {host}: {why}"),
                1 => format!("rank {rank} on {host}: {why}, after it was restarted once"),
                n => format!("rank {rank} on {host}: {why}, after it was restarted {n} times"),
            };
            self.ranks_failed(now, vec![rank], code, text);
        }
        self.finish_if_all_ended();
    }

    /// These ranks failed together.
    fn ranks_failed(&mut self, now: Time, ranks: Vec<u32>, code: i32, why: String) {
        match self.settings.keep_going {
            true => self.failures.tolerate(ranks, code, why),
            false => self.fail(now, code, why),
        }
    }

    /// The engine has a rank restarted, for the how manieth time: it has not ended, and not failed.
    pub(crate) fn restarted(&mut self, rank: u32, restarts: u32) {
        self.ranks.restart(rank, restarts);
        self.failures.forgive(rank);
    }

    /// The engine has a node replaced by a spare one. The ranks that are restarted there are told
    /// of after this.
    pub(crate) fn replaced(&mut self, node: Node, by: Node) {
        self.ranks.replace(node, by);
    }

    /// A node is lost: no order goes there from now on. False: that was known. Where it may be
    /// replaced ([`Controller::is_running`]), the engine decides that next; then
    /// [`Controller::node_lost`] is to be called.
    pub(crate) fn loss_heard(&mut self, node: Node, why: &str) -> bool {
        self.orders.retain(|order| order.node() != Some(node));
        self.ranks.lose(node, why)
    }

    /// A node is lost, and its ranks with it, unless they were restarted elsewhere.
    pub(crate) fn node_lost(&mut self, now: Time, loss: Loss) {
        let Loss { node, why, ended_above, file, not_replaced } = loss;
        let name = self.host(node);
        match self.phase {
            Phase::Gathering | Phase::Surveying | Phase::Preparing => {
                let (name, why) = match ended_above {
                    Some(first) => (self.host(first), "it has ended"),
                    None => (name, &*why),
                };
                return self.fail(now, 1, format!("{name}: the daemon there is lost: {why}"));
            }
            Phase::Staging => {
                let file = file.map_or_else(String::new, |file| format!("{}: ", file.display()));
                let text = format!("{name}: {file}the daemon there is lost: {why}");
                return self.fail(now, 1, text);
            }
            Phase::Running | Phase::Ending => {}
            Phase::Finished => return,
        }
        if self.is_spare(node) {
            // It is not needed yet.
            let text = format!("the spare host {name} is lost: {why}");
            return self.orders.push_back(Order::Say(text));
        }
        let name = name.to_owned();
        let lost = self.ranks.end_all_on(node);
        if !lost.is_empty() {
            let ranks: Vec<String> = lost.iter().map(u32::to_string).collect();
            let mut text = format!("{name} is lost ({why}), and with it rank {}", ranks.join(", "));
            // Where spares are used without a request, it is said why none was.
            if let Some(why) = not_replaced.filter(|_| self.replaces_by_itself()) {
                text = format!("{text}; {why}");
            }
            self.ranks_failed(now, lost, 1, text);
        }
        self.finish_if_all_ended();
    }

    /// Whether nodes that are lost are replaced without a request.
    fn replaces_by_itself(&self) -> bool {
        self.settings.spares > 0 && self.settings.restart_failed
    }

    /// Whether a node was kept as a spare, and has not been needed so far.
    fn is_spare(&self, node: Node) -> bool {
        let first = self.hosts.len().saturating_sub(self.settings.spares as usize).max(1);
        (first..self.hosts.len()).contains(&(node.0 as usize)) && !self.ranks.has_replaced(node)
    }

    /// The daemon of a node could not be started by that of another, or its start command has
    /// ended. It is not there, and will not be.
    pub(crate) fn daemon_not_started(&mut self, now: Time, by: Node, node: Node, why: &str) {
        if self.phase != Phase::Gathering {
            return;
        }
        let by = match by {
            Node::HEAD => String::new(),
            by => format!(" (by the one on {})", self.host(by)),
        };
        let what = match self.arrived.contains(&node) {
            true => "the daemon there has ended",
            false => "no daemon was started there",
        };
        self.fail(now, 1, format!("{}: {what}{by}: {why}", self.host(node)));
    }

    /// A process wants the job to end.
    pub(crate) fn aborted(&mut self, now: Time, by: Proc, status: i32, message: &str) {
        let by = match by.rank {
            rank if by.job == JobId(0) => format!("rank {rank} on {}", self.host_of(rank)),
            _ => by.to_string(),
        };
        let code = if status & 0xff == 0 { 1 } else { status & 0xff };
        self.fail(now, code, format!("{by} aborted the job: {message}"));
    }

    /// These processes never connected, though others have.
    pub(crate) fn never_connected(&mut self, now: Time, missing: &Missing) {
        let named = missing.procs.iter();
        let named = named.map(|proc| format!("rank {} on {}", proc.rank, self.host_of(proc.rank)));
        let named: Vec<String> = named.collect();
        let more = match missing.more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("{}{more} never connected, though others have", named.join(", "));
        self.fail(now, 1, text);
    }

    /// Output could not be written: the job ends, for what else it would write is lost as well,
    /// unless it was told to go on.
    pub(crate) fn output_unwritten(&mut self, now: Time, lost: Unwritten) {
        if !self.settings.keep_going {
            self.fail(now, lost.code(), lost.to_string());
        }
        self.failures.lose_output(lost);
    }
}
