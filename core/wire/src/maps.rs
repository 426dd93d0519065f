//! Maps and sets: a count, and the entries. In the order of the keys where the map has one;
//! decoding takes them in any order, but each key once.

use crate::{DecodeError, Decoder, Encoder, Format, Wire, hash_name, shape_join};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    hash::{BuildHasher, Hash},
};

/// The count of entries of type `E`, checked, and their memory charged: the `slots` that so many
/// entries take, and two words of overhead for each.
fn count<E, F: Format>(
    from: &mut Decoder<'_, F>,
    slots: fn(usize) -> usize,
) -> Result<usize, DecodeError> {
    let count = from.count()?;
    from.expect_elements::<E>(count)?;
    if count > 0 {
        from.charge(slots(count), size_of::<E>())?;
        from.charge(count.saturating_add(1), 16)?;
    }
    Ok(count)
}

/// A tree has nodes of 11 slots, of which the first may hold one entry, the others five at least.
fn tree_slots(count: usize) -> usize {
    count.saturating_mul(3).max(11)
}

/// A table has a power of two of slots, and an eighth of them empty at least.
fn table_slots(count: usize) -> usize {
    count.saturating_add(count / 7 + 1).checked_next_power_of_two().unwrap_or(usize::MAX).max(4)
}

/// Decodes each of `count` entries by `insert`, which says whether the key is new.
fn fill<'a, F: Format>(
    from: &mut Decoder<'a, F>,
    count: usize,
    mut insert: impl FnMut(&mut Decoder<'a, F>) -> Result<bool, DecodeError>,
) -> Result<(), DecodeError> {
    from.nested(|from| {
        for _ in 0..count {
            if !insert(from)? {
                return Err(DecodeError::DuplicateKey);
            }
        }
        Ok(())
    })
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    const SHAPE: u64 = shape_join(shape_join(hash_name("map"), K::SHAPE), V::SHAPE);

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.count(self.len());
        for (key, value) in self {
            key.encode(out);
            value.encode(out);
        }
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
        let count = count::<(K, V), F>(from, tree_slots)?;
        let mut entries = BTreeMap::new();
        fill(from, count, |from| Ok(entries.insert(K::decode(from)?, V::decode(from)?).is_none()))?;
        Ok(entries)
    }

    fn encoded_len_hint(&self) -> usize {
        4 + self.len().saturating_mul(size_of::<(K, V)>())
    }
}

impl<K: Wire + Eq + Hash, V: Wire, S: BuildHasher + Default> Wire for HashMap<K, V, S> {
    const SHAPE: u64 = shape_join(shape_join(hash_name("map"), K::SHAPE), V::SHAPE);

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.count(self.len());
        for (key, value) in self {
            key.encode(out);
            value.encode(out);
        }
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
        let count = count::<(K, V), F>(from, table_slots)?;
        let mut entries = HashMap::with_capacity_and_hasher(count, S::default());
        fill(from, count, |from| Ok(entries.insert(K::decode(from)?, V::decode(from)?).is_none()))?;
        Ok(entries)
    }

    fn encoded_len_hint(&self) -> usize {
        4 + self.len().saturating_mul(size_of::<(K, V)>())
    }
}

/// As a `Vec`.
impl<K: Wire + Ord> Wire for BTreeSet<K> {
    const SHAPE: u64 = <Vec<K>>::SHAPE;

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.count(self.len());
        for key in self {
            key.encode(out);
        }
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
        let count = count::<K, F>(from, tree_slots)?;
        let mut entries = BTreeSet::new();
        fill(from, count, |from| Ok(entries.insert(K::decode(from)?)))?;
        Ok(entries)
    }

    fn encoded_len_hint(&self) -> usize {
        4 + self.len().saturating_mul(size_of::<K>())
    }
}

/// As a `Vec`.
impl<K: Wire + Eq + Hash, S: BuildHasher + Default> Wire for HashSet<K, S> {
    const SHAPE: u64 = <Vec<K>>::SHAPE;

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.count(self.len());
        for key in self {
            key.encode(out);
        }
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
        let count = count::<K, F>(from, table_slots)?;
        let mut entries = HashSet::with_capacity_and_hasher(count, S::default());
        fill(from, count, |from| Ok(entries.insert(K::decode(from)?)))?;
        Ok(entries)
    }

    fn encoded_len_hint(&self) -> usize {
        4 + self.len().saturating_mul(size_of::<K>())
    }
}
