//! Conversion of values between OpenPMIx's types and the engine's. Types that both have are
//! translated, so that programs of both kinds understand each other. Others are kept as they came,
//! and go out unchanged.

use super::wire::{
    BAD, Decoded, LOCAL_NODE, LOCAL_PEERS, Reader, WILDCARD, kind, put_bytes, put_signed, put_text,
    put_unsigned,
};
use crate::{
    Group, Node, Proc, Span, Value,
    job::JobMap,
    value::{Info, RESERVED},
};
use std::time::Duration;

/// Attributes of one message.
pub(super) const MAX_INFOS: usize = 4096;
/// Processes named in one message.
pub(super) const MAX_PROCS: usize = 1 << 20;
/// The flag of an attribute that the client requires to be honoured.
const REQUIRED: u64 = 1;

/// Reads a value that follows its type.
pub(crate) fn take_value(from: &mut Reader<'_>) -> Decoded<Value> {
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

/// The number in a packed value, if it is one.
pub(crate) fn number(kind: u16, packed: &[u8]) -> Option<i128> {
    let mut from = Reader(packed);
    let number = match kind {
        kind::SIZE | kind::UINT..=kind::UINT64 | kind::TIME | kind::RANK if kind != 12 => {
            from.unsigned().ok()?.into()
        }
        kind::INT | kind::INT16..=kind::INT64 | kind::STATUS => from.signed().ok()?.into(),
        // A number of the system has its real type before it.
        kind::PID => {
            let real = from.kind().ok().filter(|real| *real != kind::PID)?;
            return self::number(real, from.0);
        }
        35 | 36 | 45 | 57 | 58 => from.unsigned().ok()?.into(),
        7 => i128::from(from.byte().ok()? as i8),
        // Bytes: scopes, states and the like.
        2 | 12 | 32 | 34 | 37 | 43 | 50 | 51 | kind::PERSISTENCE | kind::RANGE => {
            from.byte().ok()?.into()
        }
        _ => return None,
    };
    Some(number)
}

/// Whether numbers of this type can be negative.
pub(crate) fn is_signed(kind: u16) -> bool {
    matches!(kind, kind::INT..=kind::INT64 | kind::STATUS)
}

/// Writes a value after its type. Some keys have a type of their own.
pub(crate) fn put_value(out: &mut Vec<u8>, key: &str, value: &Value) {
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

/// A key with its value, in the form that buffers have.
pub(super) fn put_pair(out: &mut Vec<u8>, key: &str, value: &Value) {
    put_signed(out, 1);
    put_text(out, key);
    put_value(out, key, value);
}

/// An attribute.
pub(super) fn put_info(out: &mut Vec<u8>, key: &str, value: &Value) {
    put_text(out, key);
    put_unsigned(out, 0);
    put_value(out, key, value);
}

/// Attributes that came with a request.
#[derive(Debug)]
pub(super) struct Attributes {
    pub(super) all: Info,
    required: Vec<String>,
}

impl Attributes {
    pub(super) fn take(from: &mut Reader<'_>) -> Decoded<Attributes> {
        let count = from.size(MAX_INFOS)?;
        Self::take_some(from, count)
    }

    pub(super) fn take_some(from: &mut Reader<'_>, count: usize) -> Decoded<Attributes> {
        let (mut all, mut required) = (Info::new(), Vec::new());
        for _ in 0..count {
            let (key, flags) = (from.text()?, from.unsigned()?);
            let value = take_value(from)?;
            if flags & REQUIRED != 0 {
                required.push(key.clone());
            }
            all.push((key, value));
        }
        Ok(Attributes { all, required })
    }

    /// Whether all required attributes are among `known`, or are data of the client's own.
    pub(super) fn are_met_by(&self, known: &[&str]) -> Decoded<()> {
        let unmet = |key: &String| key.starts_with(RESERVED) && !known.contains(&key.as_str());
        match self.required.iter().any(unmet) {
            true => Err(super::wire::UNSUPPORTED),
            false => Ok(()),
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        self.all.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }

    /// Whether a flag is set. A flag without a value is.
    pub(super) fn is_set(&self, key: &str) -> bool {
        match self.get(key) {
            Some(Value::Bool(value)) => *value,
            Some(Value::Typed { kind: 0, .. }) => true,
            _ => false,
        }
    }

    /// The client's timeout; `None`, which is 0 on the wire: none.
    pub(super) fn timeout(&self) -> Option<Duration> {
        let seconds = self.get("pmix.timeout")?.as_u64().filter(|seconds| *seconds > 0)?;
        Some(Duration::from_secs(seconds))
    }

    pub(super) fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.all.iter().position(|(name, _)| name == key)?;
        Some(self.all.remove(at).1)
    }
}

/// Reads processes, all of which must be of this job.
pub(super) fn take_group(
    from: &mut Reader<'_>,
    count: u64,
    job: &JobMap,
    own: Node,
) -> Decoded<Group> {
    if count > MAX_PROCS as u64 {
        return Err(BAD);
    }
    let mut spans = Vec::new();
    let span = |first, last| Span { job: job.id(), first, last };
    for _ in 0..count {
        let (name, rank) = (from.text()?, from.rank()?);
        if name != job.space() {
            return Err(super::wire::Refusal(crate::status::NOT_FOUND));
        }
        match rank {
            WILDCARD => spans.push(span(0, job.size().saturating_sub(1))),
            LOCAL_NODE | LOCAL_PEERS => {
                spans.extend(job.ranks_on(own).iter().map(|rank| span(*rank, *rank)));
            }
            rank if rank < job.size() => spans.push(span(rank, rank)),
            _ => return Err(BAD),
        }
        if spans.len() > 2 * MAX_PROCS {
            return Err(BAD);
        }
    }
    Ok(Group::new(spans))
}

/// The processes that a value names: one, or an array of them.
pub(super) fn group_of(value: &Value, job: &JobMap, own: Node) -> Decoded<Group> {
    let Value::Typed { kind, packed } = value else { return Err(BAD) };
    let mut from = Reader(packed);
    match *kind {
        kind::PROC => take_group(&mut from, 1, job, own),
        kind::ARRAY if from.kind()? == kind::PROC => {
            let count = from.unsigned()?;
            take_group(&mut from, count, job, own)
        }
        _ => Err(BAD),
    }
}

/// A value that names processes.
pub(super) fn procs_value(name: &str, ranks: &[u32]) -> Value {
    let mut packed = Vec::new();
    let kind = match ranks {
        [rank] => {
            super::wire::put_proc(&mut packed, name, *rank);
            kind::PROC
        }
        ranks => {
            put_unsigned(&mut packed, kind::PROC.into());
            put_unsigned(&mut packed, ranks.len() as u64);
            ranks.iter().for_each(|rank| super::wire::put_proc(&mut packed, name, *rank));
            kind::ARRAY
        }
    };
    Value::Typed { kind, packed }
}

/// The name of a process on the client's wire.
pub(super) fn name_of(proc: Proc, job: &JobMap) -> (&str, u32) {
    match proc {
        Proc { rank: Proc::JOB, .. } => (job.space(), WILDCARD),
        Proc { job: id, rank } if id == job.id() => (job.space(), rank),
        Proc { rank, .. } => ("petasos-tools", rank),
    }
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
            procs_value("job", &[1]),
            procs_value("job", &[1, 2, 3]),
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
