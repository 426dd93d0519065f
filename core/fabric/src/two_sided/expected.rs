//! Expected messages: how many may be sent before a receive for them is known.
//!
//! Short ones travel eagerly as long as the receiver has promised places for them; longer ones are
//! announced, as long as the receiver has room for the announcements. Both are bounded per peer.

use super::{
    EAGER_CREDITS, MAX_BODIES, TAGGED_ROOM, Violation, header::Header, matching::Matching,
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

    /// Gives the peer places for eager messages, as far as there are some, unless it has them.
    pub(super) fn promise_places(&mut self, report: &mut ExpectedReport, matching: &mut Matching) {
        if self.window == 0 {
            self.window = matching.promise_eager(EAGER_CREDITS);
            report.eager_granted = self.window;
        }
    }

    /// The peer uses expected messages, and has announced so many: promises it more, as far as
    /// there is room. True if there is something to tell.
    pub(super) fn promise_room(
        &mut self,
        announced: u32,
        report: &mut ExpectedReport,
        matching: &mut Matching,
    ) -> bool {
        self.promise_places(report, matching);
        if announced == u32::from(self.room_here) {
            let more = self.room_here.min(MAX_BODIES as u16 - self.room_here);
            let more = matching.promise_headers(more);
            self.room_here += more;
            report.room_granted += more;
        }
        report.eager_granted > 0 || report.room_granted > 0
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
