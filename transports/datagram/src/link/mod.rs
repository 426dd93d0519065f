//! What there is to a peer.

use crate::{frame::Control, network::Node};
use petasos_fabric::{LostReason, Peer, Time, two_sided::Packet};
use std::collections::VecDeque;

/// Packets to a peer that it has not taken, at most. Part of the protocol.
pub(crate) const WINDOW: u32 = 64;

/// How things stand.
#[derive(Debug)]
pub(crate) enum State {
    /// Being reached, or the greeting has not come.
    Meeting,
    /// Packets flow.
    Up,
    /// It is gone; what it sent before is still taken, until this time.
    Ending(LostReason, Time),
}

/// How the peer knows when to ring for us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watch {
    /// It rings with all it sends.
    Rings,
    /// It was told that we look by ourselves.
    Silent,
    /// It was told to ring again, and has not said since when.
    Asked,
    /// It rings, and we wait for what it sent before: so many packets in all.
    Owed(u32),
}

/// A peer, by its slot.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) peer: Peer,
    /// The same at the endpoint by which we met.
    pub(crate) control: Peer,
    pub(crate) state: State,
    /// Whether somebody here asked for the peer.
    pub(crate) asked: bool,
    /// What it writes at the head of its packets.
    pub(crate) ticket: u64,
    /// Its greeting has not left yet.
    pub(crate) greeting: bool,
    /// It is in the list of those to be told something.
    pub(crate) errand: bool,
    /// Control messages that did not leave yet.
    pub(crate) letters: VecDeque<Control>,
    /// Where it is in the fabric, our slot there, and our ticket.
    pub(crate) node: Option<Node>,
    pub(crate) name: Vec<u8>,
    pub(crate) slot_there: u32,
    pub(crate) ticket_there: u64,
    /// Packets sent, and how many of them it took.
    pub(crate) sent: u32,
    pub(crate) acknowledged: u32,
    /// Packets received, taken, and how many we told it that we took.
    pub(crate) received: u32,
    pub(crate) taken: u32,
    pub(crate) told: u32,
    /// How many it sent before it ended.
    pub(crate) bye: Option<u32>,
    /// Received, and it is not their turn, or there is no room for them: from the packet on whose turn is
    /// next.
    pub(crate) deferred: VecDeque<Option<Vec<u8>>>,
    /// Of the packets that may come, by their numbers modulo the window: those that came and wait for their notices,
    /// and those whose notices came.
    pub(crate) waits: u64,
    pub(crate) noticed: u64,
    /// What its notices to us begin with; 0 until it needs to know.
    pub(crate) notice: u64,
    /// Packets of the engine's that are under way: whether each is done. The first has this serial number.
    pub(crate) under_way: VecDeque<bool>,
    pub(crate) first: u32,
    /// Sends and accesses that the library has.
    pub(crate) running: u32,
    /// A packet for which there was no room, and whether its payload goes another way already.
    pub(crate) stuck: Option<Packet>,
    pub(crate) brought: bool,
    /// The engine has packets for it, which are ours to fetch.
    pub(crate) listed: bool,
    /// It is in the list of those that can be sent to.
    pub(crate) queued: bool,
    /// It is in the list of those to be told what we took.
    pub(crate) owing: bool,
    /// It is in the list of those with deferred packets.
    pub(crate) paused: bool,
    /// Whether it is to be rung for, and a ring that did not leave.
    pub(crate) ring: bool,
    pub(crate) ring_owed: bool,
    /// It is to be told how much was sent before rings began.
    pub(crate) rung_owed: bool,
    pub(crate) watch: Watch,
}

impl Link {
    /// One that is being reached. `first` goes on where the slot's last user was.
    pub(crate) fn new(peer: Peer, control: Peer, asked: bool, ticket: u64, first: u32) -> Link {
        Link {
            peer,
            control,
            state: State::Meeting,
            asked,
            ticket,
            greeting: false,
            errand: false,
            letters: VecDeque::new(),
            node: None,
            name: Vec::new(),
            slot_there: 0,
            ticket_there: 0,
            sent: 0,
            acknowledged: 0,
            received: 0,
            taken: 0,
            told: 0,
            bye: None,
            deferred: VecDeque::new(),
            waits: 0,
            noticed: 0,
            notice: 0,
            under_way: VecDeque::new(),
            first,
            running: 0,
            stuck: None,
            brought: false,
            listed: false,
            queued: false,
            owing: false,
            paused: false,
            ring: true,
            ring_owed: false,
            rung_owed: false,
            watch: Watch::Rings,
        }
    }

    #[inline]
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.state, State::Up)
    }

    /// Whether the peer has room for another packet.
    #[inline]
    pub(crate) fn has_window(&self) -> bool {
        self.sent.wrapping_sub(self.acknowledged) < WINDOW
    }

    /// The peer says how many packets it took. False if that cannot be.
    #[inline]
    pub(crate) fn acknowledge(&mut self, taken: u16) -> bool {
        let more = taken.wrapping_sub(self.acknowledged as u16) as i16;
        if i64::from(more) > i64::from(self.sent.wrapping_sub(self.acknowledged)) {
            return false;
        }
        // Else it was overtaken.
        self.acknowledged = self.acknowledged.wrapping_add(more.max(0) as u32);
        true
    }

    /// How far a packet with this number is from the one whose turn is next; `None` if it cannot be.
    #[inline]
    pub(crate) fn place(&self, number: u16) -> Option<usize> {
        let ahead = number.wrapping_sub(self.taken as u16);
        let free = self.deferred.get(usize::from(ahead)).is_none_or(Option::is_none);
        (u32::from(ahead) < WINDOW && free).then_some(usize::from(ahead))
    }

    /// Whether the packet whose turn is next is deferred, and waits for no notice.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        matches!(self.deferred.front(), Some(Some(_))) && !self.waits_for_notice()
    }

    /// Whether the packet whose turn is next came, and its notice did not.
    #[inline]
    pub(crate) fn waits_for_notice(&self) -> bool {
        self.waits & !self.noticed & bit(self.taken) != 0
    }

    /// A packet came that is to be taken when its notice has come.
    pub(crate) fn wait_for_notice(&mut self, number: u16) {
        self.waits |= bit(number.into());
    }

    /// A notice came, of the packet with this number modulo 2^8. False if that cannot be: it is none of those that may be
    /// under way, there was one before, or the packet is here and needs none.
    pub(crate) fn note(&mut self, number: u8) -> bool {
        let bit = bit(number.into());
        let ahead = number.wrapping_sub(self.taken as u8);
        let here = matches!(self.deferred.get(usize::from(ahead)), Some(Some(_)));
        let due = u32::from(ahead) < WINDOW && self.noticed & bit == 0;
        let can_be = due && (!here || self.waits & bit != 0);
        self.noticed |= if can_be { bit } else { 0 };
        can_be
    }

    /// The packet whose turn it was has been taken.
    #[inline]
    pub(crate) fn step(&mut self) {
        let bit = bit(self.taken);
        (self.waits, self.noticed) = (self.waits & !bit, self.noticed & !bit);
        self.taken = self.taken.wrapping_add(1);
        self.deferred.pop_front();
    }

    /// A packet is under way: its serial number.
    pub(crate) fn depart(&mut self) -> u32 {
        self.under_way.push_back(false);
        self.next_serial().wrapping_sub(1)
    }

    /// The serial number of the next packet.
    pub(crate) fn next_serial(&self) -> u32 {
        self.first.wrapping_add(self.under_way.len() as u32)
    }

    /// A packet is done. Gives how many of the oldest ones are, that were not before; `None` if it is one of
    /// an earlier user of the slot.
    pub(crate) fn arrive(&mut self, serial: u32) -> Option<u32> {
        let at = serial.wrapping_sub(self.first) as usize;
        *self.under_way.get_mut(at)? = true;
        let mut done = 0;
        while self.under_way.front() == Some(&true) {
            self.under_way.pop_front();
            self.first = self.first.wrapping_add(1);
            done += 1;
        }
        Some(done)
    }
}

/// The bit of a packet's number.
#[inline]
fn bit(number: u32) -> u64 {
    1 << (number % WINDOW)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link() -> Link {
        let peer = Peer { index: 0, generation: 0 };
        Link::new(peer, peer, false, 1, u32::MAX)
    }

    #[test]
    fn packets_are_done_in_order() {
        let mut link = link();
        let serials: Vec<u32> = (0..3).map(|_| link.depart()).collect();
        assert_eq!(serials, [u32::MAX, 0, 1]);
        assert_eq!(link.arrive(0), Some(0));
        assert_eq!(link.arrive(1), Some(0));
        assert_eq!(link.arrive(u32::MAX), Some(3));
        assert_eq!(link.arrive(u32::MAX), None, "of an earlier user");
        assert_eq!(link.arrive(2), None, "not under way");
    }

    #[test]
    fn packets_have_their_places() {
        let mut link = link();
        link.taken = 0xffff;
        assert_eq!(
            (link.place(0xffff), link.place(1), link.place(0xfffe)),
            (Some(0), Some(2), None)
        );
        assert_eq!(link.place(0xffff_u16.wrapping_add(WINDOW as u16)), None);
        link.deferred = VecDeque::from([None, Some(vec![])]);
        assert_eq!((link.place(0xffff), link.place(0), link.is_due()), (Some(0), None, false));
    }

    /// What is taken before its notice, and what a notice is good for.
    #[test]
    fn packets_wait_for_their_notices() {
        let mut link = link();
        link.taken = 0xffff;
        // The packet first, then its notice, once.
        link.wait_for_notice(0xffff);
        link.deferred = VecDeque::from([Some(vec![])]);
        assert!(link.waits_for_notice() && !link.is_due());
        assert!(link.note(0xff) && link.is_due() && !link.note(0xff));
        link.step();
        assert!((link.taken, link.waits, link.noticed) == (0x1_0000, 0, 0));
        assert!(!link.note(0xff), "of one that was taken");
        // The notice first.
        assert!(link.note(0));
        link.wait_for_notice(0);
        assert!(!link.waits_for_notice());
        link.step();
        // A notice of a packet that needs none, which is here, or comes after it: nothing stays of it.
        link.deferred = VecDeque::from([None, Some(vec![])]);
        assert!(!link.note(2) && link.note(1));
        link.step();
        assert!(link.is_due());
        link.step();
        assert_eq!(link.noticed, 0);
        // All that can be under way, and no others.
        for number in 0..=u8::MAX {
            let ahead = number.wrapping_sub(link.taken as u8);
            assert_eq!(link.note(number), ahead < 64);
            assert!(!link.note(number));
        }
        assert_eq!(link.noticed, u64::MAX);
    }

    #[test]
    fn only_what_was_sent_is_acknowledged() {
        let mut link = link();
        link.sent = 5;
        assert!(!link.acknowledge(6));
        assert!(link.acknowledge(3) && link.acknowledge(3) && link.acknowledge(5));
        assert!(link.acknowledge(4) && link.acknowledged == 5, "overtaken");
        link.sent = link.acknowledged.wrapping_add(WINDOW);
        assert!(!link.has_window());
    }
}
