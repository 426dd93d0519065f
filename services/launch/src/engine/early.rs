//! Messages that were sent after a replacement of which this node has not heard: they wait for it.
//!
//! The news of the replacement is on its way over the tree of all nodes, so they wait for a moment,
//! and few come meanwhile. No node can have so much under way that the limits here are reached. A
//! node that exceeds them is not waited for: a question is answered with an error. For other
//! messages, which have no answer, the node is cut off, like one whose messages make no sense. So
//! whatever waits for it ends.

use super::{Engine, Output, limits::limit};
use crate::message::Message;
use petasos_pmix::{Error, Node};
use petasos_wire::{Encoding, to_vec};
use std::collections::BTreeMap;

/// Messages of one node that wait at a time.
const MAX_MESSAGES: usize = 1 << 14;
/// Bytes of them: the business cards of one fence, whatever it may spread, and as much again as one
/// process may have.
const MAX_BYTES: usize = 192 << 20;
const MESSAGES: &str = "messages that follow a replacement of which this node has not heard";
const BYTES: &str = "bytes of messages that follow a replacement of which this node has not heard";

/// The messages that wait, by the node that sent them.
#[derive(Debug, Default)]
pub(super) struct EarlyMessages(BTreeMap<Node, Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    messages: Vec<Message>,
    /// How many bytes they had on the wire.
    bytes: usize,
}

impl EarlyMessages {
    /// Keeps a message, within the limits of its sender.
    fn add(&mut self, from: Node, message: &Message) -> Result<(), Error> {
        let waiting = self.0.entry(from).or_default();
        let bytes = waiting.bytes + to_vec(Encoding::Native, message).len();
        if waiting.messages.len() >= MAX_MESSAGES {
            return Err(limit(MESSAGES, MAX_MESSAGES + 1, MAX_MESSAGES));
        }
        if bytes > MAX_BYTES {
            return Err(limit(BYTES, bytes, MAX_BYTES));
        }
        waiting.messages.push(message.clone());
        waiting.bytes = bytes;
        Ok(())
    }

    /// A node is lost, and its messages are no longer taken.
    pub(super) fn forget(&mut self, node: Node) {
        self.0.remove(&node);
    }
}

impl Engine {
    /// Whether a message is early, since its sender knew of more replacements than this node does.
    /// Then it is kept or refused.
    pub(super) fn is_early(&mut self, from: Node, message: &Message) -> bool {
        let (Message::Fence { replaced: known, .. }
        | Message::BusinessCardRequest { replaced: known, .. }) = message
        else {
            return false;
        };
        if *known <= self.replacements.count() {
            return false;
        }
        let nodes = self.members.count();
        let kept = match *known > nodes {
            true => {
                let why = format!("{known} replacements are more than the {nodes} nodes");
                Err(Error::Misuse(why))
            }
            false => self.early.add(from, message),
        };
        match (kept, message) {
            (Ok(()), _) => {}
            (Err(error), Message::BusinessCardRequest { id, .. }) => {
                self.send(from, Message::BusinessCardAnswer { id: *id, result: Err(error) });
            }
            (Err(error), _) => self.cut_off(from, &error),
        }
        true
    }

    /// A node violated the protocol: it counts as lost, and its messages are no longer taken.
    pub(super) fn cut_off(&mut self, node: Node, error: &Error) {
        self.out.push(Output::CutOff { node, why: error.to_string() });
        self.nodes_lost(&[node], None);
    }

    /// There was a replacement: takes the messages that waited. Those that follow a later one wait
    /// again.
    pub(super) fn release_early(&mut self) {
        for (from, waiting) in std::mem::take(&mut self.early.0) {
            waiting.messages.into_iter().for_each(|message| self.take(from, message));
        }
    }
}
