//! What comes from a peer: packets in the order of their numbers, some of which wait for their
//! payloads.

use super::WINDOW;
use std::collections::VecDeque;

/// The state of receiving from one peer.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// Packets received, packets taken, and how many we told the peer that we took.
    received: u32,
    taken: u32,
    told: u32,
    /// How many packets the peer says that it sent in all, when it ends.
    total: Option<u32>,
    /// Packets whose turn has not come, or for which there is no room: from the one whose turn is
    /// next.
    deferred: VecDeque<Option<Vec<u8>>>,
    /// Of the packets that may come, a bit each, by their numbers modulo the window: those that
    /// have arrived and wait for their completion data, and those whose completion data has
    /// arrived.
    waits: u64,
    completed: u64,
    /// With what completion data from the peer begins; 0 until the peer needs to know.
    completion_name: u64,
    /// The peer is in the list of those to be told what we took.
    owing: bool,
    /// The peer is in the list of those with a deferred packet whose turn it is.
    paused: bool,
}

impl Inbound {
    pub(super) fn new() -> Inbound {
        Inbound {
            received: 0,
            taken: 0,
            told: 0,
            total: None,
            deferred: VecDeque::new(),
            waits: 0,
            completed: 0,
            completion_name: 0,
            owing: false,
            paused: false,
        }
    }

    /// A packet has arrived. Returns how many have by now.
    #[inline]
    pub(crate) fn count_received(&mut self) -> u32 {
        self.received = self.received.wrapping_add(1);
        self.received
    }

    #[inline]
    pub(crate) fn received(&self) -> u32 {
        self.received
    }

    /// How many packets were taken; the number of the one whose turn is next.
    #[inline]
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// The packet whose turn it was has been taken.
    #[inline]
    pub(crate) fn advance(&mut self) {
        let bit = bit(self.taken);
        (self.waits, self.completed) = (self.waits & !bit, self.completed & !bit);
        self.taken = self.taken.wrapping_add(1);
        self.deferred.pop_front();
    }

    // Acknowledgements.

    /// A packet to the peer says how many we took.
    #[inline]
    pub(crate) fn acknowledged(&mut self) {
        self.told = self.taken;
    }

    /// Whether we took so many packets that the peer is to be told.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.taken.wrapping_sub(self.told) >= WINDOW / 2
    }

    /// If we owe an acknowledgement, the peer comes into the list of those to be told. False if it
    /// was there, or we owe none.
    #[inline]
    pub(crate) fn enter_owing(&mut self) -> bool {
        self.owes() && !std::mem::replace(&mut self.owing, true)
    }

    #[inline]
    pub(crate) fn leave_owing(&mut self) {
        self.owing = false;
    }

    // Deferred packets.

    /// How far a packet with this number is from the one whose turn is next; `None` if it cannot
    /// be.
    #[inline]
    pub(crate) fn distance(&self, number: u16) -> Option<usize> {
        let ahead = number.wrapping_sub(self.taken as u16);
        let free = self.deferred.get(usize::from(ahead)).is_none_or(Option::is_none);
        (u32::from(ahead) < WINDOW && free).then_some(usize::from(ahead))
    }

    /// Keeps a packet that is this far from the one whose turn is next.
    #[inline]
    pub(crate) fn defer(&mut self, distance: usize, packet: Vec<u8>) {
        if self.deferred.len() <= distance {
            self.deferred.resize(distance + 1, None);
        }
        self.deferred[distance] = Some(packet);
    }

    #[inline]
    pub(crate) fn has_deferred(&self) -> bool {
        !self.deferred.is_empty()
    }

    /// Takes out the deferred packet whose turn it is: it is to be taken now.
    pub(crate) fn take_due(&mut self) -> Option<Vec<u8>> {
        if !self.is_due() {
            return None;
        }
        self.deferred.front_mut()?.take()
    }

    /// Whether there is one whose turn it is, and that does not wait for its completion data.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        matches!(self.deferred.front(), Some(Some(_))) && !self.waits_for_completion()
    }

    /// If a deferred packet is due, the peer comes into the list of those that have one. False if
    /// it was there, or none is due.
    #[inline]
    pub(crate) fn enter_paused(&mut self) -> bool {
        self.is_due() && !std::mem::replace(&mut self.paused, true)
    }

    #[inline]
    pub(crate) fn leave_paused(&mut self) {
        self.paused = false;
    }

    #[inline]
    pub(crate) fn is_paused(&self) -> bool {
        self.paused
    }

    // Completion data.

    /// With what completion data from the peer begins; 0 if it was not told yet.
    #[inline]
    pub(crate) fn completion_name(&self) -> u64 {
        self.completion_name
    }

    #[inline]
    pub(crate) fn set_completion_name(&mut self, name: u64) {
        self.completion_name = name;
    }

    /// Whether the packet whose turn is next has arrived, and its completion data has not.
    #[inline]
    pub(crate) fn waits_for_completion(&self) -> bool {
        self.waits & !self.completed & bit(self.taken) != 0
    }

    /// A packet has arrived that is to be taken when its completion data has arrived.
    #[inline]
    pub(crate) fn wait_for_completion(&mut self, number: u16) {
        self.waits |= bit(number.into());
    }

    /// Completion data has arrived for the packet with this number modulo 2^8. False if that cannot
    /// be: the packet is none of those that may be under way, its completion data came before, or
    /// the packet is here and needs none.
    #[inline]
    pub(crate) fn complete(&mut self, number: u8) -> bool {
        let bit = bit(number.into());
        let ahead = number.wrapping_sub(self.taken as u8);
        let here = matches!(self.deferred.get(usize::from(ahead)), Some(Some(_)));
        let due = u32::from(ahead) < WINDOW && self.completed & bit == 0;
        let can_be = due && (!here || self.waits & bit != 0);
        self.completed |= if can_be { bit } else { 0 };
        can_be
    }

    // The end.

    /// The peer ends, and says how many packets it sent.
    #[inline]
    pub(crate) fn set_total(&mut self, total: u32) {
        self.total = Some(total);
    }

    /// Whether the peer has said how many packets it sent.
    #[inline]
    pub(crate) fn knows_total(&self) -> bool {
        self.total.is_some()
    }

    /// Whether all packets that the peer sent have arrived, as far as it said how many there are.
    #[inline]
    pub(crate) fn has_all(&self) -> bool {
        self.total == Some(self.received)
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

    #[test]
    fn packets_have_their_distances() {
        let mut inward = Inbound::new();
        inward.taken = 0xffff;
        let distances = [0xffff, 1, 0xfffe].map(|number| inward.distance(number));
        assert_eq!(distances, [Some(0), Some(2), None]);
        assert_eq!(inward.distance(0xffff_u16.wrapping_add(WINDOW as u16)), None);
        inward.deferred = VecDeque::from([None, Some(vec![])]);
        assert_eq!((inward.distance(0xffff), inward.distance(0)), (Some(0), None));
        assert!(!inward.is_due());
    }

    /// What is taken before its completion data, and which completion data is accepted.
    #[test]
    fn packets_wait_for_their_completion_data() {
        let mut inward = Inbound::new();
        inward.taken = 0xffff;
        // The packet first, then its completion data, once.
        inward.wait_for_completion(0xffff);
        inward.deferred = VecDeque::from([Some(vec![])]);
        assert!(inward.waits_for_completion() && !inward.is_due());
        assert!(inward.complete(0xff) && inward.is_due() && !inward.complete(0xff));
        inward.advance();
        assert!((inward.taken, inward.waits, inward.completed) == (0x1_0000, 0, 0));
        assert!(!inward.complete(0xff), "of one that was taken");
        // The completion data first.
        assert!(inward.complete(0));
        inward.wait_for_completion(0);
        assert!(!inward.waits_for_completion());
        inward.advance();
        // Completion data of a packet that needs none, which is here, or comes after it: nothing of
        // it stays.
        inward.deferred = VecDeque::from([None, Some(vec![])]);
        assert!(!inward.complete(2) && inward.complete(1));
        inward.advance();
        assert!(inward.is_due());
        inward.advance();
        assert_eq!(inward.completed, 0);
        // All that can be under way, and no others.
        for number in 0..=u8::MAX {
            let ahead = number.wrapping_sub(inward.taken as u8);
            assert_eq!(inward.complete(number), ahead < 64);
            assert!(!inward.complete(number));
        }
        assert_eq!(inward.completed, u64::MAX);
    }
}
