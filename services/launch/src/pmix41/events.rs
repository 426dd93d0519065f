//! Events for a client: those it wants, those it has received, and their form on its wire.

use super::{
    commands::{EVENT, IN_RANGE, range_number},
    values::{name_of, procs_value},
};
use petasos_pmix::server::packing::{
    put_info, put_proc, put_signed, put_size, put_status, put_unsigned,
};
use petasos_pmix::{
    Value,
    event::{Event, EventId, NON_DEFAULT},
    job::JobMap,
    status,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many received events are remembered, to recognise repeated ones: as many as the engine
/// keeps.
const REMEMBERED: usize = 512;
/// The code by which a client registers for all events.
const ALL: i32 = i32::MIN;
/// The processes affected by an event: one, or several.
const AFFECTED: &str = "pmix.evproc";
const ALL_AFFECTED: &str = "pmix.evaffected";

/// The codes that a client wants. It counts its handlers itself, and announces the first one for a
/// code and the end of the last.
#[derive(Debug, Default)]
pub(super) struct Events {
    next: u64,
    /// The engine's handlers for it, with the codes that it still wants; `ALL` for a default
    /// handler.
    handlers: BTreeMap<u64, BTreeSet<i32>>,
    told: VecDeque<EventId>,
}

impl Events {
    fn wants(&self, code: i32) -> bool {
        self.handlers.values().any(|codes| codes.contains(&code))
    }

    /// The client wants these codes (none: all). Gives the handler and the new codes.
    pub(super) fn listen(&mut self, codes: &[i32]) -> Option<(u64, Vec<i32>)> {
        let wanted: BTreeSet<i32> = if codes.is_empty() { &[ALL] } else { codes }
            .iter()
            .copied()
            .filter(|code| !self.wants(*code))
            .collect();
        if wanted.is_empty() {
            return None;
        }
        self.next += 1;
        let new = if codes.is_empty() { Vec::new() } else { wanted.iter().copied().collect() };
        self.handlers.insert(self.next, wanted);
        Some((self.next, new))
    }

    /// The client no longer wants this code. Gives a handler that has no code left.
    pub(super) fn ignore(&mut self, code: i32) -> Option<u64> {
        let (id, codes) = self.handlers.iter_mut().find(|(_, codes)| codes.contains(&code))?;
        codes.remove(&code);
        let id = *id;
        (codes.is_empty() && self.handlers.remove(&id).is_some()).then_some(id)
    }

    pub(super) fn forget(&mut self, handler: u64) {
        self.handlers.remove(&handler);
    }

    /// The message for the client, if it is to receive the event. The [module of sessions](super)
    /// says why some events skip its default handlers.
    pub(super) fn tell(
        &mut self,
        event: &Event,
        only: Option<u64>,
        job: &JobMap,
    ) -> Option<Vec<u8>> {
        let by_code = self.wants(event.code);
        let by_default = self.wants(ALL) && !event.non_default;
        let late = only.and_then(|handler| self.handlers.get(&handler));
        if !by_code && !by_default || only.is_some() && late.is_none() {
            return None;
        }
        let again = self.told.contains(&event.id);
        if again && late.is_some_and(|codes| codes.contains(&ALL)) {
            return None;
        }
        if !again {
            self.told.push_back(event.id);
            if self.told.len() > REMEMBERED {
                self.told.pop_front();
            }
        }
        Some(packed(event, event.non_default || again, job))
    }
}

fn packed(event: &Event, past_default: bool, job: &JobMap) -> Vec<u8> {
    let mut info = event.info.clone();
    info.retain(|(key, _)| key != NON_DEFAULT && key != IN_RANGE);
    if past_default {
        info.push((NON_DEFAULT.to_owned(), true.into()));
    }
    let has = |key: &str| info.iter().any(|(name, _)| name == key);
    if event.code == status::PROC_ABORTED && !has(AFFECTED) && !has(ALL_AFFECTED) {
        let ranks = match event.info.iter().find(|(key, _)| key == "petasos.ranks") {
            Some((_, Value::List(ranks))) => {
                ranks.iter().filter_map(|rank| u32::try_from(rank.as_u64()?).ok()).collect()
            }
            _ => vec![name_of(event.source, job).1],
        };
        let key = if ranks.len() == 1 { AFFECTED } else { ALL_AFFECTED };
        info.push((key.to_owned(), procs_value(job.namespace(), &ranks)));
    }
    let mut out = Vec::new();
    put_signed(&mut out, 1);
    out.push(EVENT);
    put_status(&mut out, event.code);
    put_signed(&mut out, 1);
    let (name, rank) = name_of(event.source, job);
    put_proc(&mut out, name, rank);
    put_size(&mut out, info.len());
    info.iter().for_each(|(key, value)| put_info(&mut out, key, value));
    put_signed(&mut out, 1);
    put_unsigned(&mut out, range_number(&event.range).into());
    out
}
