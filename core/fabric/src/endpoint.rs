//! The trait that every transport provides.

use crate::{
    Access, Address, AllocError, Capabilities, ChannelUse, Completion, Event, ExportError,
    ImportError, InUse, Incarnation, InjectError, Key, KeyId, Lease, Notifier, Operation, Peer,
    PeerInfo, PeerQuota, PeerUsage, QuotaError, Refused, Region, RegionId, RegisterError, Remote,
    ResolveError, Slice, Time, Token, completion::next_completion, room::submit_each,
};
use std::{collections::VecDeque, ops::Range, os::fd::BorrowedFd, time::Duration};

/// One end of the fabric: an address that peers reach, driven by one thread at a time.
///
/// `Send`, so that another thread can take over driving it. To submit from other threads use
/// [`Handoff`](crate::Handoff). Dropping an endpoint ends it: peers see it as lost, operations that
/// are under way end without an event, and their memory is freed only when nothing can access it
/// any more: that of regions. A program that keeps it itself ([`Slice::raw`]) ends its operations,
/// and closes its regions, before it drops the endpoint.
///
/// It belongs to the process that opened it. A child that is forked has a copy, which it must not
/// use; dropped there, it does nothing that the parent or its peers would notice: see
/// [`Home`](crate::Home).
///
/// ```
/// use petasos_fabric::{Clock, Endpoint, Event};
/// use std::time::Duration;
///
/// let mut here = petasos_self::Local::open(&"self://*".parse()?)?;
/// let mut there = petasos_self::Local::open(&"self://*".parse()?)?;
/// let peer = here.resolve(there.address(), Duration::from_secs(1))?;
/// let (clock, mut events, mut sent) = (Clock::start(), Vec::new(), false);
/// let message = loop {
///     sent = sent || here.inject(peer, &[b"hello, ", b"world"]).is_ok();
///     here.progress(clock.now(), 64, &mut events);
///     there.progress(clock.now(), 64, &mut events);
///     if let Some(Event::Message { message, .. }) = events.pop() {
///         break message;
///     }
/// };
/// assert_eq!(&message[..], b"hello, world");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Endpoint: Send {
    /// The address at which peers reach this endpoint: complete, also when it was opened with a
    /// wildcard.
    fn address(&self) -> &Address;

    /// The incarnation of this endpoint.
    fn incarnation(&self) -> Incarnation;

    /// What this endpoint can do with every peer.
    fn capabilities(&self) -> &Capabilities;

    /// What this endpoint can do with this peer: at least what [`Endpoint::capabilities`] says.
    /// `None` for a stale or unknown handle.
    ///
    /// An endpoint that reaches its peers by different routes can do more with some than with all.
    /// These may differ: put and get, atomics, put with event, mapping, `native_event_from`,
    /// `passive_target` (the peer as the target), `ordered_access`, `fences`, `processor_atomics`,
    /// the enforcement, the credential, and `max_transfer` and `max_pieces`. The scheme, expected
    /// messages, the forwarding of keys and the other limits are those of the endpoint: it enforces
    /// them for all peers, or they count what it has itself (regions, peers, leases).
    ///
    /// Before the peer is up its route may not be known. Then this is what all peers have, and may
    /// become more; from `Event::PeerUp` on it does not change, but that a peer whose endpoint a
    /// thread drives says so a little later ([`Capabilities::attended`], `passive_target`).
    fn capabilities_of(&self, peer: Peer) -> Option<&Capabilities> {
        self.peer(peer).map(|_| self.capabilities())
    }

    /// A handle for the endpoint at `address`; the same one if it is known already and not lost.
    ///
    /// Never blocks. The connection is made by `progress`, whether or not something is submitted;
    /// a peer that has not started yet is tried again, gently, for `patience` (counted from the
    /// last `progress`, or if there was none, from the first). Meanwhile what is submitted waits,
    /// and `inject` may say `Full`. `Event::PeerUp` or `Event::PeerLost` tells the outcome.
    /// Resolving again a peer that is being connected extends the patience, and never cuts it.
    ///
    /// # Errors
    /// If the address is of another transport, makes no sense to this one, or there are
    /// `limits.max_peers` peers. That nothing listens there is no error here: an event says so.
    fn resolve(&mut self, address: &Address, patience: Duration) -> Result<Peer, ResolveError>;

    /// The same for a peer that is to be running already: it is lost at once if nothing listens
    /// there, so that its system refuses the connection, and not tried again.
    ///
    /// A peer that is being connected for a `resolve` goes on being tried. A transport that cannot
    /// tell a refusal from silence does what `resolve` does.
    ///
    /// # Errors
    /// As [`Endpoint::resolve`].
    fn resolve_running(
        &mut self,
        address: &Address,
        patience: Duration,
    ) -> Result<Peer, ResolveError> {
        self.resolve(address, patience)
    }

    /// What is known of a peer; `None` for a stale handle.
    fn peer(&self, peer: Peer) -> Option<PeerInfo>;

    /// By which channels messages to a peer travel now, where the transport has several that it
    /// chooses from by size and traffic: those of NICs (`petasos-channel`). Nothing for a stale
    /// handle, and from other transports. It is counted for each call, for display and tests.
    fn channels_of(&self, peer: Peer) -> Vec<ChannelUse> {
        let _ = peer;
        Vec::new()
    }

    /// Forgets a peer: the connection is closed, what is under way with it fails with
    /// `PeerLost(Forgotten)`, and the handle is stale from then on. No event of it is raised any
    /// more but these completions: neither `Event::PeerLost`, nor what it had sent and was not
    /// reported yet, nor that it came up.
    fn forget(&mut self, peer: Peer);

    /// Sets what a peer may have of this endpoint's memory, until it is lost; before, that is
    /// [`Limits::quota`](crate::Limits::quota). Messages for which there is no room wait with the
    /// peer until there is, or its quota is more, and no other peer's do. What the peer has beyond
    /// a quota that is less than the last one is asked back, as far as it does not use it; nothing
    /// is taken from it.
    ///
    /// # Errors
    /// [`QuotaError::UnknownPeer`] for a stale handle; [`QuotaError::Unsupported`] from a transport
    /// that has no such bounds ([`Capabilities::peer_quotas`]).
    fn set_quota(&mut self, peer: Peer, quota: PeerQuota) -> Result<(), QuotaError> {
        let _ = (peer, quota);
        Err(QuotaError::Unsupported("quotas of peers"))
    }

    /// What a peer has of its quota. `None` for a stale handle, and from a transport that has no
    /// quotas.
    fn usage(&self, peer: Peer) -> Option<PeerUsage> {
        let _ = peer;
        None
    }

    /// Tells the peers, those of later included, that a thread drives this endpoint while its
    /// program does not ([`PeerInfo::attended`]). For what drives it so:
    /// [`Attended`](crate::Attended). A transport that cannot tell it does nothing.
    fn set_attended(&mut self) {}

    /// Sends a short unexpected message, the concatenation of `parts`, in one go.
    ///
    /// The fast path: the bytes are taken before it returns, there is no completion. The message
    /// arrives, unless an event says that the peer is lost. At most `limits.max_inject` bytes in
    /// all. On [`InjectError::Full`] nothing was sent, and one `Event::Writable` follows when
    /// there is room again.
    ///
    /// # Errors
    /// [`InjectError::Full`] for now; [`InjectError::TooLong`], [`InjectError::PeerLost`] and
    /// [`InjectError::UnknownPeer`] for good. Nothing was sent.
    fn inject(&mut self, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError>;

    /// Accepts an operation, which raises exactly one `Event::Done`, never before this call
    /// returns.
    ///
    /// A peer that is slow, stopped or not connected yet fills what the endpoint has for it, and
    /// nothing else: at most `limits.max_operations` are under way, and one peer has no more of
    /// them than are free. So one that takes all it can get leaves half of them to others, and two
    /// leave a third.
    ///
    /// # Errors
    /// [`Refused`] gives the operation back, of which nothing was done, and says whether its peer
    /// is full, or the whole endpoint. Those of a peer that is lost are accepted, and fail.
    ///
    /// ```
    /// use petasos_fabric::{Endpoint, Full, Level, Operation, Payload, Token};
    /// use std::time::Duration;
    ///
    /// let mut here = petasos_self::Local::open(&"self://*".parse()?)?;
    /// let there = petasos_self::Local::open(&"self://*".parse()?)?;
    /// let peer = here.resolve(there.address(), Duration::from_secs(1))?;
    /// // The other end takes nothing in.
    /// let refused = (0..).find_map(|nth| {
    ///     let payload = Payload::Bytes("hello".into());
    ///     let (token, level) = (Token(nth), Level::Reusable);
    ///     here.try_submit(Operation::Send { token, peer, payload, level }).err()
    /// });
    /// let refused = refused.expect("there is a limit");
    /// assert_eq!(refused.full, Full::Peer);
    /// assert!(refused.operation.token().0 as usize <= here.capabilities().limits.max_operations);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn try_submit(&mut self, operation: Operation) -> Result<(), Refused>;

    /// Accepts operations of the queue as [`Endpoint::try_submit`] does, the first one first, until
    /// it is empty or the whole endpoint is full; what stays in it was not accepted, and keeps its
    /// order. If a peer is full, its operations are left, and those behind are accepted all the
    /// same. One call leaves at most a thousand operations, and those of 64 peers, before it ends.
    fn submit(&mut self, operations: &mut VecDeque<Operation>) {
        submit_each(self, operations);
    }

    /// Asks that the operation with this token end soon. It raises its one `Event::Done` either
    /// way: with its result if it was too late, with `Cancelled` if not. Unknown tokens are
    /// ignored, as are those of operations that `submit` left in the queue. Of two operations with
    /// one token either may be meant, and the other one may not be found by it from then on: give
    /// each a token of its own if any is to be cancelled. Once the completion is out, the
    /// operation's memory is neither written nor read, whatever the result.
    fn cancel(&mut self, token: Token);

    /// What of this endpoint touches some memory, if anything does: a posted receive, an operation
    /// that has not completed, one that has and of which a library below still has the memory
    /// ([`Operation::Get`]), or a region of it that is not deregistered. `None`: nothing reads or
    /// writes it any more, in this process or by a peer, unless the program submits it again or
    /// registers it. References that the program has do not count.
    ///
    /// It looks through all that is under way: for programs that want to give memory back, and wait
    /// for that ([`Drain`](crate::Drain)).
    fn in_use(&self, memory: &Slice) -> Option<InUse>;

    /// Moves everything on by a bounded amount (`budget` is about how many events), appends what
    /// happened to `events`, and says whether anything was done. Never blocks.
    ///
    /// `now` must not go backwards; it may be coarse, a millisecond old at most.
    fn progress(&mut self, now: Time, budget: usize, events: &mut Vec<Event>) -> bool;

    /// The next message, if one has arrived and no event comes before it: replaces `message` by it,
    /// and returns its sender.
    ///
    /// The fast path in, as `inject` is the fast path out: a message found here costs no event.
    /// Optional for both sides: transports without such a path return `None` always. A driver that
    /// uses it calls `progress` whenever this returned `None`, and now and then if it never does,
    /// as all else waits for `progress`. The time is that of the last `progress`.
    fn poll_message(&mut self, message: &mut Lease) -> Option<Peer> {
        let _ = message;
        None
    }

    /// The next completion, if it is ready and no event comes before it.
    ///
    /// The fast path back of operations, as `poll_message` is the fast path in: no pass, no event,
    /// 32 bytes. An operation completes once, here or as `Event::Done`.
    ///
    /// `None` says nothing of what is under way. Nothing may be ready without a pass; or what comes
    /// next is another event, which `progress` reports, and the completions behind it, each in its
    /// turn; or [`Streak::MOST`](crate::Streak::MOST) completions were taken since the last pass
    /// (of each endpoint that this one is made of), so that a driver that always finds one drives
    /// the endpoint all the same. In each case call `progress`, as [`Endpoint::next_completion`]
    /// does. Optional for both sides: transports without such a path return `None` always.
    fn poll_completion(&mut self) -> Option<Completion> {
        None
    }

    /// The next completion: from [`Endpoint::poll_completion`], or by a pass of
    /// [`Endpoint::progress`] where that has none. For programs that wait for operations, over any
    /// transport. Never blocks.
    ///
    /// `events` is what was reported and is still to be handled, in its order. If it is empty, a
    /// pass may put events there. Then the first of them is taken out, if it is a completion. If it
    /// is not, that and what follows stay there, and this returns `None`, now and until the caller
    /// has handled them: nothing is lost, and nothing passes another event. So after `None` a
    /// caller handles `events`: the first one alone, and calls again; or all of them, completions
    /// among them included. `None` with no events: there was nothing to report.
    ///
    /// `now` is as for `progress`. A failure is a completion: [`Completion::error`] has it.
    ///
    /// ```
    /// use petasos_fabric::{Clock, Endpoint, Event, Level, Operation, Payload, Status, Token};
    /// use std::time::Duration;
    ///
    /// let mut here = petasos_self::Local::open(&"self://*".parse()?)?;
    /// let mut there = petasos_self::Local::open(&"self://*".parse()?)?;
    /// let peer = here.resolve(there.address(), Duration::from_secs(1))?;
    /// let (token, payload) = (Token(1), Payload::Bytes("hello".into()));
    /// here.try_submit(Operation::Send { token, peer, payload, level: Level::Reusable })?;
    /// let (clock, mut events) = (Clock::start(), Vec::new());
    /// let done = loop {
    ///     if let Some(completion) = here.next_completion(clock.now(), &mut events) {
    ///         break completion;
    ///     }
    ///     if events.is_empty() {
    ///         there.progress(clock.now(), 64, &mut Vec::new());
    ///     } else {
    ///         // Another event came first; the completion may be right behind it.
    ///         assert!(matches!(events.remove(0), Event::PeerUp { .. }));
    ///     }
    /// };
    /// assert_eq!((done.token(), done.status()), (Token(1), Status::Sent));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn next_completion(&mut self, now: Time, events: &mut Vec<Event>) -> Option<Completion> {
        next_completion(self, now, events)
    }

    /// A spin hint between two passes in which there was nothing to do: waits for no more than a
    /// tenth of a microsecond, and less if a message arrives. For drivers that spin rather than
    /// sleep. A transport that can check for messages at less cost than a pass does so.
    fn relax(&self) {
        std::hint::spin_loop();
    }

    /// Prepares to sleep.
    ///
    /// After [`Sleep::Until`], the descriptor of [`Endpoint::fd`] becomes readable as soon as
    /// `progress` has something to do, or the notifier is used. After [`Sleep::Busy`], call
    /// `progress` again instead. Call `progress` after waking, and `arm` before each sleep.
    /// `progress` does not consume a notification: if the notifier was used since the last sleep
    /// began, this returns `Busy` or the descriptor is readable, so that no work that was handed
    /// over between the last `progress` and this call is slept through.
    fn arm(&mut self, now: Time) -> Sleep;

    /// A descriptor to sleep on (in `poll`, `epoll`, an event loop) once `arm` allowed it: wait
    /// for readable. `None` where a transport has nothing to wait on, as the simulated network.
    fn fd(&self) -> Option<BorrowedFd<'_>>;

    /// A handle that ends this endpoint's sleep from any thread.
    fn notifier(&self) -> Notifier;

    /// Allocates `len` bytes of the transport's memory, zeroed: peers can map it and read it in
    /// place where the capability says so. Elsewhere it is ordinary memory.
    ///
    /// # Errors
    /// [`AllocError::BadLength`] for no bytes, or more than an address space holds;
    /// [`AllocError::System`] if there is no such memory.
    fn alloc(&mut self, len: usize) -> Result<Region, AllocError> {
        if len == 0 || len > isize::MAX as usize {
            return Err(AllocError::BadLength(len));
        }
        Ok(Region::zeroed(len))
    }

    /// Opens memory to remote access, as far as `access` says. Local memory of operations need
    /// not be registered.
    ///
    /// # Errors
    /// [`RegisterError::TooMany`] beyond `limits.max_regions`, [`RegisterError::ReadOnly`] for
    /// writing or atomics on memory that may only be read, [`RegisterError::DeviceAtomics`],
    /// [`RegisterError::System`].
    fn register(&mut self, memory: &Slice, access: Access) -> Result<RegionId, RegisterError>;

    /// The key with which peers reach a registered region: opaque bytes to send to them.
    ///
    /// It ends with the region: deregistering ([`Operation::Deregister`]) makes every key to it
    /// fail, and completes only when no remote access can land any more.
    ///
    /// # Errors
    /// [`ExportError::UnknownRegion`] if the region is not registered here, or not any more;
    /// [`ExportError::TooLong`] if what a peer must know of it does not fit in a key.
    fn export(&self, region: RegionId) -> Result<Key, ExportError>;

    /// A key to a part of a registered region, with at most these rights: its holder reaches the
    /// bytes of `range` alone, at offsets from the start of the range, and
    /// [`Remote::len`](crate::Remote::len) is the length of the range.
    ///
    /// Each such key is independent of all others to the region. [`Operation::Revoke`] ends it by
    /// the handle that is returned with it, and deregistering the region ends all of them. The
    /// owner checks the range and the rights at each access, on every transport but `self`
    /// (where the initiator's side of the process does): a holder that is another process cannot
    /// exceed them, whatever [`Capabilities::enforcement`](crate::Capabilities) says of keys to
    /// whole regions. That costs speed where the network would do without the owner:
    /// [`Capabilities::part_keys`](crate::Capabilities) tells. At most `limits.max_keys` of them
    /// exist at a time.
    ///
    /// # Errors
    /// [`ExportError::UnknownRegion`] as `export`; [`ExportError::Denied`] for rights that the
    /// region does not have; [`ExportError::OutOfBounds`] if the range is not within the region;
    /// [`ExportError::TooMany`] beyond the limit; [`ExportError::TooLong`] as `export`;
    /// [`ExportError::Unsupported`] from a transport that has no such keys.
    ///
    /// ```
    /// use petasos_fabric::{Access, Endpoint, ExportError, Operation, Region, Token};
    ///
    /// let mut endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
    /// let memory = Region::zeroed(4096);
    /// let region = endpoint.register(&memory.whole(), Access::READ)?;
    /// // One page of results for one client, for as long as it is served.
    /// let (id, key) = endpoint.export_part(region, 1024..2048, Access::READ)?;
    /// assert_eq!(endpoint.import(&key)?.len, 1024);
    /// let more = endpoint.export_part(region, 0..1024, Access::WRITE);
    /// assert!(matches!(more, Err(ExportError::Denied { .. })));
    /// let patience = Operation::PATIENCE;
    /// let revoke = Operation::Revoke { token: Token(1), key: id, patience };
    /// endpoint.submit(&mut [revoke].into());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn export_part(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
    ) -> Result<(KeyId, Key), ExportError> {
        let _ = (region, range, access);
        Err(ExportError::Unsupported("keys to parts of regions"))
    }

    /// Opens a part of a registered region under a number of the program's choice. A peer that
    /// knows this endpoint, the number and the length reaches it by [`Endpoint::import_number`],
    /// without having been sent a key. Otherwise it is as a key of [`Endpoint::export_part`]: it
    /// has a range and rights of its own, is revoked by its handle, ends with the region, and is
    /// counted among them.
    ///
    /// A number is no secret: every peer of this endpoint may use it. It names what is open under
    /// it at the moment of an access: if it was revoked and is given to other memory, handles that
    /// peers imported before reach that. So a program uses a number again only when its peers know.
    ///
    /// # Errors
    /// As [`Endpoint::export_part`], and [`ExportError::Taken`] if the number is in use here.
    ///
    /// ```
    /// use petasos_fabric::{Access, Endpoint, ExportError, Region};
    /// use std::time::Duration;
    ///
    /// let mut owner = petasos_self::Local::open(&"self://*".parse()?)?;
    /// let region = owner.register(&Region::zeroed(4096).whole(), Access::ALL)?;
    /// owner.export_number(region, 0..4096, Access::READ, 7)?;
    /// let again = owner.export_number(region, 0..8, Access::READ, 7);
    /// assert_eq!(again, Err(ExportError::Taken { number: 7 }));
    ///
    /// let mut user = petasos_self::Local::open(&"self://*".parse()?)?;
    /// let peer = user.resolve(owner.address(), Duration::from_secs(1))?;
    /// let remote = user.import_number(peer, 7, 4096)?;
    /// assert_eq!((remote.peer, remote.len), (peer, 4096));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn export_number(
        &mut self,
        region: RegionId,
        range: Range<u64>,
        access: Access,
        number: u64,
    ) -> Result<KeyId, ExportError> {
        let _ = (region, range, access, number);
        Err(ExportError::Unsupported("memory under numbers"))
    }

    /// Prepares the use of a key that a peer sent; resolves its owner when needed.
    ///
    /// The key is checked here; whether its region still exists shows with the operations.
    ///
    /// # Errors
    /// If the bytes are no key, the key has no route for this endpoint, its owner cannot be
    /// resolved or is known as another incarnation ([`ImportError::Stale`]), or too many keys are
    /// imported.
    fn import(&mut self, key: &Key) -> Result<Remote, ImportError>;

    /// The same for a key that came from this peer. If it is of this peer's own memory, it is
    /// reached over the connection by which the key came, also where it was not verified that the
    /// peer is at the address that it has (`petasos-tcp` says when that is); otherwise it is as
    /// [`Endpoint::import`] has it.
    ///
    /// # Errors
    /// As [`Endpoint::import`].
    fn import_from(&mut self, key: &Key, from: Peer) -> Result<Remote, ImportError> {
        let _ = from;
        self.import(key)
    }

    /// Prepares the use of `len` bytes that a peer has opened under a number, by
    /// [`Endpoint::export_number`].
    ///
    /// Nothing is asked of the peer: that there is no such memory there, that it is shorter, or
    /// that it allows less, shows with the operations, as `StaleKey`, `OutOfBounds` or `Denied`.
    /// The handle is good for this life of the peer.
    ///
    /// # Errors
    /// [`ImportError::UnknownPeer`] for a stale handle; [`ImportError::TooMany`] as `import`;
    /// [`ImportError::NoRoute`] if it is not known yet how the peer is reached (`auto`, for an
    /// address that does not name the peer's members, before `Event::PeerUp`);
    /// [`ImportError::Unsupported`] from a transport that has no memory under numbers.
    fn import_number(&mut self, peer: Peer, number: u64, len: u64) -> Result<Remote, ImportError> {
        let _ = (peer, number, len);
        Err(ImportError::Unsupported("memory under numbers"))
    }

    /// Gives back what `import` gave. Operations under way finish.
    fn release(&mut self, remote: Remote);
}

/// What [`Endpoint::arm`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// There is more to do: do not sleep.
    Busy,
    /// Sleep until the descriptor is readable, or until this time ([`Time::NEVER`]: for good).
    Until(Time),
}
