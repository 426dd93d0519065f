//! What an endpoint did, and what it holds.

/// Counted since the endpoint was opened, but for `deferred` and `memory`, which are what is held
/// now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Packets of the engine's sent as short packets.
    pub mp: u64,
    /// Fetched by the receiver.
    pub shared: u64,
    /// Sent through exclusive channels.
    pub exclusive: u64,
    /// Their bytes in all, with the engine's headers.
    pub bytes: u64,
    /// Records sent: a long packet takes several.
    pub records: u64,
    /// Records sent as immediate puts.
    pub immediate: u64,
    /// Acknowledgements, which return window and credit, that rode on records.
    pub acks_ridden: u64,
    /// Those in control packets of their own.
    pub acks_explicit: u64,
    /// Exclusive channels given to senders.
    pub given: u64,
    /// Those taken back.
    pub taken: u64,
    /// Requests for one that were refused.
    pub refused: u64,
    /// Requests of ours that a peer refused.
    pub denied: u64,
    /// Times that the device or a channel had no room, and the same was tried again.
    pub retries: u64,
    /// Packets held because their turn has not come.
    pub deferred: u64,
    /// The most that there were.
    pub deferred_most: u64,
    /// Records whose data was fetched ahead of their turn.
    pub ahead: u64,
    /// Messages taken without an event ([`petasos_fabric::Endpoint::poll_message`]), and those
    /// injected without the engine's queue.
    pub short_in: u64,
    /// See `short_in`.
    pub short_out: u64,
    /// Accesses to remote memory carried out by the device.
    pub accesses: u64,
    /// Peers that broke the protocol of this layer.
    pub violations: u64,
    /// Bytes held in FIFOs, bounce buffers and deferred packets.
    pub memory: u64,
    /// Peers for which more than an entry in a table is kept.
    pub active: u64,
}
