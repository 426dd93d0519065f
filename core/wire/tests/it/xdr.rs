//! XDR against bytes written by hand from RFC 4506; the numbers of its sections are given.

use crate::zoo::Chain;
use petasos_macros::Wire;
use petasos_wire::{DecodeError, Encoding::Xdr, Wire, from_bytes, to_vec};
use std::fmt::Debug;

/// The value is these bytes, and these bytes are the value.
fn both_ways<T: Wire + PartialEq + Debug>(value: T, bytes: &[u8]) {
    assert_eq!(to_vec(Xdr, &value), bytes, "{value:?}");
    assert_eq!(from_bytes::<T>(Xdr, bytes), Ok(value));
}

fn refused<T: Wire + PartialEq + Debug>(bytes: &[u8], error: DecodeError) {
    assert_eq!(from_bytes::<T>(Xdr, bytes), Err(error));
}

#[test]
fn integers() {
    // 4.1, 4.2
    both_ways(-2i32, &[0xff, 0xff, 0xff, 0xfe]);
    both_ways(0x0102_0304u32, &[1, 2, 3, 4]);
    // 4.5
    both_ways(-2i64, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe]);
    both_ways(0x0102_0304_0506_0708u64, &[1, 2, 3, 4, 5, 6, 7, 8]);
    // What C declares as char or short travels as int.
    both_ways(-1i8, &[0xff, 0xff, 0xff, 0xff]);
    both_ways(-300i16, &[0xff, 0xff, 0xfe, 0xd4]);
    both_ways(200u8, &[0, 0, 0, 200]);
    both_ways(300u16, &[0, 0, 1, 44]);
    refused::<u8>(&[0, 0, 1, 0], DecodeError::BadValue { what: "u8", value: 256 });
    refused::<u16>(&[0, 1, 0, 0], DecodeError::BadValue { what: "u16", value: 65536 });
    refused::<i8>(&[0, 0, 0, 128], DecodeError::BadValue { what: "i8", value: 128 });
    refused::<Vec<i16>>(
        &[0, 0, 0, 1, 0, 0, 0x80, 0],
        DecodeError::BadValue { what: "i16", value: 32768 },
    );
    refused::<u64>(&[0; 4], DecodeError::Short { wanted: 8, left: 4 });
}

#[test]
fn booleans_and_enums() {
    // 4.3, 4.4
    both_ways(true, &[0, 0, 0, 1]);
    both_ways(false, &[0, 0, 0, 0]);
    refused::<bool>(&[0, 0, 0, 2], DecodeError::BadValue { what: "bool", value: 2 });
    refused::<bool>(&[1, 0, 0, 0], DecodeError::BadValue { what: "bool", value: 1 << 24 });

    #[derive(Wire, Debug, PartialEq)]
    enum Colour {
        #[wire(tag = 2)]
        Red,
        Yellow,
        #[wire(tag = 5)]
        Blue,
    }
    both_ways(Colour::Red, &[0, 0, 0, 2]);
    both_ways(Colour::Yellow, &[0, 0, 0, 3]);
    both_ways(Colour::Blue, &[0, 0, 0, 5]);
    refused::<Colour>(&[0, 0, 0, 4], DecodeError::BadValue { what: "Colour", value: 4 });
}

#[test]
fn floating_point() {
    // 4.6, 4.7: IEEE 754.
    both_ways(1.0f32, &[0x3f, 0x80, 0, 0]);
    both_ways(-0.15625f32, &[0xbe, 0x20, 0, 0]);
    both_ways(f32::INFINITY, &[0x7f, 0x80, 0, 0]);
    both_ways(1.0f64, &[0x3f, 0xf0, 0, 0, 0, 0, 0, 0]);
    both_ways(-2.5f64, &[0xc0, 0x04, 0, 0, 0, 0, 0, 0]);
    let nan = from_bytes::<f64>(Xdr, &[0x7f, 0xf8, 0, 0, 0, 0, 0, 1]).unwrap();
    assert_eq!(nan.to_bits(), 0x7ff8_0000_0000_0001);
}

#[test]
fn opaque_data_and_strings() {
    // 4.9: fixed length. 4.10: variable length. 4.11: strings.
    both_ways(*b"abc", b"abc\0");
    both_ways(*b"abcd", b"abcd");
    both_ways(vec![1u8, 2, 3, 4, 5], &[0, 0, 0, 5, 1, 2, 3, 4, 5, 0, 0, 0]);
    both_ways(bytes::Bytes::from_static(&[9]), &[0, 0, 0, 1, 9, 0, 0, 0]);
    both_ways(Vec::<u8>::new(), &[0; 4]);
    both_ways("grüße".to_owned(), b"\0\0\0\x07gr\xc3\xbc\xc3\x9fe\0");
    // The padding is there, and it is zero.
    refused::<[u8; 3]>(b"abc\x01", DecodeError::BadPadding);
    refused::<String>(&[0, 0, 0, 1, b'a', 0, 0, 1], DecodeError::BadPadding);
    refused::<String>(&[0, 0, 0, 1, b'a', 0, 0], DecodeError::Short { wanted: 3, left: 2 });
    refused::<String>(&[0, 0, 0, 1, 0xff, 0, 0, 0], DecodeError::NotUtf8);
}

#[test]
fn arrays() {
    // 4.12: fixed length. 4.13: variable length.
    both_ways([1u32, 2], &[0, 0, 0, 1, 0, 0, 0, 2]);
    both_ways(vec![1i16, -1], &[0, 0, 0, 2, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]);
    both_ways(vec![true], &[0, 0, 0, 1, 0, 0, 0, 1]);
    let strings = vec!["a".to_owned(), "bc".to_owned()];
    both_ways(strings, b"\0\0\0\x02\0\0\0\x01a\0\0\0\0\0\0\x02bc\0\0");
    // Each opaque element has its own padding.
    both_ways(vec![[1u8], [2]], &[0, 0, 0, 2, 1, 0, 0, 0, 2, 0, 0, 0]);
    both_ways(vec![1.5f64], &[0, 0, 0, 1, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0]);
    // More than one block of conversion.
    let many: Vec<u32> = (0..1000).collect();
    let bytes = [1000u32].iter().chain(&many).flat_map(|n| n.to_be_bytes()).collect::<Vec<_>>();
    both_ways(many, &bytes);
}

#[test]
fn unions_and_optional_data() {
    // 4.15: the discriminant, and the arm. 4.16: void.
    #[derive(Wire, Debug, PartialEq)]
    enum Reply {
        Void,
        Data { length: u64 },
        Pair(u32, bool),
    }
    both_ways(Reply::Void, &[0, 0, 0, 0]);
    both_ways(Reply::Data { length: 7 }, &[0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7]);
    both_ways(Reply::Pair(3, true), &[0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1]);
    both_ways((), &[]);
    // 4.19
    both_ways(None::<u32>, &[0, 0, 0, 0]);
    both_ways(Some(5u32), &[0, 0, 0, 1, 0, 0, 0, 5]);
    both_ways(Chain::long(1), &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn the_example_of_the_rfc() {
    // Section 7.
    #[derive(Wire, Debug, PartialEq)]
    enum FileType {
        Text,
        Data(String),
        Exec(String),
    }
    #[derive(Wire, Debug, PartialEq)]
    struct File {
        name: String,
        kind: FileType,
        owner: String,
        data: Vec<u8>,
    }
    let file = File {
        name: "sillyprog".into(),
        kind: FileType::Exec("lisp".into()),
        owner: "john".into(),
        data: b"(quit)".to_vec(),
    };
    let bytes = [
        0x00, 0x00, 0x00, 0x09, 0x73, 0x69, 0x6c, 0x6c, 0x79, 0x70, 0x72, 0x6f, 0x67, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x04, 0x6c, 0x69, 0x73, 0x70, 0x00, 0x00,
        0x00, 0x04, 0x6a, 0x6f, 0x68, 0x6e, 0x00, 0x00, 0x00, 0x06, 0x28, 0x71, 0x75, 0x69, 0x74,
        0x29, 0x00, 0x00,
    ];
    both_ways(file, &bytes);
    both_ways(FileType::Text, &[0; 4]);
    both_ways(FileType::Data("a".into()), b"\0\0\0\x01\0\0\0\x01a\0\0\0");
}
