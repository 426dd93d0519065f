//! One receive that is posted with several endpoints.

use crate::Slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The memory of a receive that several endpoints are [offered](crate::Operation::PostOffered), of
/// which the first that has a message for it takes it. For endpoints that are made of others: a
/// receive from any source is posted with each of them, and matched once.
///
/// The endpoints are driven by one thread, or by one at a time. What the others were given holds no
/// memory; the operation of each completes all the same, with `Cancelled` at the latest when it is
/// cancelled.
///
/// ```
/// use petasos_fabric::{Offer, Region};
///
/// let offer = Offer::new(Region::zeroed(100).whole());
/// let (one, other) = (offer.to(0), offer.to(1));
/// assert!(one.is_open() && other.is_open());
/// assert_eq!(other.take().map(|memory| memory.len()), Some(100));
/// // It is taken, and the process that has it is known.
/// assert!(one.take().is_none() && offer.withdraw().is_none());
/// assert_eq!(offer.taker(), Some(1));
/// ```
#[derive(Debug)]
pub struct Offer {
    state: Arc<Mutex<State>>,
}

/// What one of the endpoints gets. Dropping it declines.
#[derive(Debug)]
pub struct Offered {
    state: Arc<Mutex<State>>,
    nth: u32,
}

#[derive(Debug)]
struct State {
    into: Option<Slice>,
    taker: Option<u32>,
}

/// The memory of a receive that waits for an expected message: for endpoints that match such
/// messages themselves.
#[derive(Debug)]
pub enum Room {
    /// That of a [`PostReceive`](crate::Operation::PostReceive).
    Own(Slice),
    /// That of a [`PostOffered`](crate::Operation::PostOffered): another endpoint may take it
    /// before.
    Offered(Offered),
}

impl Room {
    /// Whether it is not gone to another endpoint.
    #[must_use]
    pub fn is_there(&self) -> bool {
        match self {
            Room::Own(_) => true,
            Room::Offered(offered) => offered.is_open(),
        }
    }

    /// Whether it is in part this memory.
    #[must_use]
    pub fn overlaps(&self, memory: &Slice) -> bool {
        match self {
            Room::Own(into) => into.overlaps(memory),
            Room::Offered(offered) => offered.overlaps(memory),
        }
    }

    /// Takes it, for a message that is there; `None` if it is gone: see [`Offered::take`].
    #[must_use]
    pub fn take(self) -> Option<Slice> {
        match self {
            Room::Own(into) => Some(into),
            Room::Offered(offered) => offered.take(),
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    // Nothing panics while it is held.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Offer {
    /// Offers this memory.
    #[must_use]
    pub fn new(into: Slice) -> Offer {
        let state = State { into: Some(into), taker: None };
        Offer { state: Arc::new(Mutex::new(state)) }
    }

    /// For one of the endpoints, which `nth` names.
    #[must_use]
    pub fn to(&self, nth: u32) -> Offered {
        Offered { state: Arc::clone(&self.state), nth }
    }

    /// Whether no process has taken it, and it was not withdrawn.
    #[must_use]
    pub fn is_open(&self) -> bool {
        lock(&self.state).into.is_some()
    }

    /// Who has taken it.
    #[must_use]
    pub fn taker(&self) -> Option<u32> {
        lock(&self.state).taker
    }

    /// Takes the memory back; `None` if it was taken or withdrawn before. No endpoint takes it from
    /// now on.
    #[must_use]
    pub fn withdraw(&self) -> Option<Slice> {
        lock(&self.state).into.take()
    }
}

impl Offered {
    /// Takes the memory, for a message that is there; `None` if another endpoint has, or it was
    /// withdrawn: then the operation completes with `Cancelled`.
    #[must_use]
    pub fn take(&self) -> Option<Slice> {
        let mut state = lock(&self.state);
        let into = state.into.take()?;
        state.taker = Some(self.nth);
        Some(into)
    }

    /// Whether it can still be taken.
    #[must_use]
    pub fn is_open(&self) -> bool {
        lock(&self.state).into.is_some()
    }

    /// Whether the memory, if it can still be taken, is in part this one.
    #[must_use]
    pub fn overlaps(&self, memory: &Slice) -> bool {
        lock(&self.state).into.as_ref().is_some_and(|into| into.overlaps(memory))
    }

    /// Whether messages may be written to the memory. True if it is gone.
    #[must_use]
    pub fn is_writable(&self) -> bool {
        lock(&self.state).into.as_ref().is_none_or(|into| into.is_writable() || into.is_empty())
    }
}
