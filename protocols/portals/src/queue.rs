//! The event queues of an interface: bounded, with room set aside for events that must not be lost.

use crate::event::Event;
use std::collections::VecDeque;

/// An event that was taken from a queue.
#[derive(Clone, Debug)]
pub struct Taken {
    /// The event.
    pub event: Event,
    /// How many events were overwritten before it, since the last one was taken.
    pub lost: u64,
    /// Its number among all events of the queue, from 1 on.
    pub sequence: u64,
}

/// The events of an [`EventQueue`](crate::EventQueue).
#[derive(Debug)]
pub(crate) struct Queue {
    events: VecDeque<Event>,
    capacity: usize,
    /// Slots for events that are sure to come.
    reserved: usize,
    /// Slots for the event that a portal with flow control was disabled: one for each of those.
    flow_control: usize,
    lost: u64,
    /// How many events there were.
    sequence: u64,
    /// The number of the poll of several queues that last took an event.
    pub(crate) polled: u64,
    /// Whether threads without the lock are told that it may have an event.
    pub(crate) shown: bool,
}

impl Queue {
    pub(crate) fn new(capacity: usize) -> Queue {
        let events = VecDeque::with_capacity(capacity.min(1024));
        Queue {
            events,
            capacity,
            reserved: 0,
            flow_control: 0,
            lost: 0,
            sequence: 0,
            polled: 0,
            shown: false,
        }
    }

    /// Sets a slot aside for a portal with flow control; false if then none would be left for other
    /// events.
    pub(crate) fn add_flow_control(&mut self) -> bool {
        let possible = self.flow_control + 1 < self.capacity;
        self.flow_control += usize::from(possible);
        possible
    }

    pub(crate) fn remove_flow_control(&mut self) {
        self.flow_control = self.flow_control.saturating_sub(1);
    }

    /// Whether there is room for all events of one message: three, or as many as there can be.
    pub(crate) fn has_room(&self) -> bool {
        let all = self.capacity - self.flow_control;
        self.events.len() + self.reserved + all.min(3) <= all
    }

    /// Sets a slot aside for an event that is sure to come.
    pub(crate) fn reserve(&mut self) {
        self.reserved += 1;
    }

    /// The event for which a slot was set aside comes now, or never will.
    pub(crate) fn unreserve(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, event: Event) {
        let set_aside = if matches!(event, Event::Disabled { .. }) { 0 } else { self.flow_control };
        if self.events.len() >= self.capacity - set_aside {
            self.make_room(set_aside);
        }
        self.sequence += 1;
        self.events.push_back(event);
    }

    /// Drops the oldest events.
    #[cold]
    fn make_room(&mut self, set_aside: usize) {
        while self.events.len() >= self.capacity - set_aside {
            self.events.pop_front();
            self.lost += 1;
        }
    }

    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Taken> {
        let sequence = (self.sequence + 1).saturating_sub(self.events.len() as u64);
        let event = self.events.pop_front()?;
        Some(Taken { event, lost: std::mem::take(&mut self.lost), sequence })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}
