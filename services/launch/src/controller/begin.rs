//! How a job begins: its daemons come up, say what their nodes have, get ready, get files; then the
//! ranks start.

use super::{Controller, Order, Phase};
use crate::launch::Staged;
use petasos_fabric::Time;
use petasos_pmix::Node;
use std::time::Duration;

/// How long the other daemons may take to be there, and to get ready.
pub(super) const START: Duration = Duration::from_secs(60);

impl Controller {
    pub(super) fn begin(&mut self) {
        if self.hosts.len() > 1 {
            self.orders.push_back(Order::StartDaemons);
        } else {
            self.gathered();
        }
    }

    /// The daemon of another node is there. False: it is not awaited.
    pub(crate) fn daemon_arrived(&mut self, node: Node) -> bool {
        if self.phase != Phase::Gathering {
            return false;
        }
        self.arrived.insert(node);
        if self.arrived.len() == self.hosts.len() - 1 {
            self.gathered();
        }
        true
    }

    /// All daemons are there.
    fn gathered(&mut self) {
        self.arrived.insert(Node::HEAD);
        self.phase = Phase::Surveying;
        self.orders.push_back(Order::Survey);
    }

    /// The nodes were asked, and have some time to answer.
    pub(crate) fn survey_began(&mut self, now: Time) {
        if self.phase == Phase::Surveying {
            self.until = now.after(START);
        }
    }

    /// What had to be found out of the nodes is known.
    pub(crate) fn surveyed(&mut self) {
        if self.phase != Phase::Surveying {
            return;
        }
        self.phase = Phase::Preparing;
        self.orders.push_back(Order::Describe);
        self.order_all(Order::SetUp);
    }

    /// A node can start ranks, or cannot, and why.
    pub(crate) fn prepared(&mut self, now: Time, node: Node, result: Result<(), String>) {
        if let Err(why) = result {
            return self.fail(now, 1, format!("{}: {why}", self.host(node)));
        }
        if self.phase != Phase::Preparing {
            return;
        }
        self.ready.insert(node);
        if self.ready.len() < self.hosts.len() {
            return;
        }
        if !self.stages {
            return self.start(now);
        }
        self.phase = Phase::Staging;
        self.until = self.time_of_job(now);
        self.orders.push_back(Order::Stage);
        self.order_all(Order::Watch);
    }

    /// All files are where they are to be.
    pub(crate) fn staged(&mut self, now: Time, staged: Staged) {
        if self.phase == Phase::Staging {
            self.staged = Some(staged);
            self.start(now);
        }
    }

    fn start(&mut self, now: Time) {
        self.phase = Phase::Running;
        self.until = self.time_of_job(now);
        self.orders.push_back(Order::AllowRestarts(self.settings.restarts_allowed()));
        self.order_all(Order::Start);
        self.finish_if_all_ended();
    }

    fn time_of_job(&self, now: Time) -> Time {
        self.settings.timeout.map_or(Time::NEVER, |time| now.after(time))
    }
}
