//! Messages that came before the word of a replacement that they follow: they wait for it.
//!
//! That word is on its way over the tree of all nodes, so they wait for a moment, and few come meanwhile. Nobody can
//! have so much under way that what is here is not enough; so whoever sends more is not waited with for ever: a question
//! is answered with an error, and for the rest, which nobody can answer, the node that sends it is cut off, as one is whose
//! messages make no sense. So all that wait for it hear of that.

use super::{Engine, Output, requests::limit};
use crate::{error::Error, message::Message, names::Node};
use petasos_wire::{Encoding, to_vec};
use std::collections::BTreeMap;

/// Messages of one node that wait at a time.
const MAX_HELD: usize = 1 << 14;
/// Bytes of them: the cards of one fence, whatever it may spread, and as much again as one process may have.
const MAX_BYTES: usize = 192 << 20;
const WHAT: &str = "messages that follow a replacement of which this node has not heard";
const BYTES: &str = "bytes of messages that follow a replacement of which this node has not heard";

/// What waits, by the node that sent it.
#[derive(Debug, Default)]
pub(super) struct Held(BTreeMap<Node, Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    messages: Vec<Message>,
    /// As they came.
    bytes: usize,
}

impl Engine {
    /// Whether a message has to wait, since who sent it knew of more replacements than this node does.
    pub(super) fn held(&mut self, from: Node, message: &Message) -> bool {
        let (Message::Fence { replaced: known, .. } | Message::CardAsk { replaced: known, .. }) =
            message
        else {
            return false;
        };
        let (nodes, _) = self.members.shape();
        if *known <= self.replaced.count() {
            return false;
        }
        let waiting = self.held.0.entry(from).or_default();
        let bytes = waiting.bytes + to_vec(Encoding::Native, message).len();
        let error = if *known > nodes {
            Error::Misuse(format!("{known} replacements are more than the {nodes} nodes"))
        } else if waiting.messages.len() >= MAX_HELD {
            limit(WHAT, MAX_HELD + 1, MAX_HELD)
        } else if bytes > MAX_BYTES {
            limit(BYTES, bytes, MAX_BYTES)
        } else {
            waiting.messages.push(message.clone());
            waiting.bytes = bytes;
            return true;
        };
        match message {
            Message::CardAsk { id, .. } => {
                self.send(from, Message::CardAnswer { id: *id, result: Err(error) });
            }
            _ => self.cut_off(from, &error),
        }
        true
    }

    /// A node does what it may not: nothing of it is taken any more.
    pub(super) fn cut_off(&mut self, node: Node, error: &Error) {
        self.out.push_back(Output::CutOff { node, why: error.to_string() });
        self.nodes_lost(&[node], None);
    }

    /// A node is lost, and nothing of it is taken any more.
    pub(super) fn held_without(&mut self, node: Node) {
        self.held.0.remove(&node);
    }

    /// There was a replacement: those that wait for a later one wait again.
    pub(super) fn release_held(&mut self) {
        for (from, waiting) in std::mem::take(&mut self.held.0) {
            waiting.messages.into_iter().for_each(|message| self.take(from, message));
        }
    }
}
