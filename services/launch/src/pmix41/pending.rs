//! The requests of a client that the engine has not answered.

use super::Expected;
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Pending {
    last_number: u64,
    requests: BTreeMap<u64, Expected>,
}

impl Pending {
    /// Gives the number of the request.
    pub(super) fn add(&mut self, expected: Expected) -> u64 {
        self.last_number += 1;
        self.requests.insert(self.last_number, expected);
        self.last_number
    }

    pub(super) fn answered(&mut self, number: u64) -> Option<Expected> {
        self.requests.remove(&number)
    }
}
