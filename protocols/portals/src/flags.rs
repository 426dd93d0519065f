//! Sets of flags.

/// Declares a set of flags: constants, their union, and a test.
macro_rules! flags {
    ($(#[$meta:meta])* $name:ident: $repr:ty { $($(#[$flag_meta:meta])* $flag:ident = $bit:expr;)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name($repr);

        impl $name {
            /// None of them.
            pub const NONE: $name = $name(0);
            $($(#[$flag_meta])* pub const $flag: $name = $name(1 << $bit);)*

            /// Both sets together.
            #[must_use]
            pub const fn with(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// Whether all of `other` is in this set.
            #[must_use]
            #[inline]
            pub const fn has(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }
        }
    };
}

flags! {
    /// What an entry lets other processes do.
    ///
    /// ```
    /// use petasos_portals::Accepts;
    ///
    /// let both = Accepts::PUT.with(Accepts::GET);
    /// assert!(both.has(Accepts::GET) && !Accepts::PUT.has(both));
    /// ```
    Accepts: u8 {
        /// Put, and atomics without a reply. With [`Accepts::GET`] also atomics that fetch, swaps
        /// and get-put.
        PUT = 0;
        /// Get.
        GET = 1;
    }
}

flags! {
    /// The events of an entry, or of an initiator's descriptor, that are not wanted
    /// (`PTL_ME_EVENT_COMM_DISABLE` and the like).
    ///
    /// ```
    /// use petasos_portals::{MatchEntry, Quiet};
    ///
    /// // Events of failures alone, and none of the entry itself.
    /// let quiet = Quiet::SUCCESS.with(Quiet::LINK).with(Quiet::UNLINK);
    /// let entry = MatchEntry { quiet, ..MatchEntry::new(vec![0; 64]) };
    /// assert!(entry.quiet.has(Quiet::LINK) && !entry.quiet.has(Quiet::COMMUNICATION));
    /// ```
    Quiet: u8 {
        /// Of operations, at the target. At the initiator `Send` and `Reply`, and not `Ack`.
        COMMUNICATION = 0;
        /// Of operations that succeed; failures raise events.
        SUCCESS = 1;
        /// The entry is linked.
        LINK = 2;
        /// The entry was used up and unlinked, or its memory is free.
        UNLINK = 3;
        /// A message that came before the entry was appended.
        OVERFLOW = 4;
        /// The portal was disabled for want of room for a message that the entry would have taken.
        FLOW_CONTROL = 5;
        /// The memory of a put may be used again, at the initiator; failures raise events.
        SEND = 6;
        /// An operation begins (Portals 3).
        START = 7;
    }
}

impl Quiet {
    /// The events that Portals 4 does not have.
    pub(crate) const PORTALS_4: Quiet = Quiet::START;

    /// Whether any of `other` is in this set.
    #[inline]
    pub(crate) const fn any(self, other: Quiet) -> bool {
        self.0 & other.0 != 0
    }
}

flags! {
    /// What a counter counts (`PTL_ME_EVENT_CT_COMM` and the like).
    ///
    /// ```
    /// use petasos_portals::{Counts, Descriptor};
    ///
    /// // The bytes of puts that were acknowledged.
    /// let counts = Counts::ACK.with(Counts::BYTES);
    /// let source = Descriptor { counts, ..Descriptor::new(vec![0; 64]) };
    /// assert!(source.counts.has(Counts::BYTES) && !source.counts.has(Counts::SEND));
    /// ```
    Counts: u8 {
        /// Operations at an entry.
        COMMUNICATION = 0;
        /// Messages that came before the entry was appended.
        OVERFLOW = 1;
        /// Puts whose memory may be used again.
        SEND = 2;
        /// Replies.
        REPLY = 3;
        /// Acknowledgements.
        ACK = 4;
        /// Bytes instead of operations, of those that succeed.
        BYTES = 5;
    }
}
