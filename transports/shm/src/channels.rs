//! The channels of an endpoint, by the index of the peer's handle, and what is due in them.

use crate::{
    Counters,
    channel::Channel,
    doorbell::PendingDoorbells,
    sync::{Ordering, fence},
};
use petasos_fabric::{LostReason, Peer, Time};
use std::time::Duration;

/// The memory of long messages stays for so long after the last one, up to twice as long.
const TRIM: Duration = Duration::from_secs(1);

pub(crate) struct Channels {
    slots: Vec<Option<Box<Channel>>>,
    pending: PendingDoorbells,
    /// Peers that have ended, and whose ring is not empty yet.
    ending: Vec<u32>,
    /// When memory of long messages may be given back.
    trim_at: Time,
}

impl Channels {
    pub(crate) fn new() -> Channels {
        let pending = PendingDoorbells::EMPTY;
        Channels { slots: Vec::new(), pending, ending: Vec::new(), trim_at: Time::NEVER }
    }

    #[inline(always)]
    pub(crate) fn get(&self, index: u32) -> Option<&Channel> {
        self.slots.get(index as usize)?.as_deref()
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, index: u32) -> Option<&mut Channel> {
        self.slots.get_mut(index as usize)?.as_deref_mut()
    }

    /// The channel of this peer, and where it is noted that something was published in it.
    #[inline(always)]
    pub(crate) fn to(&mut self, peer: Peer) -> Option<(&mut Channel, &mut PendingDoorbells)> {
        let Channels { slots, pending, .. } = self;
        let channel = slots.get_mut(peer.index as usize)?.as_deref_mut()?;
        (channel.handle == peer).then_some((channel, pending))
    }

    /// All indexes are below this.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Channel> {
        self.slots.iter().flatten().map(|channel| &**channel)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Channel> {
        self.slots.iter_mut().flatten().map(|channel| &mut **channel)
    }

    pub(crate) fn insert(&mut self, channel: Channel) {
        let index = channel.handle.index as usize;
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(Box::new(channel));
    }

    /// Takes a channel out. No doorbell may be pending: the list runs through the channels.
    pub(crate) fn remove(&mut self, index: u32) -> Option<Box<Channel>> {
        debug_assert!(self.pending.is_empty(), "a doorbell is pending");
        self.ending.retain(|other| *other != index);
        self.slots.get_mut(index as usize)?.take()
    }

    /// Takes all of them out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Box<Channel>> {
        self.slots.drain(..).flatten()
    }

    // Doorbells.

    /// Something was published in a channel: rings if the peer plainly sleeps, and else looks again
    /// in [`Channels::ring_pending`].
    #[inline]
    pub(crate) fn published(&mut self, index: u32, counters: &mut Counters) {
        let Channels { slots, pending, .. } = self;
        if let Some(channel) = slots.get_mut(index as usize).and_then(Option::as_deref_mut)
            && channel.published(index, pending)
        {
            counters.wake_ups += 1;
        }
    }

    #[inline]
    pub(crate) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Rings for the peers that fell asleep while something was published.
    #[inline]
    pub(crate) fn ring_pending(&mut self, counters: &mut Counters) {
        if !self.has_pending() {
            return;
        }
        fence(Ordering::SeqCst);
        let mut next = self.pending.take();
        while let Some(channel) = self.get_mut(next) {
            next = channel.next_pending.take();
            if channel.pair.take_sleeper() {
                channel.ring();
                counters.wake_ups += 1;
            }
        }
    }

    // The end of a peer.

    /// The peer has ended. What it has sent is taken first.
    pub(crate) fn hang_up(&mut self, index: u32, reason: LostReason) {
        if let Some(channel) = self.get_mut(index)
            && channel.ending.is_none()
        {
            channel.ending = Some(reason);
            self.ending.push(index);
        }
    }

    /// The peers that have ended.
    #[inline]
    pub(crate) fn ending(&self) -> &[u32] {
        &self.ending
    }

    // Memory of long messages.

    /// A message was sent that may have been a long one.
    #[inline]
    pub(crate) fn sent_long(&mut self, now: Time) {
        if self.trim_at == Time::NEVER {
            self.trim_at = now.after(TRIM);
        }
    }

    /// When [`Channels::trim`] has something to do, perhaps.
    pub(crate) fn trim_at(&self) -> Time {
        self.trim_at
    }

    /// Gives memory of long messages back where there were none for a while.
    pub(crate) fn trim(&mut self, now: Time) {
        if now < self.trim_at {
            return;
        }
        let mut left = false;
        for channel in self.iter_mut() {
            left |= channel.pair.trim_long();
        }
        self.trim_at = if left { now.after(TRIM) } else { Time::NEVER };
    }
}
