//! The table of handlers, by method and provider.

use crate::{Handler, Method};
use petasos_wire::rpc::Request;
use std::rc::Rc;

/// The handler of a method under a provider id.
pub(crate) struct Provider {
    pub(crate) id: u16,
    pub(crate) method: Method,
    /// In a box: computing where a value of unknown alignment lies after the other fields takes a
    /// dozen instructions, each time.
    pub(crate) handler: Box<dyn Handler>,
}

type Entry = Rc<Provider>;

/// All that are served: changed seldom, searched with each call.
///
/// An open hash table with linear probing, at least twice as many slots as entries, a power of two.
/// Method ids are hashes, so that mostly the first probe finds the entry. A request for a method
/// that is not served reaches an empty slot after a few probes, whatever it asks for.
#[derive(Default)]
pub(crate) struct Registry {
    entries: Vec<Entry>,
    table: Vec<Option<Entry>>,
}

impl Registry {
    /// Adds a handler; false if the method has one under this provider, or if another method has
    /// the same id.
    pub(crate) fn add(&mut self, entry: Entry) -> bool {
        let free = self.is_free(&entry.method, entry.id);
        if free {
            self.entries.push(entry);
            self.rebuild();
        }
        free
    }

    pub(crate) fn remove(&mut self, method: Method, provider: u16) {
        self.entries.retain(|entry| entry.method != method || entry.id != provider);
        self.rebuild();
    }

    pub(crate) fn is_free(&self, method: &Method, provider: u16) -> bool {
        let mut of_this_id = self.entries.iter().filter(|entry| entry.method.id == method.id);
        of_this_id.all(|entry| entry.method == *method && entry.id != provider)
    }

    /// The signature of the method with this id, if there is one.
    pub(crate) fn signature(&self, method: u64) -> Option<u64> {
        let entry = self.entries.iter().find(|entry| entry.method.id == method)?;
        Some(entry.method.signature)
    }

    /// The provider that serves a request.
    #[inline]
    pub(crate) fn find(&self, request: &Request) -> Option<Entry> {
        let last = self.table.len().wrapping_sub(1);
        let mut at = first_slot(request.method, request.provider) & last;
        loop {
            let entry = self.table.get(at)?.as_ref()?;
            if entry.method.id == request.method && entry.id == request.provider {
                let fits = entry.method.signature == request.signature;
                return fits.then(|| Rc::clone(entry));
            }
            at = (at + 1) & last;
        }
    }

    fn rebuild(&mut self) {
        let slots = (2 * self.entries.len()).next_power_of_two();
        self.table.clear();
        self.table.resize(slots, None);
        for entry in &self.entries {
            let mut at = first_slot(entry.method.id, entry.id) & (slots - 1);
            while self.table[at].is_some() {
                at = (at + 1) & (slots - 1);
            }
            self.table[at] = Some(Rc::clone(entry));
        }
    }
}

/// The slot at which probing begins.
#[inline]
fn first_slot(method: u64, provider: u16) -> usize {
    (method as usize).wrapping_add(usize::from(provider))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HandlerFuture, Incoming};
    use petasos_wire::{
        Encoding,
        rpc::{CallId, Request},
    };

    fn entry(id: u64, provider: u16, signature: u64) -> Entry {
        let handler = |_: Incoming| -> HandlerFuture { Box::pin(async { Ok(Vec::new()) }) };
        let method = Method { name: "test", id, signature };
        Rc::new(Provider { id: provider, method, handler: Box::new(handler) })
    }

    fn request(method: u64, provider: u16, signature: u64) -> Request {
        Request {
            one_way: false,
            encoding: Encoding::Native,
            checked: false,
            overflow: false,
            trace: None,
            provider,
            call: CallId { slot: 0, generation: 0 },
            method,
            signature,
            left_us: 0,
        }
    }

    #[test]
    fn all_are_found_also_where_they_meet() {
        let mut registry = Registry::default();
        assert!(registry.find(&request(1, 0, 1)).is_none());
        // Ids that begin at the same slots, at the end of the table, and with other providers.
        let ids: Vec<(u64, u16)> = [0, 16, 32, 15, 31, u64::MAX, 1 << 40]
            .into_iter()
            .flat_map(|id| [0, 1, 2, u16::MAX].map(|provider| (id, provider)))
            .collect();
        for (n, (id, provider)) in ids.iter().enumerate() {
            assert!(registry.add(entry(*id, *provider, id / 3)));
            assert!(!registry.add(entry(*id, *provider, id / 3)), "served already");
            assert!(!registry.add(entry(*id, 7, id / 3 + 1)), "another method of this id");
            for (id, provider) in &ids[..=n] {
                let found = registry.find(&request(*id, *provider, id / 3)).expect("an entry");
                assert_eq!((found.method.id, found.id), (*id, *provider));
                assert!(registry.find(&request(*id, *provider, id / 3 + 1)).is_none());
                assert!(registry.find(&request(*id, 7, id / 3)).is_none());
                assert!(registry.find(&request(id.wrapping_add(3), *provider, 0)).is_none());
            }
        }
        for (n, (id, provider)) in ids.iter().enumerate() {
            registry.remove(Method { name: "test", id: *id, signature: id / 3 }, *provider);
            assert!(registry.find(&request(*id, *provider, id / 3)).is_none());
            for (id, provider) in &ids[n + 1..] {
                assert!(registry.find(&request(*id, *provider, id / 3)).is_some());
            }
        }
        assert_eq!(registry.signature(16), None);
    }
}
