//! Sleeping, and being woken.
//!
//! Where a library has a descriptor to wait on, the endpoint sleeps on that. Where it has none, as
//! on shared memory, peers ring for each other on the control connection, which wakes:
//!
//! * A sender rings, unless told not to. So the first message wakes an endpoint that sleeps, which
//!   need not prepare anything.
//! * An endpoint that spins says so ([`Control::Awake`]) to peers that ring, and they stop: then a
//!   message costs no more than the library takes.
//! * The library may keep a packet for a while, because it has no room or first has to make a
//!   connection. The sender rings again when the packet has left.
//! * An endpoint that wants to sleep after that says so ([`Control::Sleep`]), and sleeps until
//!   woken once its peers have said how many packets they had sent before they heard it
//!   ([`Control::Rung`]), and those have arrived. A peer that is not driven does not answer;
//!   meanwhile the endpoint naps, the longer the more naps there were in a row.

use crate::{
    datagrams::Datagrams,
    frame::Control,
    link::{Link, State, Watch},
    network::Network,
    pace::Pace,
};
use petasos_fabric::{Sleep, Time};

impl<N: Network> Datagrams<N> {
    /// See [`petasos_channel::Device::arm`]. `waits`: for something of which no event tells.
    pub(crate) fn prepare(&mut self, now: Time, waits: bool) -> Sleep {
        let spun = self.pace.arm();
        if self.peers.has_news() || !self.control_events.is_empty() || self.controls_now() {
            return Sleep::Busy;
        }
        if self.net.has_more() || (!self.rings && !self.net.try_wait()) {
            return Sleep::Busy;
        }
        let mut until = Time::NEVER;
        // Things that wait for peers, which do not ring for them.
        let mut nap = waits || self.lists.has_output();
        nap |= self.has_paused();
        if self.rings {
            nap |= self.links.iter().any(|link| link.inward.waits_for_completion());
            nap |= self.net.running() > 0 || !self.ask_for_rings();
            // After asking: packets until now arrived without a ring.
            if self.net.poll() {
                return Sleep::Busy;
            }
        }
        for peer in self.lists.ending() {
            if let Some(link) = self.links.get(peer.index)
                && let State::Ending(_, end) = &link.state
            {
                until = until.min(*end).min(Pace::look_again(now));
            }
        }
        if nap {
            until = until.min(self.pace.nap(spun, now));
            if self.rings && self.pace.is_longest_nap() && self.net.running() > 0 {
                self.ring_again();
            }
        } else {
            self.pace.end_naps();
        }
        match self.control.arm(now) {
            Sleep::Busy => Sleep::Busy,
            Sleep::Until(time) => Sleep::Until(until.min(time)),
        }
    }

    /// The library has sent something that it had kept, perhaps until after the peer was rung for
    /// and had polled.
    pub(crate) fn ring_late(&mut self, index: u32) {
        if let Some(link) = self.links.get(index)
            && link.rings
        {
            self.ring(index);
        }
    }

    /// Peers that sleep may have to poll before the library can send what it keeps for them.
    fn ring_again(&mut self) {
        let waits = |link: &Link| link.is_up() && link.out.running() > 0;
        let links = self.links.iter().filter(|link| waits(link));
        for index in links.map(|link| link.peer().index).collect::<Vec<_>>() {
            self.ring_late(index);
        }
    }

    /// Whether the control endpoint may have room for control messages that wait.
    fn controls_now(&self) -> bool {
        self.lists.has_controls() && !self.pace.is_idle()
    }

    fn has_paused(&self) -> bool {
        let greeted = |index: &u32| self.links.get(*index).is_some_and(Link::is_greeted);
        self.lists.paused().iter().any(greeted)
    }

    /// Asks peers to ring that were told not to. True if all do.
    fn ask_for_rings(&mut self) -> bool {
        let mut all = true;
        for link in self.links.iter_mut().filter(|link| link.is_up()) {
            if link.watch == Watch::Silent {
                let asked = self.control.inject(link.control(), &[&Control::Sleep.to_bytes()]);
                if asked.is_ok() {
                    link.watch = Watch::Asked;
                }
            }
            all &= link.watch == Watch::Rings;
        }
        all
    }
}
