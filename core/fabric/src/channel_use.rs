//! By which of its channels an endpoint reaches a peer.

use std::ops::RangeInclusive;

/// One of the channels by which messages to a peer travel, as
/// [`Endpoint::channels_of`](crate::Endpoint::channels_of) describes it: for display and tests.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelUse {
    /// What it is called: `short packets`, `exclusive FIFO` or `rendezvous`.
    pub name: &'static str,
    /// Whether it is there.
    pub state: ChannelState,
    /// Which messages take it, by their lengths in bytes, in order; the last may end with
    /// [`usize::MAX`]: those of any length. Of a channel that is not open: which would, if it were.
    pub sizes: Vec<RangeInclusive<usize>>,
    /// What may be sent by it before the peer acknowledges, where the channel is there.
    pub credit: Option<ChannelCredit>,
}

/// Whether a channel is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelState {
    /// Messages take it.
    Open,
    /// The peer was asked for it, and has not answered.
    Asked,
    /// No more messages take it; the peer has not taken all that did.
    Closing,
    /// There is none. It is asked for when there is enough traffic.
    Closed,
    /// The peer has refused it, and is asked again later.
    Refused,
    /// No message takes it, and it is not asked for.
    Never,
}

impl ChannelState {
    /// A word for it, as `petasos info` prints it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ChannelState::Open => "open",
            ChannelState::Asked => "asked for",
            ChannelState::Closing => "closing",
            ChannelState::Closed => "closed",
            ChannelState::Refused => "refused",
            ChannelState::Never => "never",
        }
    }
}

/// What a sender may use of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelCredit {
    /// How much is free.
    pub free: usize,
    /// How much there is in all.
    pub all: usize,
    /// What is counted: `packets`, `cells` or `regions`.
    pub unit: &'static str,
}

impl ChannelUse {
    /// A channel in this state, which no message takes.
    #[must_use]
    pub fn new(name: &'static str, state: ChannelState) -> ChannelUse {
        ChannelUse { name, state, sizes: Vec::new(), credit: None }
    }

    /// The same, which messages of these lengths take.
    #[must_use]
    pub fn with_sizes(self, sizes: Vec<RangeInclusive<usize>>) -> ChannelUse {
        ChannelUse { sizes, ..self }
    }

    /// The same, with so much of its credit free.
    #[must_use]
    pub fn with_credit(self, free: usize, all: usize, unit: &'static str) -> ChannelUse {
        ChannelUse { credit: Some(ChannelCredit { free, all, unit }), ..self }
    }
}
