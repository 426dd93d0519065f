//! What the daemon is to do, in order, and the numbers that this node gives out.

use super::{ClientId, Output, RequestId};
use crate::message::Message;
use petasos_pmix::{Error, Node, event::EventId, message::Answer};
use std::collections::VecDeque;

#[derive(Debug)]
pub(super) struct Outbox {
    me: Node,
    queue: VecDeque<Output>,
    last_number: u64,
}

impl Outbox {
    pub(super) fn new(me: Node) -> Outbox {
        Outbox { me, queue: VecDeque::new(), last_number: 0 }
    }

    pub(super) fn push(&mut self, output: Output) {
        self.queue.push_back(output);
    }

    pub(super) fn pop(&mut self) -> Option<Output> {
        self.queue.pop_front()
    }

    pub(super) fn send(&mut self, to: Node, message: Message) {
        self.push(Output::Send { to, message });
    }

    pub(super) fn answer(
        &mut self,
        client: ClientId,
        id: RequestId,
        result: Result<Answer, Error>,
    ) {
        self.push(Output::Answer { client, id, result });
    }

    /// A number that this node has not used before.
    pub(super) fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn event_id(&mut self) -> EventId {
        EventId { node: self.me, number: self.number() }
    }
}
