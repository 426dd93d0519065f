//! Control messages to a peer that wait to be sent.

use crate::frame::Control;
use std::collections::VecDeque;

/// The messages that are to be sent, in this order.
#[derive(Debug, Default)]
pub(crate) struct Controls {
    /// The greeting, before all else.
    greeting: bool,
    queue: VecDeque<Control>,
    /// The peer is to be told how much was sent before we rang for it.
    rung: bool,
    ring: bool,
    /// The peer is in the list of those with messages to be sent.
    listed: bool,
}

impl Controls {
    pub(crate) fn add_greeting(&mut self) {
        self.greeting = true;
    }

    /// Adds a message. Returns how many wait.
    pub(crate) fn add(&mut self, message: Control) -> usize {
        self.queue.push_back(message);
        self.queue.len()
    }

    /// The peer is to be told how much was sent before we rang for it.
    pub(crate) fn add_rung(&mut self) {
        self.rung = true;
    }

    pub(crate) fn set_ring(&mut self, ring: bool) {
        self.ring = ring;
    }

    /// The peer comes into the list of those with messages. False if it was there.
    pub(crate) fn enter_list(&mut self) -> bool {
        !std::mem::replace(&mut self.listed, true)
    }

    pub(crate) fn leave_list(&mut self) {
        self.listed = false;
    }

    /// Sends what can be sent now: `send` says whether there was room. `rung` is the message of how
    /// much was sent, once that is known. True if nothing is left.
    pub(crate) fn send(
        &mut self,
        greeting: impl FnOnce() -> Control,
        rung: Option<Control>,
        mut send: impl FnMut(&Control) -> bool,
    ) -> bool {
        if self.greeting {
            self.greeting = !send(&greeting());
        }
        while !self.greeting
            && let Some(message) = self.queue.pop_front()
        {
            if !send(&message) {
                self.queue.push_front(message);
                break;
            }
        }
        if let Some(rung) = rung.filter(|_| self.rung) {
            self.rung = !send(&rung);
        }
        if self.ring {
            self.ring = !send(&Control::Ring);
        }
        !(self.greeting || self.rung || self.ring) && self.queue.is_empty()
    }
}
