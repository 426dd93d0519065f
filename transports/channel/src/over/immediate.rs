//! Immediate puts as injected messages, which the target's side writes into the registered memory.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | 2 |
//! | 1 | whether there is an event |
//! | 2..18 | the name with which the memory's key begins: registration and secret |
//! | 18..26 | offset in the memory, little-endian |
//! | 26..34 | the data of the event, little-endian |
//! | 34.. | the bytes |
//!
//! A put that is refused is answered with 3 and the fault's code: at least the first of a node's.

use super::{Over, refusal, region_of};
use crate::{
    DeviceEvent,
    device::{Fault, Node, Refusal, Registration, Target},
};
use petasos_fabric::{Access, Endpoint, InjectError};

/// The bytes before those that are put.
pub(super) const HEADER: usize = 2 + NAME + 8 + 8;
/// The length of a name, in bytes.
pub(super) const NAME: usize = 16;
/// What names memory: a registration, and a secret that cannot be guessed.
pub(super) type Name = [u8; NAME];
/// What a message is; those below are the classes of packets.
const IMMEDIATE: u8 = 2;
const REFUSED: u8 = 3;
/// By their codes in messages.
const FAULTS: [Fault; 4] = [Fault::Stale, Fault::Denied, Fault::OutOfBounds, Fault::Unsupported];

pub(super) fn name(registration: Registration, secret: u64) -> Name {
    let mut name = [0; NAME];
    name[..8].copy_from_slice(&registration.0.to_le_bytes());
    name[8..].copy_from_slice(&secret.to_le_bytes());
    name
}

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
        let mut header = [0; HEADER];
        (header[0], header[1]) = (IMMEDIATE, event.is_some().into());
        header[2..2 + NAME].copy_from_slice(&name);
        header[2 + NAME..HEADER - 8].copy_from_slice(&target.offset.to_le_bytes());
        header[HEADER - 8..].copy_from_slice(&event.unwrap_or_default().to_le_bytes());
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
            Some((&REFUSED, [fault])) => {
                let fault = FAULTS.get(usize::from(*fault)).copied().unwrap_or(Fault::Unsupported);
                self.mail.push_back(DeviceEvent::Refused { node, fault });
            }
            _ => return false,
        }
        true
    }

    /// Carries out an immediate put. Returns its event, if it has one.
    fn land(&mut self, node: Node, put: &[u8]) -> Result<Option<DeviceEvent>, Fault> {
        let (event, mut rest) = put.split_first().ok_or(Fault::Unsupported)?;
        let mut number = || {
            let (number, more) = rest.split_first_chunk().ok_or(Fault::Unsupported)?;
            rest = more;
            Ok(u64::from_le_bytes(*number))
        };
        let (registration, secret) = (Registration(number()?), number()?);
        let (offset, data, bytes) = (number()?, number()?, rest);
        let opened = self.opened.get(&region_of(registration));
        let opened = opened.filter(|opened| opened.secret == secret).ok_or(Fault::Stale)?;
        if !opened.access.allows(Access::WRITE) {
            return Err(Fault::Denied);
        }
        let at = usize::try_from(offset).map_err(|_| Fault::OutOfBounds)?;
        let memory = opened.memory.part(at, bytes.len()).ok_or(Fault::OutOfBounds)?;
        memory.write(0, bytes);
        let (tag, len) = (opened.tag, bytes.len() as u64);
        let arrived = DeviceEvent::PutArrived { node, tag, offset, len, data };
        Ok((*event != 0).then_some(arrived))
    }

    /// Tells nodes that their immediate puts were refused.
    pub(super) fn tell_refused(&mut self) {
        let Over { refused, inner, peers, .. } = self;
        refused.retain(|(node, fault)| {
            let reached = peers.get(node.0 as usize).and_then(Option::as_ref);
            let code = FAULTS.iter().position(|known| known == fault).unwrap_or_default();
            let told = reached.map(|reached| inner.inject(reached.peer, &[&[REFUSED, code as u8]]));
            matches!(told, Some(Err(InjectError::Full)))
        });
    }
}
