//! Conversion of values between OpenPMIx's types and ours. Types that both have are translated, so
//! that programs of both kinds understand each other. Others are kept as they came, and go out
//! unchanged.

use crate::{
    packing::{Decoded, Reader, kind, put_bytes, put_signed, put_text, put_unsigned},
    value::Value,
};

/// Reads a value that follows its type.
///
/// # Errors
/// If it is cut short or packed wrongly, or its type is not known.
pub fn take_value(from: &mut Reader<'_>) -> Decoded<Value> {
    let kind = from.kind()?;
    let packed = from.measure(kind)?;
    let mut from = Reader(packed);
    let typed = || Value::Typed { kind, packed: packed.to_vec() };
    Ok(match kind {
        kind::BOOL => Value::Bool(from.byte()? != 0),
        kind::INT64 => Value::Int(from.signed()?),
        kind::UINT64 => Value::Uint(from.unsigned()?),
        kind::BYTES => Value::Bytes(from.bytes()?.to_vec()),
        kind::STRING => match from.text_bytes()?.map(std::str::from_utf8) {
            Some(Ok(text)) => Value::Text(text.to_owned()),
            _ => typed(),
        },
        _ => typed(),
    })
}

/// Writes a value after its type. Some keys have a type of their own.
pub fn put_value(out: &mut Vec<u8>, key: &str, value: &Value) {
    let of_key = match key {
        "pmix.rank" | "pmix.lldr" | "pmix.grank" => Some(kind::RANK),
        "pmix.lrank" | "pmix.nrank" => Some(kind::UINT16),
        "pmix.nodeid" | "pmix.job.size" | "pmix.univ.size" | "pmix.max.size" | "pmix.num.nodes"
        | "pmix.local.size" | "pmix.node.size" => Some(kind::UINT32),
        _ => None,
    };
    if let (Some(kind), Some(number)) = (of_key, value.as_u64()) {
        put_unsigned(out, kind.into());
        return put_unsigned(out, number);
    }
    if let ("pmix.exit.code", Value::Int(number)) = (key, value) {
        put_unsigned(out, kind::INT.into());
        return put_signed(out, *number);
    }
    let mut kind = |kind: u16| put_unsigned(out, kind.into());
    match value {
        Value::Bool(value) => {
            kind(kind::BOOL);
            out.push(u8::from(*value));
        }
        Value::Int(value) => {
            kind(kind::INT64);
            put_signed(out, *value);
        }
        Value::Uint(value) => {
            kind(kind::UINT64);
            put_unsigned(out, *value);
        }
        Value::Real(value) => {
            kind(kind::DOUBLE);
            put_text(out, &value.to_string());
        }
        Value::Text(value) => {
            kind(kind::STRING);
            put_text(out, value);
        }
        Value::Bytes(value) => {
            kind(kind::BYTES);
            put_bytes(out, value);
        }
        Value::List(values) => {
            kind(kind::ARRAY);
            put_unsigned(out, kind::VALUE.into());
            put_unsigned(out, values.len() as u64);
            values.iter().for_each(|value| put_value(out, "", value));
        }
        Value::Record(named) => {
            kind(kind::ARRAY);
            put_unsigned(out, kind::INFO.into());
            put_unsigned(out, named.len() as u64);
            named.iter().for_each(|(name, value)| put_info(out, name, value));
        }
        // The sender may have named a wrong type, on which the client would fail.
        Value::Typed { kind: own, packed } => match Reader(packed).pass(*own) {
            Some(whole) if whole.len() == packed.len() => {
                kind(*own);
                out.extend(packed);
            }
            _ => {
                kind(kind::BYTES);
                put_bytes(out, packed);
            }
        },
    }
}

/// An attribute.
pub fn put_info(out: &mut Vec<u8>, key: &str, value: &Value) {
    put_text(out, key);
    put_unsigned(out, 0);
    put_value(out, key, value);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn again(value: &Value) -> Value {
        let mut out = Vec::new();
        put_value(&mut out, "key", value);
        let mut from = Reader(&out);
        let value = take_value(&mut from).unwrap();
        assert!(from.is_empty());
        value
    }

    #[test]
    fn what_both_have_is_translated_and_the_rest_kept() {
        for value in [
            Value::Bool(true),
            Value::Int(-7),
            Value::Uint(u64::MAX),
            Value::Text("text".to_owned()),
            Value::Bytes(vec![1, 2]),
            Value::Typed { kind: kind::UINT16, packed: vec![9] },
            Value::Typed { kind: kind::PROC, packed: b"\x08job\0\x01".to_vec() },
        ] {
            assert_eq!(again(&value), value);
        }
        let list = again(&Value::List(vec![Value::Int(1), Value::Text("two".to_owned())]));
        assert!(matches!(list, Value::Typed { kind: kind::ARRAY, .. }));
        assert_eq!(again(&list), list);
        let real = again(&Value::Real(0.5));
        assert_eq!(real, Value::Typed { kind: kind::DOUBLE, packed: b"\x080.5\0".to_vec() });
    }

    #[test]
    fn a_wrong_type_goes_out_as_bytes() {
        let wrong = Value::Typed { kind: kind::STRING, packed: vec![200] };
        assert_eq!(again(&wrong), Value::Bytes(vec![200]));
    }

    #[test]
    fn numbers_of_all_types_are_numbers() {
        let typed = |kind, packed: &[u8]| Value::Typed { kind, packed: packed.to_vec() };
        assert_eq!(typed(kind::INT, &[4]).as_u64(), Some(2));
        assert_eq!(typed(kind::INT, &[3]).to_string(), "-2");
        assert_eq!(typed(kind::UINT32, &[0x80, 1]).as_u64(), Some(128));
        assert_eq!(typed(12, &[200]).as_u64(), Some(200));
        assert_eq!(typed(kind::PID, &[kind::UINT32 as u8, 0x80, 1]).as_u64(), Some(128));
        assert_eq!(typed(kind::PID, &[kind::PID as u8; 9]).as_u64(), None);
        assert_eq!(typed(kind::PROC, &[2, 0, 1]).as_u64(), None);
    }
}
