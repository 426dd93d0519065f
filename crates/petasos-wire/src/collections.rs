//! Sequences, maps, options, results, tuples.

use crate::{DecodeError, Decoder, Encoder, Format, Wire, hash_name, shape_join};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    hash::{BuildHasher, Hash},
};

impl<T: Wire> Wire for Vec<T> {
    const SHAPE: u64 = shape_join(hash_name("sequence"), T::SHAPE);

    #[inline]
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.count(self.len());
        T::encode_all(self, out);
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Vec<T>, DecodeError> {
        let count = from.count()?;
        from.nested(|from| T::decode_all(count, from))
    }
}

/// Like a vector of its elements.
macro_rules! like_vec {
    ($($t:ty where $bound:path),*) => {$(
        impl<T: Wire + $bound> Wire for $t {
            const SHAPE: u64 = <Vec<T>>::SHAPE;
            fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
                out.count(self.len());
                for value in self.iter() {
                    value.encode(out);
                }
            }
            fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
                Ok(<Vec<T>>::decode(from)?.into_iter().collect())
            }
        }
    )*};
}
like_vec!(VecDeque<T> where Sized, BTreeSet<T> where Ord);

impl<T: Wire> Wire for Box<[T]> {
    const SHAPE: u64 = <Vec<T>>::SHAPE;

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.count(self.len());
        T::encode_all(self, out);
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
        <Vec<T>>::decode(from).map(Vec::into_boxed_slice)
    }
}

/// The elements, without a count.
impl<T: Wire, const N: usize> Wire for [T; N] {
    const SHAPE: u64 = shape_join(shape_join(hash_name("array"), T::SHAPE), N as u64);

    #[inline]
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        T::encode_all(self, out);
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
        let values = from.nested(|from| T::decode_all(N, from))?;
        let short = DecodeError::Short { wanted: N as u64, left: values.len() as u64 };
        values.try_into().map_err(|_| short)
    }
}

impl<T: Wire> Wire for Box<T> {
    const SHAPE: u64 = T::SHAPE;

    #[inline]
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        (**self).encode(out);
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Box<T>, DecodeError> {
        from.charge(1, size_of::<T>())?;
        from.nested(T::decode).map(Box::new)
    }
}

/// XDR's optional data: a truth value, and the value if it is true.
impl<T: Wire> Wire for Option<T> {
    const SHAPE: u64 = shape_join(hash_name("option"), T::SHAPE);

    #[inline]
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Option<T>, DecodeError> {
        if bool::decode(from)? { from.nested(T::decode).map(Some) } else { Ok(None) }
    }
}

/// A union: 0 and the value, or 1 and the error.
impl<T: Wire, E: Wire> Wire for Result<T, E> {
    const SHAPE: u64 = shape_join(shape_join(hash_name("result"), T::SHAPE), E::SHAPE);

    #[inline]
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        self.is_err().encode(out);
        match self {
            Ok(value) => value.encode(out),
            Err(error) => error.encode(out),
        }
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
        if bool::decode(from)? {
            from.nested(E::decode).map(Err)
        } else {
            from.nested(T::decode).map(Ok)
        }
    }
}

/// The pairs of a map, after their count.
fn pairs<F: Format, K: Wire, V: Wire>(
    from: &mut Decoder<'_, F>,
) -> Result<Vec<(K, V)>, DecodeError> {
    let count = from.count()?;
    // Once for the pairs, once for the map that is made of them.
    from.charge(count, size_of::<(K, V)>())?;
    from.nested(|from| <(K, V)>::decode_all(count, from))
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
        Ok(pairs(from)?.into_iter().collect())
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
        Ok(pairs(from)?.into_iter().collect())
    }
}

macro_rules! tuple {
    ($($t:ident $at:tt),+) => {
        impl<$($t: Wire),+> Wire for ($($t,)+) {
            const SHAPE: u64 = {
                let shape = hash_name("tuple");
                $(let shape = shape_join(shape, $t::SHAPE);)+
                shape
            };
            #[inline]
            fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
                $(self.$at.encode(out);)+
            }
            #[inline]
            fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
                Ok(($($t::decode(from)?,)+))
            }
        }
    };
}
tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, G 5);
tuple!(A 0, B 1, C 2, D 3, E 4, G 5, H 6);
tuple!(A 0, B 1, C 2, D 3, E 4, G 5, H 6, I 7);
