//! What is compared: envelopes of messages, and the patterns that take them.

/// What of a message is matched.
///
/// ```
/// use petasos_match::{Envelope, Pattern};
///
/// let envelope = Envelope::new(3, 0x2a);
/// assert!(Pattern::new(Some(3), 0x2a, 0).matches(envelope));
/// assert!(Pattern::new(None, 0x20, 0x0f).matches(envelope), "any source, four bits ignored");
/// assert!(!Pattern::new(Some(4), 0x2a, 0).matches(envelope));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Envelope {
    /// Where it comes from.
    pub source: u64,
    /// Its match bits: the tag.
    pub bits: u64,
}

impl Envelope {
    /// The envelope of a message from this source, with these match bits.
    #[must_use]
    #[inline]
    pub fn new(source: u64, bits: u64) -> Envelope {
        Envelope { source, bits }
    }
}

/// Which envelopes are taken: match bits, some of which do not count, and a source, parts of which
/// may be any.
///
/// ```
/// use petasos_match::{Envelope, Pattern};
///
/// let exact = Pattern::new(Some(3), 7, 0);
/// assert_eq!(exact.exact(), Some(Envelope::new(3, 7)));
/// assert_eq!(exact.source(), Some(3));
///
/// let any = Pattern::new(None, 7, 0xff00);
/// assert!(any.matches(Envelope::new(12, 0xab07)));
/// assert_eq!((any.exact(), any.source()), (None, None));
///
/// // Sources of two halves, node and process: process 5 of any node.
/// let process = Pattern::of_parts(5, u64::from(u32::MAX), 7, 0);
/// assert!(process.matches(Envelope::new(9 << 32 | 5, 7)));
/// assert!(!process.matches(Envelope::new(9 << 32 | 6, 7)));
/// ```
// Bits that do not count are zero in `bits` and `source`, so that equal patterns are equal words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    pub(crate) bits: u64,
    pub(crate) ignore: u64,
    pub(crate) source: u64,
    /// The bits of the source that count.
    pub(crate) mask: u64,
}

impl Pattern {
    /// Takes messages from this source, or from any, with these match bits, except for those set in
    /// `ignore`.
    #[must_use]
    #[inline]
    pub fn new(source: Option<u64>, bits: u64, ignore: u64) -> Pattern {
        let mask = if source.is_some() { u64::MAX } else { 0 };
        Pattern::of_parts(source.unwrap_or(0), mask, bits, ignore)
    }

    /// The same where only the bits of the source that are set in `mask` count.
    #[must_use]
    #[inline]
    pub fn of_parts(source: u64, mask: u64, bits: u64, ignore: u64) -> Pattern {
        Pattern { bits: bits & !ignore, ignore, source: source & mask, mask }
    }

    /// Whether it takes messages with this envelope.
    #[must_use]
    #[inline]
    pub fn matches(&self, envelope: Envelope) -> bool {
        ((envelope.bits ^ self.bits) & !self.ignore) | ((envelope.source ^ self.source) & self.mask)
            == 0
    }

    /// The only envelope that it takes, if it has no wildcards.
    #[must_use]
    #[inline]
    pub fn exact(&self) -> Option<Envelope> {
        let exact = self.ignore == 0 && self.mask == u64::MAX;
        exact.then_some(Envelope { bits: self.bits, source: self.source })
    }

    /// The only source that it takes messages from, if all of the source counts.
    #[must_use]
    #[inline]
    pub fn source(&self) -> Option<u64> {
        (self.mask == u64::MAX).then_some(self.source)
    }
}
