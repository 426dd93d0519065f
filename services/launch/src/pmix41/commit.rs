//! A client's commit as entries of its business card.

use super::ELSEWHERE;
use petasos_pmix::server::packing::{BAD, Decoded, Reader, take_value};
use petasos_pmix::{Entry, Scope, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Keys that a process may have put.
const MAX_PUT: usize = 1 << 16;

/// The keys that a process has put with two values: one for its own node, one for the others.
#[derive(Debug, Default)]
pub(super) struct SplitKeys(BTreeSet<String>);

impl SplitKeys {
    /// Reads a commit. It has everything that the process has ever put, in two parts: one for its
    /// own node, one for the other nodes.
    pub(super) fn take_commit(&mut self, from: &mut Reader<'_>) -> Decoded<Vec<(String, Entry)>> {
        let mut put: BTreeMap<String, [Option<Value>; 2]> = BTreeMap::new();
        while !from.is_empty() {
            from.begin()?;
            let elsewhere = usize::from(from.byte()? != 1);
            from.begin()?;
            from.byte()?;
            let mut pairs = Reader(from.bytes()?);
            while !pairs.is_empty() {
                pairs.begin()?;
                let key = pairs.text()?;
                put.entry(key).or_default()[elsewhere] = Some(take_value(&mut pairs)?);
                if put.len() > MAX_PUT {
                    return Err(BAD);
                }
            }
        }
        let mut entries = Vec::with_capacity(put.len());
        for (key, values) in put {
            if matches!(&values, [Some(here), Some(there)] if here != there) {
                self.0.insert(key.clone());
                if self.0.len() > MAX_PUT {
                    return Err(BAD);
                }
            }
            let split = self.0.contains(&key);
            match values {
                [Some(value), Some(_)] if !split => {
                    entries.push((key, Entry { scope: Scope::Global, value }));
                }
                [here, there] => {
                    let to =
                        |key: &str| if split { format!("{ELSEWHERE}{key}") } else { key.into() };
                    let there =
                        there.map(|value| (to(&key), Entry { scope: Scope::Remote, value }));
                    let here = here.map(|value| (key, Entry { scope: Scope::Local, value }));
                    entries.extend(here.into_iter().chain(there));
                }
            }
        }
        Ok(entries)
    }
}
