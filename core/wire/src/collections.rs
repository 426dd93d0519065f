//! Sequences, options, results, tuples.

use crate::{DecodeError, Decoder, Encoder, Format, LONG, Wire, hash_name, shape_join};
use std::{collections::VecDeque, marker::PhantomData};

impl<T: Wire> Wire for Vec<T> {
    const SHAPE: u64 = shape_join(hash_name("sequence"), T::SHAPE);

    #[inline]
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.count(self.len());
        T::encode_all(self, out);
    }

    #[inline]
    fn encode_head<'v, F: Format>(&'v self, out: &mut Encoder<'_, F>) -> &'v [u8] {
        elements_head(self, out)
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Vec<T>, DecodeError> {
        let count = from.count()?;
        from.nested(|from| T::decode_all(count, from))
    }

    #[inline]
    fn encoded_len_hint(&self) -> usize {
        8 + size_of_val::<[T]>(self)
    }
}

/// The count of `values`, and what [`Wire::encode_head`] does with them.
#[inline]
fn elements_head<'v, T: Wire, F: Format>(values: &'v [T], out: &mut Encoder<'_, F>) -> &'v [u8] {
    out.count(values.len());
    match T::encoded::<F>(values) {
        Some(bytes) if bytes.len() >= LONG => bytes,
        _ => {
            T::encode_all(values, out);
            &[]
        }
    }
}

/// As a `Vec`.
impl<T: Wire> Wire for VecDeque<T> {
    const SHAPE: u64 = <Vec<T>>::SHAPE;

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.count(self.len());
        for value in self {
            value.encode(out);
        }
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
        <Vec<T>>::decode(from).map(VecDeque::from)
    }

    fn encoded_len_hint(&self) -> usize {
        8 + size_of::<T>().saturating_mul(self.len())
    }
}

/// As a `Vec`.
impl<T: Wire> Wire for Box<[T]> {
    const SHAPE: u64 = <Vec<T>>::SHAPE;

    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        out.count(self.len());
        T::encode_all(self, out);
    }

    #[inline]
    fn encode_head<'v, F: Format>(&'v self, out: &mut Encoder<'_, F>) -> &'v [u8] {
        elements_head(self, out)
    }

    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
        <Vec<T>>::decode(from).map(Vec::into_boxed_slice)
    }

    #[inline]
    fn encoded_len_hint(&self) -> usize {
        8 + size_of_val::<[T]>(self)
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
        T::decode_array(from)
    }

    #[inline]
    fn encode_all<F: Format>(values: &[Self], out: &mut Encoder<'_, F>) {
        if F::XDR {
            // An array of bytes has its padding each.
            values.iter().for_each(|value| value.encode(out));
        } else {
            T::encode_all(values.as_flattened(), out);
        }
    }
}

impl<T: Wire> Wire for Box<T> {
    const SHAPE: u64 = T::SHAPE;

    #[inline]
    fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
        (**self).encode(out);
    }

    #[inline]
    fn encode_head<'v, F: Format>(&'v self, out: &mut Encoder<'_, F>) -> &'v [u8] {
        (**self).encode_head(out)
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Box<T>, DecodeError> {
        from.charge(1, size_of::<T>())?;
        from.nested(T::decode).map(Box::new)
    }

    #[inline]
    fn encoded_len_hint(&self) -> usize {
        // Not what the value says, which could walk down a long list.
        size_of::<T>()
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
    fn encode_head<'v, F: Format>(&'v self, out: &mut Encoder<'_, F>) -> &'v [u8] {
        self.is_some().encode(out);
        self.as_ref().map_or(&[], |value| value.encode_head(out))
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Option<T>, DecodeError> {
        if bool::decode(from)? { T::decode(from).map(Some) } else { Ok(None) }
    }

    #[inline]
    fn encoded_len_hint(&self) -> usize {
        4 + self.as_ref().map_or(0, T::encoded_len_hint)
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
    fn encode_head<'v, F: Format>(&'v self, out: &mut Encoder<'_, F>) -> &'v [u8] {
        self.is_err().encode(out);
        match self {
            Ok(value) => value.encode_head(out),
            Err(error) => error.encode_head(out),
        }
    }

    #[inline]
    fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
        if bool::decode(from)? { E::decode(from).map(Err) } else { T::decode(from).map(Ok) }
    }

    #[inline]
    fn encoded_len_hint(&self) -> usize {
        4 + self.as_ref().map_or_else(E::encoded_len_hint, T::encoded_len_hint)
    }
}

macro_rules! tuple {
    ([$($t:ident $at:tt),*] $last:ident $end:tt) => {
        impl<$($t: Wire,)* $last: Wire> Wire for ($($t,)* $last,) {
            const SHAPE: u64 = {
                let shape = hash_name("tuple");
                $(let shape = shape_join(shape, $t::SHAPE);)*
                shape_join(shape, $last::SHAPE)
            };
            #[inline]
            fn encode<F: Format>(&self, out: &mut Encoder<'_, F>) {
                $(self.$at.encode(out);)*
                self.$end.encode(out);
            }
            #[inline]
            fn encode_head<'v, F: Format>(&'v self, out: &mut Encoder<'_, F>) -> &'v [u8] {
                $(self.$at.encode(out);)*
                self.$end.encode_head(out)
            }
            #[inline]
            fn decode<F: Format>(from: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
                Ok(($($t::decode(from)?,)* $last::decode(from)?,))
            }
            #[inline]
            fn encoded_len_hint(&self) -> usize {
                0 $(+ self.$at.encoded_len_hint())* + self.$end.encoded_len_hint()
            }
        }
    };
}
tuple!([] A 0);
tuple!([A 0] B 1);
tuple!([A 0, B 1] C 2);
tuple!([A 0, B 1, C 2] D 3);
tuple!([A 0, B 1, C 2, D 3] E 4);
tuple!([A 0, B 1, C 2, D 3, E 4] G 5);
tuple!([A 0, B 1, C 2, D 3, E 4, G 5] H 6);
tuple!([A 0, B 1, C 2, D 3, E 4, G 5, H 6] I 7);

/// Nothing, whatever the type that it stands for.
impl<T: ?Sized> Wire for PhantomData<T> {
    const SHAPE: u64 = <()>::SHAPE;
    #[inline]
    fn encode<F: Format>(&self, _: &mut Encoder<'_, F>) {}
    #[inline]
    fn decode<F: Format>(_: &mut Decoder<'_, F>) -> Result<Self, DecodeError> {
        Ok(PhantomData)
    }
}
