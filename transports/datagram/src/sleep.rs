//! Sleeping, and being woken.
//!
//! Where a library has a descriptor to wait on, that is all there is to it. Where it has none, as on shared
//! memory, peers ring for each other on the control connection, which wakes:
//!
//! * Who sends rings, unless told not to. So a sleeper is woken by the first message, and needs to prepare
//!   nothing.
//! * Who spins says so ([`Control::Awake`]) to those who ring, and they stop: then a message costs no more
//!   than what the library takes.
//! * What the library keeps for a while, since it has no room, or first has to make a connection, is rung for again when
//!   it has left.
//! * Who wants to sleep after that says so ([`Control::Sleep`]), and sleeps soundly once the others have said
//!   how much they had sent before they heard it ([`Control::Rung`]), and that came. A peer that is not
//!   driven does not say it; meanwhile there are naps, the longer the more there were.

use crate::{
    frame::Control,
    link::{Link, State, Watch},
    network::Network,
    state::Datagrams,
};
use petasos_fabric::{Sleep, Time};
use std::time::Duration;

/// Passes without a sleep after which an endpoint is taken to spin.
pub(crate) const SPINNING: u32 = 2000;
/// The shortest nap, and how often it doubles.
const NAP: Duration = Duration::from_micros(50);
const DOUBLED: u32 = 8;

impl<N: Network> Datagrams<N> {
    /// As the contract has it.
    pub(crate) fn prepare(&mut self, now: Time) -> Sleep {
        let spun = self.passes > 0;
        self.passes = 0;
        (self.armed, self.looked) = (true, false);
        let engine = self.engine.has_events() || self.engine.has_output();
        if engine || !self.early.is_empty() || !self.mail.is_empty() || self.errands_now() {
            return Sleep::Busy;
        }
        if self.net.has_more() || (!self.rings && !self.net.try_wait()) {
            return Sleep::Busy;
        }
        let mut until = Time::NEVER;
        // What waits for others without their making a noise.
        let mut nap =
            !self.outgoing.is_empty() || !self.owing.is_empty() || !self.errands.is_empty();
        nap |= self.accesses.is_waiting() || self.has_paused() || self.engine.has_waiting();
        if self.rings {
            nap |= self.links.iter().flatten().any(|link| link.waits_for_notice());
            nap |= self.net.running() > 0 || !self.ask_for_rings();
            // After asking: what came until now came without a ring.
            if self.net.look() {
                return Sleep::Busy;
            }
        }
        for peer in &self.ending {
            if let Some(Some(link)) = self.links.get(peer.index as usize)
                && let State::Ending(_, end) = &link.state
            {
                until = until.min(*end).min(now.after(NAP * 20));
            }
        }
        until = until.min(self.exposures.until()).min(self.accesses.until());
        until = until.min(self.engine.deadline());
        if nap {
            self.naps = if spun && !self.idle { 0 } else { (self.naps + 1).min(DOUBLED) };
            until = until.min(now.after(NAP * (1 << self.naps)));
            if self.rings && self.naps == DOUBLED && self.net.running() > 0 {
                self.ring_again();
            }
        } else {
            self.naps = 0;
        }
        match self.control.arm(now) {
            Sleep::Busy => Sleep::Busy,
            Sleep::Until(time) => Sleep::Until(until.min(time)),
        }
    }

    /// Something left for a peer that the library had kept, perhaps until after the peer was rung for and looked.
    pub(crate) fn ring_late(&mut self, index: u32) {
        if let Some(Some(link)) = self.links.get(index as usize)
            && link.ring
        {
            self.ring(index);
        }
    }

    /// What the library keeps for peers that sleep may need them to look first.
    fn ring_again(&mut self) {
        let waits = |link: &Link| link.is_up() && link.running > 0;
        let links = self.links.iter().flatten().filter(|link| waits(link));
        for index in links.map(|link| link.peer.index).collect::<Vec<_>>() {
            self.ring_late(index);
        }
    }

    /// Whether the control endpoint may have room for what waits for it.
    fn errands_now(&self) -> bool {
        !self.errands.is_empty() && !self.idle
    }

    fn has_paused(&self) -> bool {
        let greeted = |index: &u32| {
            let link = self.links.get(*index as usize).and_then(Option::as_deref);
            link.is_some_and(|link| !matches!(link.state, State::Meeting))
        };
        self.paused.iter().any(greeted)
    }

    /// Asks those to ring who were told not to. True if all do.
    fn ask_for_rings(&mut self) -> bool {
        let mut all = true;
        for link in self.links.iter_mut().flatten().filter(|link| link.is_up()) {
            if link.watch == Watch::Silent {
                let asked = self.control.inject(link.control, &[&Control::Sleep.to_bytes()]);
                if asked.is_ok() {
                    link.watch = Watch::Asked;
                }
            }
            all &= link.watch == Watch::Rings;
        }
        all
    }
}
