//! What the encoder and the decoder share: MessagePack, with extensions of our own.
//!
//! | extension | payload |
//! |---|---|
//! | 1, array | kind, size, dimensions, each a byte; lengths, `u64` each; the numbers in the order of C |
//! | 2, lent memory | a descriptor (`BulkHandle`), in the native encoding |
//! | 3, array to be read in place | as 1, with the key to the memory in place of the numbers |
//!
//! All numbers are little-endian. There is none that names a class or a function: what travels is
//! data.

use crate::numbers::{DIMENSIONS, Element};

/// Extension: an array.
pub(crate) const ARRAY: i8 = 1;
/// Extension: lent memory.
pub(crate) const LENT: i8 = 2;
/// Extension: an array that its owner keeps.
pub(crate) const LOAN: i8 = 3;

/// How deep lists and dictionaries may be nested.
pub(crate) const DEPTH: usize = 64;
/// How many values there may be in one message.
pub(crate) const VALUES: usize = 1 << 20;

/// Appends what is before the numbers of an array. The caller has checked the dimensions.
pub(crate) fn put_shape(out: &mut Vec<u8>, element: Element, shape: &[u64]) {
    out.extend([element.kind, element.size, shape.len() as u8]);
    for len in shape {
        out.extend(len.to_le_bytes());
    }
}

/// Its length in bytes.
pub(crate) fn shape_len(shape: &[u64]) -> usize {
    3 + 8 * shape.len()
}

/// Reads it; returns what comes after.
pub(crate) fn take_shape(payload: &[u8]) -> Option<(Element, Vec<u64>, &[u8])> {
    let (&[kind, size, dimensions], rest) = payload.split_first_chunk::<3>()?;
    let element = Element::new(kind, size)?;
    let dimensions = usize::from(dimensions);
    if dimensions > DIMENSIONS || rest.len() < 8 * dimensions {
        return None;
    }
    let (lengths, rest) = rest.split_at(8 * dimensions);
    let shape = lengths.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    Some((element, shape.collect(), rest))
}
