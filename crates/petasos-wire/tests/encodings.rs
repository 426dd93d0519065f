//! Both encodings: known bytes, round trips of generated values, and hostile input.

use petasos_macros::Wire;
use petasos_wire::{DecodeError, Encoding, Limits, Wire, from_bytes, from_bytes_limited, to_vec};
use proptest::prelude::*;
use std::{collections::BTreeMap, fmt::Debug, time::Duration};

const BOTH: [Encoding; 2] = [Encoding::Native, Encoding::Xdr];

#[derive(Wire, Clone, Debug, PartialEq)]
struct Animal {
    name: String,
    legs: u8,
    weight: f64,
    cage: Option<(i16, i64)>,
    food: Vec<Food>,
    marks: [u16; 3],
    picture: Vec<u8>,
    parents: BTreeMap<u32, String>,
}

#[derive(Wire, Clone, Debug, PartialEq)]
enum Food {
    Nothing,
    Hay(u32, bool),
    #[wire(tag = 9)]
    Fish {
        kind: char,
        fresh: Result<Duration, String>,
    },
    Other,
}

#[derive(Wire, Clone, Debug, PartialEq)]
struct Chain<T> {
    link: T,
    #[wire(recursive)]
    next: Option<Box<Chain<T>>>,
}

#[derive(Wire, Clone, Debug, PartialEq)]
struct Unit;

fn food() -> impl Strategy<Value = Food> {
    let fresh = prop_oneof![
        (any::<u32>(), 0..1_000_000_000u32).prop_map(|(s, n)| Ok(Duration::new(s.into(), n))),
        any::<String>().prop_map(Err),
    ];
    prop_oneof![
        Just(Food::Nothing),
        (any::<u32>(), any::<bool>()).prop_map(|(a, b)| Food::Hay(a, b)),
        (any::<char>(), fresh).prop_map(|(kind, fresh)| Food::Fish { kind, fresh }),
        Just(Food::Other),
    ]
}

fn animal() -> impl Strategy<Value = Animal> {
    let parents = prop::collection::btree_map(any::<u32>(), any::<String>(), 0..4);
    let parts = (
        any::<String>(),
        any::<u8>(),
        -1e9..1e9f64,
        any::<Option<(i16, i64)>>(),
        prop::collection::vec(food(), 0..5),
        any::<[u16; 3]>(),
        any::<Vec<u8>>(),
        parents,
    );
    parts.prop_map(|(name, legs, weight, cage, food, marks, picture, parents)| Animal {
        name,
        legs,
        weight,
        cage,
        food,
        marks,
        picture,
        parents,
    })
}

fn same<T: Wire + PartialEq + Debug>(value: &T) {
    for encoding in BOTH {
        let bytes = to_vec(encoding, value);
        assert_eq!(&from_bytes::<T>(encoding, &bytes).unwrap(), value, "{encoding:?}");
        if encoding == Encoding::Xdr {
            assert_eq!(bytes.len() % 4, 0, "XDR comes in units of four bytes");
        }
    }
}

#[test]
fn xdr_as_the_rfc_has_it() {
    let xdr = |bytes: Vec<u8>, expected: &[u8]| assert_eq!(bytes, expected);
    let x = Encoding::Xdr;
    xdr(to_vec(x, &-2i32), &[0xff, 0xff, 0xff, 0xfe]);
    xdr(to_vec(x, &1u64), &[0, 0, 0, 0, 0, 0, 0, 1]);
    xdr(to_vec(x, &true), &[0, 0, 0, 1]);
    xdr(to_vec(x, &1.0f32), &[0x3f, 0x80, 0, 0]);
    xdr(to_vec(x, &-1i8), &[0xff, 0xff, 0xff, 0xff]);
    // RFC 4506, section 7: the file "sillyprog" of type EXEC (2), interpreter "lisp", owner
    // "john", data "(quit)".
    let file =
        ("sillyprog".to_owned(), 2u32, "lisp".to_owned(), "john".to_owned(), b"(quit)".to_vec());
    let expected =
        b"\0\0\0\x09sillyprog\0\0\0\0\0\0\x02\0\0\0\x04lisp\0\0\0\x04john\0\0\0\x06(quit)\0\0";
    xdr(to_vec(x, &file), expected);
    same(&file);
}

#[test]
fn native_is_packed_little_endian() {
    let value = (1u8, 0x0203u16, 4u32, vec![5u16], Some(6u8));
    let bytes = to_vec(Encoding::Native, &value);
    assert_eq!(bytes, [1, 3, 2, 4, 0, 0, 0, 1, 0, 0, 0, 5, 0, 1, 6]);
    same(&value);
}

#[test]
fn hostile_lengths_do_not_allocate() {
    for encoding in BOTH {
        let huge = to_vec(encoding, &u32::MAX);
        assert!(matches!(from_bytes::<Vec<u8>>(encoding, &huge), Err(DecodeError::Short { .. })));
        assert!(matches!(from_bytes::<Vec<u64>>(encoding, &huge), Err(DecodeError::Short { .. })));
        assert!(matches!(from_bytes::<Vec<()>>(encoding, &huge), Err(DecodeError::Memory { .. })));
        assert!(from_bytes::<Vec<String>>(encoding, &huge).is_err());
        assert!(from_bytes::<BTreeMap<u8, u8>>(encoding, &huge).is_err());
        assert!(from_bytes::<String>(encoding, &huge).is_err());
    }
    // 1,000 empty options of a large type: 1,000 bytes that would become 8 MB.
    let bytes = to_vec(Encoding::Native, &vec![None::<[u64; 1000]>; 1000]);
    let decoded = from_bytes::<Vec<Option<[u64; 1000]>>>(Encoding::Native, &bytes);
    assert!(matches!(decoded, Err(DecodeError::Memory { .. })));
    let limits = Limits { memory: 10_000_000, depth: 8 };
    let decoded = from_bytes_limited::<Vec<Option<[u64; 1000]>>>(Encoding::Native, &bytes, limits);
    assert_eq!(decoded.unwrap().len(), 1000);
}

#[test]
fn depth_is_bounded() {
    let mut chain = Chain { link: 1u8, next: None };
    for link in 0..20 {
        chain = Chain { link, next: Some(Box::new(chain)) };
    }
    same(&chain);
    for link in 0..60 {
        chain = Chain { link, next: Some(Box::new(chain)) };
    }
    let bytes = to_vec(Encoding::Native, &chain);
    assert_eq!(from_bytes::<Chain<u8>>(Encoding::Native, &bytes), Err(DecodeError::TooDeep));
}

#[test]
fn what_is_refused() {
    let native = Encoding::Native;
    assert_eq!(from_bytes::<u64>(native, &[1; 4]), Err(DecodeError::Short { wanted: 8, left: 4 }));
    assert_eq!(from_bytes::<u8>(native, &[1; 4]), Err(DecodeError::Trailing(3)));
    assert!(matches!(from_bytes::<bool>(native, &[2]), Err(DecodeError::BadValue { .. })));
    assert!(matches!(
        from_bytes::<char>(native, &[0, 0xd8, 0, 0]),
        Err(DecodeError::BadValue { .. })
    ));
    assert_eq!(from_bytes::<String>(native, &[1, 0, 0, 0, 0xff]), Err(DecodeError::NotUtf8));
    assert!(matches!(from_bytes::<Food>(native, &[2, 0, 0, 0]), Err(DecodeError::BadValue { .. })));
    let xdr = Encoding::Xdr;
    let padded = from_bytes::<String>(xdr, &[0, 0, 0, 1, b'a', 0, 0, 1]);
    assert_eq!(padded, Err(DecodeError::BadPadding));
    assert!(matches!(from_bytes::<u8>(xdr, &[0, 0, 1, 0]), Err(DecodeError::BadValue { .. })));
    assert!(matches!(from_bytes::<i8>(xdr, &[0, 0, 0, 0x80]), Err(DecodeError::BadValue { .. })));
}

#[test]
fn shapes_tell_structures_apart() {
    let shapes = [
        u32::SHAPE,
        i32::SHAPE,
        <(u32, u8)>::SHAPE,
        <(u8, u32)>::SHAPE,
        <Vec<u32>>::SHAPE,
        <[u32; 2]>::SHAPE,
        <[u32; 3]>::SHAPE,
        <Option<u32>>::SHAPE,
        Animal::SHAPE,
        Food::SHAPE,
        <Chain<u8>>::SHAPE,
        <Chain<u16>>::SHAPE,
        Unit::SHAPE,
        <()>::SHAPE,
    ];
    let distinct: std::collections::BTreeSet<_> = shapes.iter().collect();
    assert_eq!(distinct.len(), shapes.len());
    assert_eq!(<Box<[u8]>>::SHAPE, <Vec<u8>>::SHAPE);
}

proptest! {
    #[test]
    fn animals_come_back(animal in animal()) {
        same(&animal);
        same(&(vec![animal.clone(), animal], Unit));
    }

    #[test]
    fn mutated_animals_do_no_harm(
        animal in animal(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        for encoding in BOTH {
            let mut bytes = to_vec(encoding, &animal);
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            if let Ok(decoded) = from_bytes::<Animal>(encoding, &bytes) {
                // What is taken can be said again, unless a map's keys were not distinct.
                let again = to_vec(encoding, &decoded);
                assert!(again.len() <= bytes.len());
            }
        }
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in any::<Vec<u8>>()) {
        for encoding in BOTH {
            let _ = from_bytes::<Animal>(encoding, &bytes);
            let _ = from_bytes::<Vec<Food>>(encoding, &bytes);
            let _ = from_bytes::<Chain<String>>(encoding, &bytes);
        }
    }
}
