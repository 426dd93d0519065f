//! Derived types: round trips in both encodings, layout, and hashes of structures.

use crate::zoo::{Animal, BOTH, Chain, Food, Grid, Tree, Unit, Zoo, zoo};
use petasos_macros::Wire;
use petasos_wire::{Encoding, LONG, Wire, encode_header_into, encode_into, from_bytes, to_vec};
use proptest::prelude::*;
use std::{
    collections::{BTreeSet, HashMap},
    fmt::Debug,
};

fn comes_back<T: Wire + PartialEq + Debug>(value: &T) {
    for encoding in BOTH {
        let bytes = to_vec(encoding, value);
        assert_eq!(&from_bytes::<T>(encoding, &bytes).unwrap(), value, "{encoding:?}");
        if encoding == Encoding::Xdr {
            assert_eq!(bytes.len() % 4, 0, "XDR comes in units of four bytes");
        }
        let mut head = Vec::new();
        let rest = encode_header_into(encoding, value, &mut head);
        assert_eq!([&head, rest].concat(), bytes, "{encoding:?}");
    }
}

/// Long bytes at the end of a value stay where they are; their count comes before them.
#[test]
fn long_bytes_at_the_end_are_not_copied() {
    #[derive(Wire, Debug, PartialEq)]
    struct Write {
        offset: u64,
        data: Vec<u8>,
    }
    #[derive(Wire, Debug, PartialEq)]
    enum Answer {
        Nothing,
        Found(u32, Box<[f64]>),
    }
    fn rest_of<T: Wire + PartialEq + Debug>(encoding: Encoding, value: &T) -> usize {
        comes_back(value);
        encode_header_into(encoding, value, &mut Vec::new()).len()
    }
    let (native, xdr) = (Encoding::Native, Encoding::Xdr);
    let bytes = |len| (0..len).map(|n| n as u8).collect::<Vec<u8>>();
    for encoding in BOTH {
        assert_eq!(rest_of(encoding, &bytes(LONG)), LONG);
        assert_eq!(rest_of(encoding, &bytes(LONG - 4)), 0, "not worth it");
        assert_eq!(rest_of(encoding, &(7u8, Some(bytes(LONG)))), LONG);
        assert_eq!(rest_of(encoding, &(bytes(LONG), 7u8)), 0, "not at the end");
        assert_eq!(rest_of(encoding, &Ok::<_, String>(bytes(LONG))), LONG);
        assert_eq!(rest_of(encoding, &Write { offset: 1, data: bytes(LONG) }), LONG);
        assert_eq!(rest_of(encoding, &Answer::Nothing), 0);
    }
    // XDR turns numbers around, and pads bytes.
    let numbers = Answer::Found(3, (0..LONG / 8).map(|n| n as f64).collect());
    let little = cfg!(target_endian = "little");
    assert_eq!(rest_of(native, &numbers), if little { LONG } else { 0 });
    assert_eq!(rest_of(xdr, &numbers), 0);
    assert_eq!((rest_of(native, &bytes(LONG + 1)), rest_of(xdr, &bytes(LONG + 1))), (LONG + 1, 0));
}

proptest! {
    #[test]
    fn values_come_back(zoo in zoo()) {
        comes_back(&zoo);
        comes_back(&(Some(Ok::<_, ()>(zoo)), Unit));
    }
}

#[test]
fn native_is_packed_little_endian() {
    let value = (1u8, 0x0203u16, 4u32, vec![5u16], Some(6u8), [7u8, 8], "9".to_owned());
    let mut bytes = b"header".to_vec();
    encode_into(Encoding::Native, &value, &mut bytes);
    let expected = [1, 3, 2, 4, 0, 0, 0, 1, 0, 0, 0, 5, 0, 1, 6, 7, 8, 1, 0, 0, 0, b'9'];
    assert_eq!(bytes, [&b"header"[..], &expected].concat());
    comes_back(&value);
    // A variant: its number in 32 bits, and its fields.
    assert_eq!(to_vec(Encoding::Native, &Food::Hay(2, true)), [1, 0, 0, 0, 2, 0, 0, 0, 1]);
}

#[test]
fn many_numbers_come_back() {
    comes_back(&(0..1000).map(|n| n * 0x0010_0101).collect::<Vec<u32>>());
    comes_back(&(0..1000).map(|n| -n).collect::<Vec<i64>>());
    comes_back(&(0..1000).map(|n| f64::from(n) / 3.0).collect::<Vec<f64>>());
    comes_back(&(-500..500).collect::<Vec<i16>>());
    comes_back(&(0..1000).map(|n| [n, n + 1, n + 2]).collect::<Vec<[u64; 3]>>());
    comes_back(&[[1u8; 5]; 7]);
    comes_back(&Box::new([1.5f32; 5000]));
}

#[test]
fn odd_definitions_derive() {
    // The names that generated code uses, the names of what it calls, and raw names.
    #[derive(Wire, Debug, PartialEq)]
    struct Names {
        out: u8,
        from: u16,
        shape: u32,
        value: u64,
        r#type: i8,
    }
    comes_back(&Names { out: 1, from: 2, shape: 3, value: 4, r#type: 5 });

    #[derive(Wire, Debug, PartialEq)]
    enum Prelude {
        Ok,
        Err,
        Some(u8),
        None,
    }
    comes_back(&Prelude::Some(3));

    #[derive(Wire, Debug, PartialEq)]
    enum Never {}
    assert!(from_bytes::<Never>(Encoding::Native, &[0; 4]).is_err());
    comes_back(&None::<Never>);

    #[derive(Wire, Debug, PartialEq)]
    struct Table<K: std::hash::Hash + Eq, V>(HashMap<K, V>)
    where
        V: Clone;
    comes_back(&Table([(1u8, "one".to_owned())].into()));

    /// The crate under another name.
    mod renamed {
        pub(super) use petasos_wire as carrier;
    }
    #[derive(Wire, Debug, PartialEq)]
    #[wire(crate = "renamed::carrier")]
    struct Elsewhere(u8);
    comes_back(&Elsewhere(1));
}

#[test]
fn shapes_tell_structures_apart() {
    #[derive(Wire)]
    struct Named {
        _a: u32,
    }
    #[derive(Wire)]
    struct OtherName {
        _b: u32,
    }
    #[derive(Wire)]
    struct OtherType {
        _a: i32,
    }
    #[derive(Wire)]
    struct Tuple(u32);
    #[derive(Wire)]
    enum Two {
        _A,
        _B,
    }
    #[derive(Wire)]
    enum Swapped {
        _B,
        _A,
    }
    #[derive(Wire)]
    enum Tagged {
        _A,
        #[wire(tag = 2)]
        _B,
    }
    let shapes = [
        u32::SHAPE,
        i32::SHAPE,
        <(u32, u8)>::SHAPE,
        <(u8, u32)>::SHAPE,
        <Vec<u32>>::SHAPE,
        <[u32; 2]>::SHAPE,
        <[u32; 3]>::SHAPE,
        <Option<u32>>::SHAPE,
        <Result<u32, u8>>::SHAPE,
        <HashMap<u32, u8>>::SHAPE,
        Named::SHAPE,
        OtherName::SHAPE,
        OtherType::SHAPE,
        Tuple::SHAPE,
        Two::SHAPE,
        Swapped::SHAPE,
        Tagged::SHAPE,
        Zoo::SHAPE,
        Animal::SHAPE,
        Food::SHAPE,
        <Chain<u8>>::SHAPE,
        <Chain<u16>>::SHAPE,
        <Tree<i32>>::SHAPE,
        <Grid<u8, 2>>::SHAPE,
        <Grid<u8, 3>>::SHAPE,
        Unit::SHAPE,
        <()>::SHAPE,
    ];
    let distinct: BTreeSet<_> = shapes.iter().collect();
    assert_eq!(distinct.len(), shapes.len());
    // What travels alike is alike.
    assert_eq!(<Box<[u8]>>::SHAPE, <Vec<u8>>::SHAPE);
    assert_eq!(bytes::Bytes::SHAPE, <Vec<u8>>::SHAPE);
    assert_eq!(<Box<Named>>::SHAPE, Named::SHAPE);
    assert_eq!(usize::SHAPE, u64::SHAPE);
}
