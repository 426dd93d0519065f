//! Which peers are to be served next, and with what.

use crate::link::Link;
use petasos_fabric::Peer;
use std::mem;

/// Lists of peers. A peer is at most once in each.
#[derive(Debug, Default)]
pub(crate) struct Lists {
    /// Peers to be told what was taken.
    owing: Vec<u32>,
    /// Peers with a deferred packet that is due.
    paused: Vec<u32>,
    /// Peers to which control messages are to be sent.
    controls: Vec<u32>,
    /// Peers whose connections have ended, and that may have sent more before.
    ending: Vec<Peer>,
}

impl Lists {
    /// The peer is told what was taken, if that is due.
    #[inline]
    pub(crate) fn owe(&mut self, link: &mut Link) {
        if link.inward.enter_owing() {
            self.owing.push(link.peer().index);
        }
    }

    #[inline]
    pub(crate) fn has_owing(&self) -> bool {
        !self.owing.is_empty()
    }

    #[inline]
    pub(crate) fn take_owing(&mut self) -> Vec<u32> {
        mem::take(&mut self.owing)
    }

    /// Lists the peer if a deferred packet of it is due.
    #[inline]
    pub(crate) fn pause(&mut self, link: &mut Link) {
        if link.inward.enter_paused() {
            self.paused.push(link.peer().index);
        }
    }

    /// Peers with a deferred packet that is due.
    #[inline]
    pub(crate) fn paused(&self) -> &[u32] {
        &self.paused
    }

    #[inline]
    pub(crate) fn take_paused(&mut self) -> Vec<u32> {
        mem::take(&mut self.paused)
    }

    /// There are control messages to the peer.
    #[inline]
    pub(crate) fn write(&mut self, link: &mut Link) {
        if link.controls.enter_list() {
            self.controls.push(link.peer().index);
        }
    }

    #[inline]
    pub(crate) fn has_controls(&self) -> bool {
        !self.controls.is_empty()
    }

    #[inline]
    pub(crate) fn take_controls(&mut self) -> Vec<u32> {
        mem::take(&mut self.controls)
    }

    /// The peer's connection has ended.
    #[inline]
    pub(crate) fn end(&mut self, peer: Peer) {
        self.ending.push(peer);
    }

    #[inline]
    pub(crate) fn ending(&self) -> &[Peer] {
        &self.ending
    }

    #[inline]
    pub(crate) fn take_ending(&mut self) -> Vec<Peer> {
        mem::take(&mut self.ending)
    }

    /// Whether anything is to be sent.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        self.has_owing() || self.has_controls()
    }
}
