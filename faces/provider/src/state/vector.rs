//! Address vectors: peers as small numbers.

use super::{
    name::{self, Named},
    open::Job,
};
use petasos_fabric::Address;
use std::collections::HashMap;

/// An address vector. An address that is inserted again has the number that it has.
#[derive(Default)]
pub(crate) struct Vector {
    entries: Vec<Option<Entry>>,
    numbers: HashMap<Address, u64>,
    /// How many entries are no more than a host and a port.
    short: usize,
    free: Vec<u64>,
    /// Endpoints that are bound to it.
    pub(crate) endpoints: Vec<usize>,
}

/// Why a name was not entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotEntered {
    /// It is none.
    NoName,
    /// It is of another job.
    OtherJob,
}

struct Entry {
    address: Address,
    /// How often it was inserted.
    times: usize,
}

impl Vector {
    /// The number of the peer of this job with this name, and whether it is new.
    ///
    /// # Errors
    /// Nothing can be there, or it is of another job.
    pub(crate) fn insert(&mut self, named: &Named, job: Job) -> Result<(u64, bool), NotEntered> {
        match named {
            Named::Whole(_, Some(of)) if *of != job => return Err(NotEntered::OtherJob),
            Named::Place(place) if place.port() == 0 || place.ip().is_unspecified() => {
                return Err(NotEntered::NoName);
            }
            _ => {}
        }
        let address = named.address();
        if let Some(&number) = self.numbers.get(&address) {
            if let Some(Some(entry)) = self.entries.get_mut(number as usize) {
                entry.times += 1;
            }
            return Ok((number, false));
        }
        let number = self.free.pop().unwrap_or(self.entries.len() as u64);
        if number as usize == self.entries.len() {
            self.entries.push(None);
        }
        self.short += usize::from(name::is_short(&address));
        self.entries[number as usize] = Some(Entry { address: address.clone(), times: 1 });
        self.numbers.insert(address, number);
        Ok((number, true))
    }

    /// Takes back one insertion; `None` if there is no such peer. Says whether it was the last one.
    pub(crate) fn remove(&mut self, number: u64) -> Option<bool> {
        let slot = self.entries.get_mut(usize::try_from(number).ok()?)?;
        let entry = slot.as_mut()?;
        entry.times -= 1;
        if entry.times > 0 {
            return Some(false);
        }
        self.numbers.remove(&entry.address);
        self.short -= usize::from(name::is_short(&entry.address));
        *slot = None;
        self.free.push(number);
        Some(true)
    }

    pub(crate) fn address(&self, number: u64) -> Option<&Address> {
        let entry = self.entries.get(usize::try_from(number).ok()?)?;
        entry.as_ref().map(|entry| &entry.address)
    }

    /// The number of a peer by its whole address, if need be by where that says it listens.
    pub(crate) fn number(&self, address: &Address) -> Option<u64> {
        let by_place = || {
            let place = (self.short > 0).then(|| name::place(address)).flatten()?;
            self.numbers.get(&name::short(place))
        };
        self.numbers.get(address).or_else(by_place).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: Job = [9; 4];

    #[test]
    fn numbers_are_those_of_addresses() {
        let name = |port: u16| {
            let text = format!("auto://0123456789abcdef/shm://x{port},tcp://127.0.0.1:{port}");
            Named::Whole(Address::parse(&text).unwrap(), Some(JOB))
        };
        let nowhere = |text: &str| Named::Place(text.parse().unwrap());
        let mut vector = Vector::default();
        assert_eq!(vector.insert(&name(1), JOB), Ok((0, true)));
        assert_eq!(vector.insert(&name(2), JOB), Ok((1, true)));
        assert_eq!(vector.insert(&name(1), JOB), Ok((0, false)));
        for text in ["127.0.0.1:0", "0.0.0.0:1", "[::]:1"] {
            assert_eq!(vector.insert(&nowhere(text), JOB), Err(NotEntered::NoName));
        }
        assert_eq!(vector.insert(&name(1), [0; 4]), Err(NotEntered::OtherJob));
        let first = vector.address(0).unwrap().clone();
        assert_eq!((vector.number(&first), vector.address(2)), (Some(0), None));
        assert_eq!(vector.remove(0), Some(false));
        assert_eq!(vector.remove(0), Some(true));
        assert_eq!((vector.remove(0), vector.number(&first)), (None, None));
        assert_eq!((vector.remove(u64::MAX), vector.remove(9)), (None, None));
        // Its number is the next one's.
        assert_eq!(vector.insert(&name(3), JOB), Ok((0, true)));
    }

    #[test]
    fn a_peer_is_found_by_where_it_listens() {
        let whole = "auto://0123456789abcdef/shm://x,tcp://10.0.0.7:40?encrypt";
        let whole = Address::parse(whole).unwrap();
        let mut vector = Vector::default();
        let other = Named::Place("10.0.0.7:41".parse().unwrap());
        assert_eq!(vector.insert(&other, JOB), Ok((0, true)));
        assert_eq!(vector.number(&whole), None);
        let place = Named::Place("10.0.0.7:40".parse().unwrap());
        assert_eq!(vector.insert(&place, JOB), Ok((1, true)));
        assert_eq!(vector.number(&whole), Some(1));
        // Its whole address goes before.
        assert_eq!(vector.insert(&Named::Whole(whole.clone(), None), JOB), Ok((2, true)));
        assert_eq!(vector.number(&whole), Some(2));
        assert_eq!((vector.remove(2), vector.remove(1)), (Some(true), Some(true)));
        assert_eq!(vector.number(&whole), None);
    }
}
