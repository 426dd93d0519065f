//! Bytes that mean harm: refused without a panic, and without memory beyond the limits.

#[path = "it/zoo.rs"]
mod zoo;

use allocation_counter::measure;
use petasos_wire::{DecodeError, Encoding, Limits, Wire, from_bytes, from_bytes_limited, to_vec};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use zoo::{BOTH, Chain, Food, Tree, Unit, Zoo, zoo};

/// Decodes within the limits, and checks that the heap stayed within them, too.
fn stays_within<T: Wire>(
    encoding: Encoding,
    bytes: &[u8],
    limits: Limits,
) -> Result<T, DecodeError> {
    let mut decoded = None;
    let heap = measure(|| decoded = Some(from_bytes_limited::<T>(encoding, bytes, limits)));
    let (took, len) = (heap.bytes_total, bytes.len());
    assert!(took <= limits.memory as u64, "{took} bytes for {len}, {limits:?}");
    decoded.unwrap()
}

/// Within the default limits.
fn bounded<T: Wire>(encoding: Encoding, bytes: &[u8]) -> Result<T, DecodeError> {
    stays_within(encoding, bytes, Limits::for_input(bytes.len()))
}

#[test]
fn long_counts_allocate_nothing() {
    fn refused<T: Wire>(short: bool) {
        for encoding in BOTH {
            let mut bytes = to_vec(encoding, &u32::MAX);
            bytes.extend([0; 64]);
            let heap = measure(|| match from_bytes::<T>(encoding, &bytes) {
                Err(DecodeError::Short { .. }) => assert!(short),
                Err(DecodeError::Memory { .. }) => assert!(!short),
                _ => panic!("accepted"),
            });
            assert_eq!(heap.bytes_total, 0);
        }
    }
    refused::<Vec<u8>>(true);
    refused::<Vec<u64>>(true);
    refused::<Vec<i16>>(true);
    refused::<String>(true);
    refused::<Vec<String>>(true);
    refused::<Vec<Option<Box<u8>>>>(true);
    refused::<BTreeMap<u8, u8>>(true);
    refused::<HashMap<String, u8>>(true);
    refused::<BTreeSet<u32>>(true);
    // These would take no memory, and no end of time.
    refused::<Vec<()>>(false);
    refused::<Vec<Unit>>(false);
    refused::<BTreeMap<(), ()>>(false);
    refused::<Vec<[u64; 0]>>(false);
}

#[test]
fn few_bytes_do_not_become_much_memory() {
    // 1,000 empty options of a large type: 1,000 bytes that would become 8 MB.
    let bytes = to_vec(Encoding::Native, &vec![None::<[u64; 1000]>; 1000]);
    type Large = Vec<Option<[u64; 1000]>>;
    let error = from_bytes::<Large>(Encoding::Native, &bytes);
    assert_eq!(error, Err(DecodeError::Memory { wanted: 8_008_000, left: 129_792 }));
    let limits = Limits { memory: 8_008_000, depth: 1 };
    assert_eq!(from_bytes_limited::<Large>(Encoding::Native, &bytes, limits).unwrap().len(), 1000);
    // Trees and tables of every size stay within what is charged for them.
    for entries in 0..200u8 {
        for encoding in BOTH {
            let bytes = to_vec(encoding, &(0..entries).map(|n| (n, n)).collect::<Vec<_>>());
            for memory in (0..8192).step_by(512) {
                let limits = Limits { memory, depth: 1 };
                let _ = stays_within::<BTreeMap<u8, u8>>(encoding, &bytes, limits);
                let _ = stays_within::<HashMap<u8, u8>>(encoding, &bytes, limits);
            }
        }
    }
    // A map of one entry has room for eleven.
    type Maps = Vec<BTreeMap<u8, Option<[u64; 20]>>>;
    let maps: Maps = vec![[(1, None)].into(); 1000];
    assert!(bounded::<Maps>(Encoding::Native, &to_vec(Encoding::Native, &maps)).is_err());
}

#[test]
fn honest_messages_fit_the_default_limits() {
    fn fits<T: Wire>(value: &T) {
        for encoding in BOTH {
            bounded::<T>(encoding, &to_vec(encoding, value)).unwrap();
        }
    }
    fits(&vec![String::new(); 100_000]);
    fits(&vec![Vec::<u64>::new(); 100_000]);
    fits(&vec![Some(Box::new(7u8)); 100_000]);
    fits(&vec![None::<String>; 100_000]);
    fits(&vec![0u8; 1 << 20]);
    fits(&vec![-1i16; 1 << 20]);
    fits(&vec![[1.5f64; 3]; 100_000]);
    fits(&(0..100_000u32).map(|n| (n, n)).collect::<BTreeMap<_, _>>());
    fits(&(0..100_000u32).map(|n| (n, n)).collect::<HashMap<_, _>>());
    fits(&(0..=255u8).map(|n| (n, n)).collect::<BTreeMap<_, _>>());
    fits(&vec![BTreeMap::from([(1u8, 2u8)]); 100_000]);
    fits(&vec![HashMap::from([(1u8, "two".to_owned())]); 100_000]);
    fits(&vec![BTreeMap::from([(1u8, "two".to_owned())]); 100_000]);
    fits(&vec![BTreeSet::from([1u64, 2]); 100_000]);
}

#[test]
fn depth_is_bounded() {
    for encoding in BOTH {
        let bytes = to_vec(encoding, &Chain::long(64));
        assert_eq!(from_bytes(encoding, &bytes), Ok(Chain::long(64)));
        let bytes = to_vec(encoding, &Chain::long(65));
        assert_eq!(from_bytes::<Chain<u8>>(encoding, &bytes), Err(DecodeError::TooDeep));
        // A tree whose first branch goes down for ever.
        let bytes = to_vec(encoding, &1u32).repeat(100_000);
        assert_eq!(from_bytes::<Tree<i32>>(encoding, &bytes), Err(DecodeError::TooDeep));
    }
}

#[test]
fn refusals_name_what_is_wrong() {
    let native = Encoding::Native;
    let error = from_bytes::<u64>(native, &[1; 4]).unwrap_err();
    assert_eq!(error, DecodeError::Short { wanted: 8, left: 4 });
    assert_eq!(error.to_string(), "8 bytes were wanted, 4 are left");
    assert_eq!(from_bytes::<u8>(native, &[1; 4]), Err(DecodeError::Trailing(3)));
    assert_eq!(
        from_bytes::<bool>(native, &[2]),
        Err(DecodeError::BadValue { what: "bool", value: 2 })
    );
    assert_eq!(
        from_bytes::<char>(native, &[0, 0xd8, 0, 0]),
        Err(DecodeError::BadValue { what: "char", value: 0xd800 })
    );
    assert_eq!(from_bytes::<Food>(native, &[2, 0, 0, 0]).unwrap_err().to_string(), "2 is no Food");
    assert_eq!(from_bytes::<String>(native, &[1, 0, 0, 0, 0xff]), Err(DecodeError::NotUtf8));
    let twice = to_vec(native, &vec![(7u8, 1u8), (7, 2)]);
    assert_eq!(from_bytes::<BTreeMap<u8, u8>>(native, &twice), Err(DecodeError::DuplicateKey));
    assert_eq!(from_bytes::<HashMap<u8, u8>>(native, &twice), Err(DecodeError::DuplicateKey));
}

proptest! {
    #[test]
    fn what_is_allocated_is_charged(zoo in zoo()) {
        for encoding in BOTH {
            let bytes = to_vec(encoding, &zoo);
            let decode = |memory| {
                stays_within::<Zoo>(encoding, &bytes, Limits { memory, depth: 64 })
            };
            // The least that suffices: the heap must not have taken more there, either.
            let (mut too_little, mut enough) = (0, Limits::for_input(bytes.len()).memory);
            while enough - too_little > 1 {
                let middle = too_little.midpoint(enough);
                match decode(middle) {
                    Ok(_) => enough = middle,
                    Err(_) => too_little = middle,
                }
            }
            prop_assert_eq!(decode(enough), Ok(zoo.clone()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn mutated_values_do_no_harm(
        zoo in zoo(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::weighted(0.3, any::<prop::sample::Index>()),
    ) {
        for encoding in BOTH {
            let mut bytes = to_vec(encoding, &zoo);
            for (at, byte) in &changes {
                let at = at.index(bytes.len());
                bytes[at] = *byte;
            }
            if let Some(cut) = cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Ok(decoded) = bounded::<Zoo>(encoding, &bytes) {
                // One value, one form; only the order in a map may differ.
                prop_assert_eq!(to_vec(encoding, &decoded).len(), bytes.len());
            }
        }
    }

    #[test]
    fn random_bytes_do_no_harm(bytes in prop::collection::vec(0u8..8, 0..300)) {
        for encoding in BOTH {
            let _ = bounded::<Zoo>(encoding, &bytes);
            let _ = bounded::<Vec<Food>>(encoding, &bytes);
            let _ = bounded::<Chain<String>>(encoding, &bytes);
            let _ = bounded::<Tree<i32>>(encoding, &bytes);
            let _ = bounded::<HashMap<u8, BTreeMap<i8, Vec<()>>>>(encoding, &bytes);
        }
    }
}
