//! Address vectors: peers as small numbers.

use super::{
    name::{self, Name},
    open::Job,
};
use petasos_fabric::Address;
use std::collections::HashMap;

/// An address vector. An address that is inserted again has the number that it has.
#[derive(Default)]
pub(crate) struct Vector {
    entries: Vec<Option<Entry>>,
    numbers: HashMap<Address, u64>,
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
    /// It is no name, or that of another job.
    pub(crate) fn insert(&mut self, name: &Name, job: Job) -> Result<(u64, bool), NotEntered> {
        let (address, of) = name::decode(name).ok_or(NotEntered::NoName)?;
        if of != job {
            return Err(NotEntered::OtherJob);
        }
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
        *slot = None;
        self.free.push(number);
        Some(true)
    }

    pub(crate) fn address(&self, number: u64) -> Option<&Address> {
        let entry = self.entries.get(usize::try_from(number).ok()?)?;
        entry.as_ref().map(|entry| &entry.address)
    }

    pub(crate) fn number(&self, address: &Address) -> Option<u64> {
        self.numbers.get(address).copied()
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
            name::encode(&Address::parse(&text).unwrap(), JOB).unwrap()
        };
        let mut vector = Vector::default();
        assert_eq!(vector.insert(&name(1), JOB), Ok((0, true)));
        assert_eq!(vector.insert(&name(2), JOB), Ok((1, true)));
        assert_eq!(vector.insert(&name(1), JOB), Ok((0, false)));
        assert_eq!(vector.insert(&[7; name::LEN], JOB), Err(NotEntered::NoName));
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
}
