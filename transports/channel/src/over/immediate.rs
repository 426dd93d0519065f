//! Immediate puts as injected messages, which the target's side writes into the registered memory.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | 2 |
//! | 1..34 | where it goes: [`PutHeader`] |
//! | 34.. | the bytes |
//!
//! A put that is refused is answered with 3 and the fault's code: at least the first of a node's.

use super::{Over, refusal, region_of};
use crate::{
    DeviceEvent,
    device::{Fault, Node, Refusal, Target},
    immediate::{PutHeader, code, fault, named},
};
use petasos_fabric::{Access, Endpoint, InjectError};

/// The bytes before those that are put.
pub(super) const HEADER: usize = 1 + PutHeader::LEN;
/// What a message is; those below are the classes of packets.
const IMMEDIATE: u8 = 2;
const REFUSED: u8 = 3;

impl<E: Endpoint> Over<E> {
    /// Sends one.
    pub(super) fn inject_put(
        &mut self,
        to: Node,
        target: &Target,
        bytes: &[u8],
        event: Option<u64>,
    ) -> Result<(), Refusal> {
        assert!(bytes.len() <= self.limits.immediate, "{} bytes at once", bytes.len());
        let peer = self.peer(to)?;
        let Some(name) = self.import(to, peer, &target.key).map(|imported| imported.name) else {
            self.mail.push_back(DeviceEvent::Refused { node: to, fault: Fault::Stale });
            return Ok(());
        };
        let mut header = [IMMEDIATE; HEADER];
        header[1..].copy_from_slice(&PutHeader { name, offset: target.offset, event }.to_bytes());
        self.inner.inject(peer, &[&header, bytes]).map_err(refusal)
    }

    /// Takes a message that is about an immediate put; false if it is not.
    pub(super) fn immediate(&mut self, node: Node, message: &[u8]) -> bool {
        match message.split_first() {
            Some((&IMMEDIATE, put)) if message.len() >= HEADER => match self.land(node, put) {
                Ok(arrived) => self.mail.extend(arrived),
                // The first is enough, so that a peer that does not listen cannot make many wait.
                Err(fault) if self.refused.iter().all(|(of, _)| *of != node) => {
                    self.refused.push((node, fault));
                }
                Err(_) => {}
            },
            Some((&REFUSED, [code])) => {
                self.mail.push_back(DeviceEvent::Refused { node, fault: fault(*code) });
            }
            _ => return false,
        }
        true
    }

    /// Carries out an immediate put. Returns its event, if it has one.
    fn land(&mut self, node: Node, put: &[u8]) -> Result<Option<DeviceEvent>, Fault> {
        let (header, bytes) = put.split_first_chunk().ok_or(Fault::Unsupported)?;
        let header = PutHeader::from_bytes(header);
        let (registration, secret) = named(header.name);
        let opened = self.opened.get(&region_of(registration)).ok_or(Fault::Stale)?;
        opened.part(secret, header.offset, bytes.len(), Access::WRITE)?.write(0, bytes);
        Ok(opened.arrived(node, &header, bytes.len()))
    }

    /// Tells nodes that their immediate puts were refused.
    pub(super) fn tell_refused(&mut self) {
        let Over { refused, inner, peers, .. } = self;
        refused.retain(|(node, fault)| {
            let reached = peers.get(node.0 as usize).and_then(Option::as_ref);
            let told =
                reached.map(|reached| inner.inject(reached.peer, &[&[REFUSED, code(*fault)]]));
            matches!(told, Some(Err(InjectError::Full)))
        });
    }
}
