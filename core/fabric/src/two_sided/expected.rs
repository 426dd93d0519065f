//! Expected messages: how many may be sent before a receive for them is known.
//!
//! Short ones travel eagerly as long as the receiver has promised places for them; longer ones are
//! announced, as long as the receiver has room for the announcements. Both are bounded per peer.

use super::{
    EAGER_CREDITS, MAX_BODIES, TAGGED_ROOM, Violation,
    header::Header,
    matching::{EAGER, ENVELOPE, Matching},
    violation::broken,
};

/// What is promised to a peer and by it. Kept of each peer, also while nothing is under way.
#[derive(Debug)]
pub(super) struct Expected {
    /// Eager messages that we may send, and whether that is known.
    eager: u16,
    places: Places,
    /// Eager messages that the peer may send in all; of these, those whose place it has not got
    /// back; and places that are free again but not yet returned.
    window: u16,
    held: u16,
    owed: u16,
    /// Announced messages without a receive: how many we may have at the peer, and it here.
    room: u16,
    room_here: u16,
    /// The peer would have got more places, were it not for its quota.
    short: bool,
}

/// Whether the peer has said how many eager messages it has places for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Places {
    Unknown,
    Asked,
    Known,
}

/// What the peer is to be told about that.
#[derive(Debug, Default)]
pub(super) struct ExpectedReport {
    eager_granted: u16,
    eager_asked: bool,
    room_granted: u16,
}

impl Default for Expected {
    fn default() -> Expected {
        Expected {
            eager: 0,
            places: Places::Unknown,
            window: 0,
            held: 0,
            owed: 0,
            room: TAGGED_ROOM,
            room_here: TAGGED_ROOM,
            short: false,
        }
    }
}

impl Expected {
    // As sender.

    /// Eager messages that may be sent to the peer.
    pub(super) fn eager(&self) -> u16 {
        self.eager
    }

    /// Whether the peer has said how many eager messages it takes.
    pub(super) fn is_known(&self) -> bool {
        self.places == Places::Known
    }

    /// Notes that the peer is asked for places. False if it was asked before.
    pub(super) fn ask(&mut self) -> bool {
        let first = self.places == Places::Unknown;
        if first {
            self.places = Places::Asked;
        }
        first
    }

    /// An eager message is sent.
    pub(super) fn use_place(&mut self) {
        self.eager -= 1;
    }

    /// Messages that may be announced to the peer at a time.
    pub(super) fn room(&self) -> u16 {
        self.room
    }

    /// The peer has so many more places for eager messages.
    pub(super) fn accept_places(&mut self, count: u64) -> Result<(), Violation> {
        let none = count == 0 && self.places == Places::Unknown;
        if none || count > u64::from(EAGER_CREDITS - self.eager) {
            return broken("more credit than there is", count);
        }
        self.places = Places::Known;
        self.eager += count as u16;
        Ok(())
    }

    /// The peer has room for so many more announcements.
    pub(super) fn accept_room(&mut self, count: u64) -> Result<(), Violation> {
        if count == 0 || count > u64::from(MAX_BODIES - u32::from(self.room)) {
            return broken("more room than there is", count);
        }
        self.room += count as u16;
        Ok(())
    }

    // As receiver.

    /// Whether the peer has asked for places, or was given some.
    pub(super) fn is_used(&self) -> bool {
        self.window > 0 || self.short
    }

    /// Messages that the peer may announce at a time.
    pub(super) fn room_here(&self) -> u16 {
        self.room_here
    }

    /// Whether the peer may send another eager message.
    pub(super) fn check_eager(&self) -> Result<(), Violation> {
        match self.held < self.window {
            true => Ok(()),
            false => broken("more eager messages than allowed", self.held.into()),
        }
    }

    /// An eager message occupies a place.
    pub(super) fn hold(&mut self) {
        self.held += 1;
    }

    /// A place is free again. True if so many are that the peer should know.
    pub(super) fn free_place(&mut self) -> bool {
        self.owed += 1;
        self.owes_places()
    }

    fn owes_places(&self) -> bool {
        self.owed > 0 && self.owed >= self.window / 2
    }

    /// Bytes that are promised to the peer.
    pub(super) fn promised(&self) -> usize {
        usize::from(self.window) * EAGER + usize::from(self.room_here - TAGGED_ROOM) * ENVELOPE
    }

    /// How many more things of so many bytes the peer may have, of this many; `quota` is how many
    /// bytes may be promised to it.
    fn within(&self, quota: usize, each: usize, most: u16) -> u16 {
        (quota.saturating_sub(self.promised()) / each).min(most.into()) as u16
    }

    /// Gives the peer places for eager messages, as far as there are some, unless it has them. True
    /// if its quota has none, which it had when it asked before.
    pub(super) fn promise_places(
        &mut self,
        quota: usize,
        report: &mut ExpectedReport,
        matching: &mut Matching,
    ) -> bool {
        if self.window > 0 && !self.short {
            return false;
        }
        let wanted = EAGER_CREDITS - self.window;
        let allowed = self.within(quota, EAGER, wanted);
        let more = matching.promise_eager(allowed);
        self.window += more;
        report.eager_granted += more;
        let was_short = std::mem::replace(&mut self.short, allowed < wanted);
        self.short && !was_short
    }

    /// The peer uses expected messages, and has announced so many: promises it more, as far as
    /// there is room. Whether there is something to tell, and whether its quota has no room for
    /// more.
    pub(super) fn promise_room(
        &mut self,
        announced: u32,
        quota: usize,
        report: &mut ExpectedReport,
        matching: &mut Matching,
    ) -> (bool, bool) {
        let mut refused = self.promise_places(quota, report, matching);
        if announced == u32::from(self.room_here) {
            let wanted = self.room_here.min(MAX_BODIES as u16 - self.room_here);
            let allowed = self.within(quota, ENVELOPE, wanted);
            let more = matching.promise_headers(allowed);
            self.room_here += more;
            report.room_granted += more;
            refused |= allowed < wanted;
        }
        (report.eager_granted > 0 || report.room_granted > 0, refused)
    }

    /// Gives back all that was promised to the peer.
    pub(super) fn withdraw(&self, matching: &mut Matching) {
        matching.withdraw(self.window, self.room_here - TAGGED_ROOM);
    }

    /// Places of the peer: how many it has in all, and how many are occupied.
    #[cfg(test)]
    pub(super) fn window_and_held(&self) -> (u16, u16) {
        (self.window, self.held)
    }
}

impl ExpectedReport {
    pub(super) fn is_empty(&self) -> bool {
        self.eager_granted == 0 && !self.eager_asked && self.room_granted == 0
    }

    /// The peer has asked how many places it has.
    pub(super) fn answer_places(&mut self) {
        self.eager_asked = true;
    }

    /// What there is to tell, if anything.
    pub(super) fn poll(&mut self, expected: &mut Expected) -> Option<Header> {
        if self.eager_granted > 0 || expected.owes_places() || self.eager_asked {
            self.eager_asked = false;
            let count = u64::from(expected.owed + std::mem::take(&mut self.eager_granted));
            expected.held -= std::mem::take(&mut expected.owed);
            return Some(Header::Credit { count });
        }
        let count = u64::from(std::mem::take(&mut self.room_granted));
        (count > 0).then_some(Header::Room { count })
    }
}
