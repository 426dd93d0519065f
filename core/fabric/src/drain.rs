//! Waiting until nothing of an endpoint touches some memory any more.

use crate::{Endpoint, Peer, Slice, Time, Token};
use std::{fmt, time::Duration};

/// What of an endpoint touches some memory: [`Endpoint::in_use`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct InUse {
    /// What it is, in words: "a posted receive", say.
    pub what: &'static str,
    /// The operation, where it is one that has not completed.
    pub token: Option<Token>,
    /// The peer that it is with, where that is known.
    pub peer: Option<Peer>,
}

impl InUse {
    /// Something that is neither an operation of the program nor with a peer that is known.
    #[must_use]
    pub fn new(what: &'static str) -> InUse {
        InUse { what, token: None, peer: None }
    }

    /// The same with an operation.
    #[must_use]
    pub fn by(self, token: Token) -> InUse {
        InUse { token: Some(token), ..self }
    }

    /// The same with a peer.
    #[must_use]
    pub fn with(self, peer: Option<Peer>) -> InUse {
        InUse { peer, ..self }
    }
}

impl fmt::Display for InUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what)?;
        match self.token {
            Some(Token(token)) => write!(f, " (operation {token})"),
            None => Ok(()),
        }
    }
}

/// Memory was still touched when the patience was over. It stays as it was: wait again, or end what
/// touches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory is still in use after {patience:?}: {by}")]
#[non_exhaustive]
pub struct StillUsed {
    /// What touches it: one of several, perhaps.
    pub by: InUse,
    /// How long was waited.
    pub patience: Duration,
}

impl StillUsed {
    /// What touches it, after so long.
    #[must_use]
    pub fn new(by: InUse, patience: Duration) -> StillUsed {
        StillUsed { by, patience }
    }
}

/// How soon to look again: what a library lets go of wakes no thread.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Waits until nothing of an endpoint touches some memory: then it can be given back, or unmapped.
///
/// A count of references does not tell, as the program's own slices are counted in it, and raw
/// memory ([`Slice::raw`]) has none. So while one waits, and only then, what the endpoint has under
/// way is looked through in each pass. An operation that is submitted meanwhile counts, too.
///
/// ```
/// use petasos_fabric::{Clock, Drain, Endpoint, Event, Operation, Region, Token};
/// use std::time::Duration;
///
/// let mut endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// let memory = Region::zeroed(4096);
/// let (token, into) = (Token(1), memory.whole());
/// endpoint.submit(
///     &mut [Operation::PostReceive { token, source: None, tag: 1, ignore: 0, into }].into(),
/// );
/// let (clock, mut events) = (Clock::start(), Vec::new());
/// let mut pass = |endpoint: &mut petasos_self::Local, drain: &mut Drain| loop {
///     let now = clock.now();
///     endpoint.progress(now, 64, &mut events);
///     if let Some(result) = drain.poll(endpoint, now) {
///         break result;
///     }
/// };
/// // Nobody sends: the receive is still posted when the patience is over.
/// let mut drain = Drain::new(memory.whole(), Duration::from_millis(1));
/// let used = pass(&mut endpoint, &mut drain).expect_err("it is posted");
/// assert_eq!(used.by.token, Some(token));
/// // When it is cancelled, nothing is left.
/// endpoint.cancel(token);
/// let mut drain = Drain::new(memory.whole(), Duration::from_secs(5));
/// assert!(pass(&mut endpoint, &mut drain).is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Drain {
    memory: Slice,
    patience: Duration,
    /// Known from the first pass on.
    until: Option<Time>,
}

impl Drain {
    /// Waits for this memory, for so long from the first [`Drain::poll`] on. Dropping it ends the
    /// wait, and nothing else.
    #[must_use]
    pub fn new(memory: Slice, patience: Duration) -> Drain {
        Drain { memory, patience, until: None }
    }

    /// The memory.
    #[must_use]
    pub fn memory(&self) -> &Slice {
        &self.memory
    }

    /// Looks whether the endpoint touches the memory. After each `progress`, with its time; `None`
    /// while there is to be waited.
    ///
    /// # Errors
    /// [`StillUsed`] if it does, and the patience is over. Then, as after a success, the next call
    /// begins to wait anew.
    pub fn poll<E: Endpoint + ?Sized>(
        &mut self,
        endpoint: &E,
        now: Time,
    ) -> Option<Result<(), StillUsed>> {
        let until = *self.until.get_or_insert(now.after(self.patience));
        let result = match endpoint.in_use(&self.memory) {
            None => Ok(()),
            Some(by) if until <= now => Err(StillUsed::new(by, self.patience)),
            Some(_) => return None,
        };
        self.until = None;
        Some(result)
    }

    /// Until when to sleep at most, while it waits.
    #[must_use]
    pub fn deadline(&self, now: Time) -> Time {
        self.until.map_or(now, |until| until.min(now.after(LOOK_AGAIN)))
    }
}
