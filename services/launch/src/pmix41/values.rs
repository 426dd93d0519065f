//! What the values of OpenPMIx name in requests: attributes, and processes.

use petasos_pmix::server::packing::{
    BAD, Decoded, LOCAL_NODE, LOCAL_PEERS, Reader, WILDCARD, kind, put_signed, put_text,
    put_unsigned, put_value, take_value,
};
use petasos_pmix::{Group, Info, Node, Proc, RESERVED, Span, Value, job::JobMap};
use std::time::Duration;

/// Attributes of one message.
pub(super) const MAX_INFOS: usize = 4096;
/// Processes named in one message.
pub(super) const MAX_PROCS: usize = 1 << 20;
/// The flag of an attribute that the client requires to be honoured.
const REQUIRED: u64 = 1;

/// A key with its value, in the form that buffers have.
pub(super) fn put_pair(out: &mut Vec<u8>, key: &str, value: &Value) {
    put_signed(out, 1);
    put_text(out, key);
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
            true => Err(petasos_pmix::server::packing::UNSUPPORTED),
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
        if name != job.namespace() {
            return Err(petasos_pmix::server::packing::Refusal(petasos_pmix::status::NOT_FOUND));
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
            petasos_pmix::server::packing::put_proc(&mut packed, name, *rank);
            kind::PROC
        }
        ranks => {
            put_unsigned(&mut packed, kind::PROC.into());
            put_unsigned(&mut packed, ranks.len() as u64);
            ranks
                .iter()
                .for_each(|rank| petasos_pmix::server::packing::put_proc(&mut packed, name, *rank));
            kind::ARRAY
        }
    };
    Value::Typed { kind, packed }
}

/// The name of a process on the client's wire.
pub(super) fn name_of(proc: Proc, job: &JobMap) -> (&str, u32) {
    match proc {
        Proc { rank: Proc::JOB, .. } => (job.namespace(), WILDCARD),
        Proc { job: id, rank } if id == job.id() => (job.namespace(), rank),
        Proc { rank, .. } => ("petasos-tools", rank),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_pmix::server::packing::{put_value, take_value};

    #[test]
    fn values_that_name_processes_survive() {
        for value in [procs_value("job", &[1]), procs_value("job", &[1, 2, 3])] {
            let mut out = Vec::new();
            put_value(&mut out, "key", &value);
            let mut from = Reader(&out);
            assert_eq!(take_value(&mut from), Ok(value));
            assert!(from.is_empty());
        }
    }
}
