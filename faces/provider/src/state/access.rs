//! Access to the memory of peers: put, get and atomics by numbers of 64 bits, which stand for the
//! fabric's keys.
//!
//! The first access by a number asks its owner for the key; meanwhile it waits. What the owner has
//! closed since, and opened again under the same number, is asked for once more.

use super::{
    Endpoint, Shared,
    endpoint::{Op, failure},
    error::Errno,
    matching::write,
    queue::Entry,
    wire::Packet,
};
use crate::limits::{ASK_AGAIN, WAITING};
use petasos_fabric::{
    AtomicOp, AtomicType, Done, Endpoint as _, Key, Level, OpError, OpErrorKind, Operation, Peer,
    Remote, RemoteSpan, Time, Token, operation::Slices,
};
use petasos_ofi_sys::*;
use smallvec::SmallVec;
use std::collections::HashMap;

/// What is done to memory.
#[derive(Clone)]
pub(crate) enum Kind {
    Put {
        local: Slices,
        data: Option<u64>,
    },
    Get {
        local: Slices,
    },
    Atomic {
        op: AtomicOp,
        of: AtomicType,
        operand: SmallVec<[u8; 16]>,
        compare: SmallVec<[u8; 16]>,
        /// Where the old values go.
        fetch: Option<Slices>,
    },
}

/// An access to the memory of a peer.
pub(crate) struct Access {
    pub(super) peer: Peer,
    /// The peer's number.
    pub(crate) to: u64,
    /// The number of the memory.
    pub(crate) number: u64,
    /// Where, as the owner names it.
    pub(crate) address: u64,
    pub(crate) kind: Kind,
    pub(crate) context: usize,
    pub(crate) report: bool,
    /// `FI_FENCE`: only when all before it is over.
    pub(crate) fence: bool,
    retried: bool,
}

/// What is known of a number of a peer's.
#[derive(Clone, Copy, Debug)]
enum State {
    Asked(Time),
    Known {
        remote: Remote,
        base: u64,
    },
    /// There is none: told to those that wait, and then asked again.
    Missing,
}

/// The numbers of one peer.
#[derive(Debug, Default)]
pub(super) struct Keys(HashMap<u64, State>);

impl Keys {
    /// The handles that were imported for them.
    pub(super) fn remotes(&self) -> impl Iterator<Item = Remote> {
        self.0.values().filter_map(|state| match state {
            State::Known { remote, .. } => Some(*remote),
            _ => None,
        })
    }
}

/// Whether an access was refused as one is whose number has become that of other memory: what is
/// known of that, its length and rights among it, is asked for again.
fn is_of_another(kind: &OpErrorKind) -> bool {
    matches!(
        kind,
        OpErrorKind::StaleKey | OpErrorKind::OutOfBounds { .. } | OpErrorKind::Denied { .. }
    )
}

impl Access {
    pub(crate) fn new(to: u64, number: u64, address: u64, kind: Kind) -> Access {
        let peer = Peer { index: u32::MAX, generation: 0 };
        let (context, report, fence, retried) = (0, false, false, false);
        Access { peer, to, number, address, kind, context, report, fence, retried }
    }

    fn entry(&self) -> Entry {
        let flags = match &self.kind {
            Kind::Put { .. } => FI_RMA | FI_WRITE,
            Kind::Get { .. } => FI_RMA | FI_READ,
            Kind::Atomic { fetch: Some(_), .. } => FI_ATOMIC | FI_READ,
            Kind::Atomic { fetch: None, .. } => FI_ATOMIC | FI_WRITE,
        };
        Entry { context: self.context, flags, ..Entry::default() }
    }

    fn operation(&self, token: Token, remote: Remote, offset: u64) -> Operation {
        let span = |local: &Slices| {
            let len = local.iter().map(|piece| piece.len() as u64).sum();
            [RemoteSpan { offset, len }].into()
        };
        match &self.kind {
            Kind::Put { local, data } => Operation::Put {
                token,
                remote,
                spans: span(local),
                local: local.clone(),
                level: Level::Visible,
                event: *data,
            },
            Kind::Get { local } => {
                Operation::Get { token, remote, spans: span(local), local: local.clone() }
            }
            Kind::Atomic { op, of, operand, compare, fetch } => Operation::Atomic {
                token,
                remote,
                offset,
                op: *op,
                kind: *of,
                operand: operand.clone(),
                compare: compare.clone(),
                fetch: fetch.is_some(),
            },
        }
    }
}

impl Endpoint {
    /// Accesses memory of a peer.
    ///
    /// # Errors
    /// `EAGAIN`, if there is no room for it now; the peer has no number.
    pub(crate) fn access(&mut self, shared: &mut Shared, access: Access) -> Result<(), Errno> {
        let mut access = Box::new(access);
        access.peer = self.route(shared, access.to)?;
        if access.fence && !self.may_pass(shared, &access)? {
            return Ok(());
        }
        let has_key = self.has_key(&access);
        if self.waiting.iter().any(|other| other.peer == access.peer)
            || !has_key
            || self.is_behind(&access)
        {
            if self.waiting.len() >= WAITING {
                return Err(libc::EAGAIN);
            }
            if !has_key {
                self.ask(shared, access.peer, access.number);
            }
            self.began(access.peer);
            self.waiting.push_back(access);
            return Ok(());
        }
        let peer = access.peer;
        self.began(peer);
        self.start(shared, access).map_err(|_| {
            self.ended(peer);
            libc::EAGAIN
        })
    }

    /// Whether an access with a fence may be handed to the fabric now, which sees to the messages
    /// that were sent before it. Accesses before it that wait for a key are not seen there, and one
    /// whose key has become another one's begins again: so all of them have to be over, and its own
    /// key has to be known. False: it has failed, and that was told.
    ///
    /// # Errors
    /// `EAGAIN`: not yet.
    fn may_pass(&mut self, shared: &mut Shared, access: &Access) -> Result<bool, Errno> {
        let Some(known) = self.known(access.peer) else { return Ok(true) };
        match known.keys.0.get(&access.number) {
            Some(State::Known { .. }) if known.accesses == 0 => Ok(true),
            Some(State::Missing) if known.accesses == 0 => {
                known.keys.0.remove(&access.number);
                let error = OpError::local(OpErrorKind::StaleKey);
                let counter = self.counter(access);
                shared.failed(self.transmit, counter, failure(access.entry(), &error));
                Ok(false)
            }
            Some(State::Known { .. } | State::Missing) => Err(libc::EAGAIN),
            _ => {
                self.ask(shared, access.peer, access.number);
                Err(libc::EAGAIN)
            }
        }
    }

    /// How many accesses to the memory of a peer have not ended.
    pub(super) fn accesses(&mut self, peer: Peer) -> usize {
        self.known(peer).map_or(0, |known| known.accesses)
    }

    fn began(&mut self, peer: Peer) {
        if let Some(known) = self.known(peer) {
            known.accesses += 1;
        }
    }

    fn ended(&mut self, peer: Peer) {
        if let Some(known) = self.known(peer) {
            known.accesses = known.accesses.saturating_sub(1);
        }
    }

    /// Whether an atomic has to wait for one before it, as the program asked for their order. The
    /// fabric's own may pass each other.
    fn is_behind(&mut self, access: &Access) -> bool {
        self.ordered_atomics
            && matches!(access.kind, Kind::Atomic { .. })
            && self.known(access.peer).is_some_and(|known| known.atomics > 0)
    }

    /// An access is not the fabric's any more.
    pub(super) fn came_back(&mut self, access: &Access) {
        if matches!(access.kind, Kind::Atomic { .. })
            && let Some(known) = self.known(access.peer)
        {
            known.atomics = known.atomics.saturating_sub(1);
        }
    }

    fn has_key(&mut self, access: &Access) -> bool {
        let keys = self.known(access.peer).map(|known| &known.keys.0);
        matches!(keys.and_then(|keys| keys.get(&access.number)), Some(State::Known { .. }))
    }

    /// Submits an access by a key that is known. Gives it back if there is no room.
    fn start(&mut self, shared: &mut Shared, access: Box<Access>) -> Result<(), Box<Access>> {
        let keys = self.known(access.peer).map(|known| &known.keys.0);
        let Some(&State::Known { remote, base }) = keys.and_then(|keys| keys.get(&access.number))
        else {
            return Err(access);
        };
        let Some(offset) = access.address.checked_sub(base) else {
            let (offset, len) = (access.address, 0);
            let kind = OpErrorKind::OutOfBounds { offset, len, bound: remote.len };
            self.accessed(shared, access, Err(OpError::local(kind)));
            return Ok(());
        };
        let Some(net) = &mut self.net else { return Err(access) };
        let at = self.operations.vacant_key();
        let mut operation = access.operation(Token(at as u64), remote, offset);
        if access.fence {
            operation = operation.fenced();
        }
        if net.try_submit(operation).is_err() {
            return Err(access);
        }
        if matches!(access.kind, Kind::Atomic { .. })
            && let Some(known) = self.known(access.peer)
        {
            known.atomics += 1;
        }
        self.operations.insert(Op::Accessed(access));
        Ok(())
    }

    /// Asks for a key, if that was not done just now.
    fn ask(&mut self, shared: &Shared, peer: Peer, number: u64) {
        let now = shared.now();
        let Some(known) = self.known(peer) else { return };
        if let Some(State::Asked(when)) = known.keys.0.get(&number)
            && now.since(*when) < ASK_AGAIN
        {
            return;
        }
        known.keys.0.insert(number, State::Asked(now));
        self.answer(peer, &Packet::Ask { number });
    }

    /// The owner has answered.
    pub(super) fn got_key(
        &mut self,
        shared: &mut Shared,
        peer: Peer,
        number: u64,
        key: Option<(u64, Vec<u8>)>,
    ) {
        // Only what was asked for is taken.
        let Some(known) = self.known(peer) else { return };
        if !matches!(known.keys.0.get(&number), Some(State::Asked(_))) {
            return;
        }
        let imported = key.and_then(|(base, key)| {
            let key = Key::from_bytes(key).ok()?;
            let remote = self.net.as_mut()?.import_from(&key, peer).ok()?;
            Some((remote, base))
        });
        let state = match imported {
            // A peer opens its own memory, and no other's.
            Some((remote, base)) if remote.peer == peer => State::Known { remote, base },
            _ => State::Missing,
        };
        if let Some(known) = self.known(peer) {
            known.keys.0.insert(number, state);
        }
        self.retry(shared);
    }

    /// Goes on with accesses that waited, in their order for each peer.
    pub(super) fn retry(&mut self, shared: &mut Shared) {
        let mut stopped = SmallVec::<[Peer; 4]>::new();
        let mut missing = SmallVec::<[(Peer, u64); 2]>::new();
        for _ in 0..self.waiting.len() {
            let Some(access) = self.waiting.pop_front() else { break };
            let (peer, number) = (access.peer, access.number);
            if stopped.contains(&peer) {
                self.waiting.push_back(access);
                continue;
            }
            let state = self.known(peer).and_then(|known| known.keys.0.get(&number).copied());
            if self.is_behind(&access) {
                stopped.push(peer);
                self.waiting.push_back(access);
                continue;
            }
            match state {
                Some(State::Known { .. }) => {
                    if let Err(access) = self.start(shared, access) {
                        stopped.push(peer);
                        self.waiting.push_back(access);
                    }
                }
                Some(State::Missing) => {
                    missing.push((peer, number));
                    let error = OpError::local(OpErrorKind::StaleKey);
                    let entry = access.entry();
                    self.refused(shared, &access, entry, &error);
                }
                _ => {
                    self.ask(shared, peer, number);
                    stopped.push(peer);
                    self.waiting.push_back(access);
                }
            }
        }
        for (peer, number) in missing {
            if let Some(known) = self.known(peer) {
                known.keys.0.remove(&number);
            }
        }
    }

    /// An access has ended.
    pub(super) fn accessed(
        &mut self,
        shared: &mut Shared,
        mut access: Box<Access>,
        result: Result<Done, OpError>,
    ) {
        let entry = access.entry();
        match result {
            Ok(done) => {
                if let (Done::Fetched(old), Kind::Atomic { fetch: Some(into), .. }) =
                    (done, &access.kind)
                {
                    write(into, &old);
                }
                let counter = self.counter(&access);
                self.ended(access.peer);
                shared.done(self.transmit, counter, access.report, entry);
            }
            Err(error) if is_of_another(&error.kind) && !access.retried => {
                // Closed, or closed and opened again: for other memory, of another length.
                access.retried = true;
                if let Some(State::Known { remote, .. }) =
                    self.known(access.peer).and_then(|known| known.keys.0.remove(&access.number))
                    && let Some(net) = &mut self.net
                {
                    net.release(remote);
                }
                self.ask(shared, access.peer, access.number);
                // It began before those that wait.
                self.waiting.push_front(access);
            }
            Err(error) => self.refused(shared, &access, entry, &error),
        }
    }

    fn refused(&mut self, shared: &mut Shared, access: &Access, entry: Entry, error: &OpError) {
        self.ended(access.peer);
        let counter = self.counter(access);
        shared.failed(self.transmit, counter, failure(entry, error));
    }

    fn counter(&self, access: &Access) -> Option<usize> {
        match &access.kind {
            Kind::Get { .. } | Kind::Atomic { fetch: Some(_), .. } => self.counts.read,
            _ => self.counts.write,
        }
    }
}
