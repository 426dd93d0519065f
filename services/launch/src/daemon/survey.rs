//! What is found out of the nodes before the job is described to them, if a network or the user
//! wants it: what they have, and how long messages between them take. A job that does not ask for
//! any of it does not wait.

use super::Daemon;
use super::control::Control;
use crate::{
    engine::{LINKS, links_value},
    launch::{Known, Wants},
};
use petasos_pmix::{Node, Value};

/// The most nodes whose links are in the job's data, which each node keeps.
const MOST_TOLD: usize = 1024;

impl Daemon {
    /// What is wanted: by networks, and by the user.
    fn wanted(&self) -> Wants {
        let mut wants = self.networks_want();
        wants.links |= self.head.as_ref().is_some_and(|head| head.plan.settings.measure_links);
        wants.inventory |= wants.links;
        wants
    }

    /// At the head node, when all daemons are there: has found out what is wanted. False: nothing
    /// is.
    pub(super) fn begin_survey(&mut self) -> bool {
        let wants = self.wanted();
        if !wants.inventory {
            return false;
        }
        if wants.links
            && let Some(head) = &self.head
        {
            let others = head.roster.addresses();
            for (node, _) in others.clone() {
                self.order(node, Control::Others(others.clone()));
            }
            self.learn_of(others);
        }
        self.engine.survey(self.clock.now(), wants.links);
        true
    }

    /// Where the other daemons are reached.
    pub(super) fn learn_of(&mut self, others: Vec<(Node, String)>) {
        // The way to the head node is known, by all its addresses.
        for (node, address) in others.into_iter().filter(|(node, _)| *node != Node::HEAD) {
            self.peers.found_at(node, vec![address]);
        }
    }

    /// What was found out, for networks; and what of it the ranks can read.
    pub(super) fn surveyed_nodes(&self) -> (Known, Option<(String, Value)>) {
        let wants = self.wanted();
        let mut known = Known::default();
        if wants.inventory {
            known.inventories = self.engine.inventories();
        }
        if !wants.links {
            return (known, None);
        }
        known.links = self.engine.links().clone();
        let few = known.links.len() <= MOST_TOLD;
        let told = few.then(|| (LINKS.to_owned(), links_value(&known.links)));
        (known, told)
    }
}
