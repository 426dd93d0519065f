//! Small sets of choices.

/// Declares a set of flags: constants, and how to put them together and ask for them.
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
    /// What an entry lets others do.
    Accepts: u8 {
        /// Put, and with both the rest: atomics that fetch, and swaps.
        PUT = 0;
        /// Get.
        GET = 1;
    }
}

flags! {
    /// Which events are not wanted: of a target's entry, or of an initiator's descriptor.
    Quiet: u8 {
        /// Those of operations, at the target. At the initiator `Send` and `Reply`, and not `Ack`.
        COMMUNICATION = 0;
        /// Those of success; failures are told.
        SUCCESS = 1;
        /// The entry is linked.
        LINK = 2;
        /// It was unlinked, or its memory is free, without being asked for.
        UNLINK = 3;
        /// A message that came before the entry did.
        OVERFLOW = 4;
        /// The portal was disabled for want of room for a message that the entry would have taken.
        FLOW_CONTROL = 5;
        /// The memory of a put may be used again, at the initiator; failures are told.
        SEND = 6;
        /// An operation begins (Portals 3).
        START = 7;
    }
}

impl Quiet {
    /// What Portals 4 knows nothing of.
    pub(crate) const PORTALS_4: Quiet = Quiet::START;

    /// Whether any of `other` is in this set.
    #[inline]
    pub(crate) const fn any(self, other: Quiet) -> bool {
        self.0 & other.0 != 0
    }
}

flags! {
    /// What a counter counts.
    Counts: u8 {
        /// Operations at an entry.
        COMMUNICATION = 0;
        /// Messages that came before the entry did.
        OVERFLOW = 1;
        /// Puts whose memory may be used again.
        SEND = 2;
        /// Replies.
        REPLY = 3;
        /// Acknowledgements.
        ACK = 4;
        /// Bytes instead of operations, where they succeed.
        BYTES = 5;
    }
}
