//! Values in both encodings: the first byte says which type, and within which limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_fuzz::{
    bounded_in_all,
    zoo::{BulkBytes, Chain, Ordered, Tables},
};
use petasos_wire::{DecodeError, Encoding, Limits, Wire, from_bytes_limited, to_vec};

fuzz_target!(|data: &[u8]| {
    let Some((choice, bytes)) = data.split_first() else { return };
    let encoding = if choice & 1 == 0 { Encoding::Native } else { Encoding::Xdr };
    let limits = match choice & 2 {
        0 => Limits::for_input(bytes.len()),
        _ => Limits { memory: 1000, depth: 5 },
    };
    match choice >> 2 & 3 {
        0 => same_bytes::<Ordered>(encoding, bytes, limits),
        1 => same_value::<Tables>(encoding, bytes, limits),
        2 => same_bytes::<Chain>(encoding, bytes, limits),
        _ => same_bytes::<BulkBytes>(encoding, bytes, limits),
    }
});

fn decode<T: Wire>(encoding: Encoding, bytes: &[u8], limits: Limits) -> Result<T, DecodeError> {
    bounded_in_all(limits.memory, || from_bytes_limited(encoding, bytes, limits))
}

/// For types without tables: what was decoded has one encoding.
fn same_bytes<T: Wire>(encoding: Encoding, bytes: &[u8], limits: Limits) {
    if let Ok(value) = decode::<T>(encoding, bytes, limits) {
        let once = to_vec(encoding, &value);
        let again: T = decode(encoding, &once, limits).expect("what was encoded here");
        assert_eq!(to_vec(encoding, &again), once);
        // The other encoding has the same values.
        let other = if encoding == Encoding::Native { Encoding::Xdr } else { Encoding::Native };
        let crossed: T = decode(other, &to_vec(other, &value), limits).expect("the same value");
        assert_eq!(to_vec(encoding, &crossed), once);
    }
}

/// For types without floating-point numbers.
fn same_value<T: Wire + PartialEq + std::fmt::Debug>(
    encoding: Encoding,
    bytes: &[u8],
    limits: Limits,
) {
    if let Ok(value) = decode::<T>(encoding, bytes, limits) {
        let again: T = decode(encoding, &to_vec(encoding, &value), limits).expect("encoded here");
        assert_eq!(again, value);
    }
}
