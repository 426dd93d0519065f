//! How far an access has come: in the pieces of local memory, and in the spans of remote memory.
//!
//! The two lists of a put or get have the same total length, and are cut at different places. A
//! transport moves them in *stretches*, each of which lies within one piece and one span.

use crate::{RemoteSpan, Slice};

/// A place in a list of spans, which may have empty ones among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCursor {
    span: usize,
    /// Bytes of that span that lie behind.
    at: u64,
}

impl SpanCursor {
    /// The rest of the span in which this is, or the next that is not empty; `None` at the end.
    #[inline]
    pub fn rest(&mut self, spans: &[RemoteSpan]) -> Option<RemoteSpan> {
        loop {
            let span = spans.get(self.span)?;
            if self.at < span.len {
                return Some(RemoteSpan { offset: span.offset + self.at, len: span.len - self.at });
            }
            *self = SpanCursor { span: self.span + 1, at: 0 };
        }
    }

    /// Goes on by `len` bytes: no more than [`SpanCursor::rest`] said.
    #[inline]
    pub fn advance(&mut self, len: u64) {
        self.at += len;
    }
}

/// A place in both lists. It belongs to one access: all calls are with the same lists.
///
/// ```
/// use petasos_fabric::{Cursor, Region, RemoteSpan};
///
/// let local = [Region::zeroed(3).whole(), Region::zeroed(5).whole()];
/// let spans = [RemoteSpan { offset: 100, len: 4 }, RemoteSpan { offset: 50, len: 4 }];
/// let mut cursor = Cursor::default();
/// let mut seen = Vec::new();
/// while let Some(stretch) = cursor.take(&local, &spans, usize::MAX) {
///     seen.push((stretch.at, stretch.offset, stretch.len));
/// }
/// assert_eq!(seen, [(0, 100, 3), (0, 103, 1), (1, 50, 4)]);
/// assert_eq!(cursor.moved(), 8);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor {
    piece: usize,
    /// Bytes of that piece that lie behind.
    at: usize,
    spans: SpanCursor,
    moved: u64,
}

/// Bytes that lie together on both sides. Made by [`Cursor::take`] alone.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Stretch<'a> {
    /// The piece of local memory that it lies in.
    pub piece: &'a Slice,
    /// Where in that it begins.
    pub at: usize,
    /// Where it begins in the remote region.
    pub offset: u64,
    /// Bytes, at least one; they lie within the piece and the span.
    pub len: usize,
}

impl Stretch<'_> {
    /// Its local memory.
    #[must_use]
    #[inline]
    pub fn local(&self) -> Option<Slice> {
        self.piece.part(self.at, self.len)
    }
}

impl Cursor {
    /// The next stretch, of at most `most` bytes, and goes on behind it; `None` at the end of
    /// either list, and if `most` is 0. Where it may be refused, take it of a copy.
    #[inline]
    pub fn take<'a>(
        &mut self,
        local: &'a [Slice],
        spans: &[RemoteSpan],
        most: usize,
    ) -> Option<Stretch<'a>> {
        let piece = loop {
            let piece = local.get(self.piece)?;
            if self.at < piece.len() {
                break piece;
            }
            (self.piece, self.at) = (self.piece + 1, 0);
        };
        let span = self.spans.rest(spans)?;
        let rest = usize::try_from(span.len).unwrap_or(usize::MAX);
        let len = (piece.len() - self.at).min(rest).min(most);
        if len == 0 {
            return None;
        }
        let stretch = Stretch { piece, at: self.at, offset: span.offset, len };
        self.at += len;
        self.spans.advance(len as u64);
        self.moved += len as u64;
        Some(stretch)
    }

    /// Goes on by `len` bytes, in as many stretches as these are; to the end if that is nearer.
    pub fn skip(&mut self, local: &[Slice], spans: &[RemoteSpan], mut len: usize) {
        while let Some(stretch) = self.take(local, spans, len) {
            len -= stretch.len;
        }
    }

    /// Bytes that lie behind, in all.
    #[must_use]
    #[inline]
    pub fn moved(&self) -> u64 {
        self.moved
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Region;
    use proptest::prelude::*;

    fn spans(lens: &[u64]) -> Vec<RemoteSpan> {
        let spans = lens.iter().enumerate();
        spans.map(|(i, len)| RemoteSpan { offset: 1000 * i as u64, len: *len }).collect()
    }

    #[test]
    fn nothing_of_nothing() {
        let empty = [Region::zeroed(0).whole()];
        let one = [Region::zeroed(1).whole()];
        for (local, lens) in [(&empty[..], &[0, 0][..]), (&[], &[]), (&one, &[0]), (&empty, &[1])] {
            let mut cursor = Cursor::default();
            assert!(cursor.take(local, &spans(lens), 9).is_none());
            cursor.skip(local, &spans(lens), 9);
            assert_eq!(cursor.moved(), 0);
        }
        assert!(Cursor::default().take(&one, &spans(&[1]), 0).is_none());
    }

    /// Numbers of bytes: in which piece each is, or in which span.
    fn all_bytes(lens: impl Iterator<Item = usize>) -> Vec<(usize, usize)> {
        lens.enumerate().flat_map(|(i, len)| (0..len).map(move |at| (i, at))).collect()
    }

    proptest! {
        /// Whatever the lists are, and however they are cut and skipped, each byte is met once, in
        /// order, and with the one that it belongs to.
        #[test]
        fn each_byte_once(
            ours in prop::collection::vec(0_usize..6, 0..6),
            theirs in prop::collection::vec(0_u64..6, 0..6),
            steps in prop::collection::vec((1_usize..7, any::<bool>()), 40),
        ) {
            let local: Vec<Slice> = ours.iter().map(|len| Region::zeroed(*len).whole()).collect();
            let remote = spans(&theirs);
            let pieces = all_bytes(ours.iter().copied());
            let places = all_bytes(theirs.iter().map(|len| *len as usize));
            let common = pieces.len().min(places.len());
            let (mut cursor, mut met) = (Cursor::default(), 0);
            for (most, skips) in steps {
                if skips {
                    cursor.skip(&local, &remote, most);
                    met = common.min(met + most);
                } else if let Some(stretch) = cursor.take(&local, &remote, most) {
                    prop_assert!((1..=most).contains(&stretch.len));
                    for i in 0..stretch.len {
                        let (piece, at) = pieces[met + i];
                        let (span, within) = places[met + i];
                        prop_assert!(std::ptr::eq(stretch.piece, &local[piece]));
                        prop_assert_eq!(stretch.at + i, at);
                        prop_assert_eq!(
                            stretch.offset + i as u64,
                            remote[span].offset + within as u64
                        );
                    }
                    prop_assert_eq!(stretch.local().unwrap().len(), stretch.len);
                    met += stretch.len;
                }
                prop_assert_eq!(cursor.moved(), met as u64);
            }
            prop_assert_eq!(met, common);
        }
    }
}
