//! Put and get by the provider.

use crate::{net::Mark, state::Ofi};
use petasos_fabric::{LostReason, Peer};

#[derive(Debug)]
pub(crate) struct Accesses {
    pub(crate) native: bool,
}

impl Accesses {
    pub(crate) fn new(native: bool) -> Accesses {
        Accesses { native }
    }
    pub(crate) fn is_waiting(&self) -> bool {
        false
    }
}

impl Ofi {
    pub(crate) fn access_done(&mut self, _mark: Mark, _result: Result<(), i32>) {}
    pub(crate) fn fence(&mut self, _index: u32, _serial: u32) {}
    pub(crate) fn fenced(&mut self, _index: u32, _serial: u32) {}
    pub(crate) fn accesses_ended(&mut self, _peer: Peer) -> bool {
        true
    }
    pub(crate) fn end_accesses(&mut self, _peer: Peer, _reason: &LostReason) {}
}
