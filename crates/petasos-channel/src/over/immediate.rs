//! Immediate puts as injected messages, which the target's side writes into the registered memory.
//!
//! | bytes | what |
//! |---|---|
//! | 0 | 2 |
//! | 1 | whether there is an event |
//! | 2..18 | the route of the two-sided engine in the memory's key, which carries a secret |
//! | 18..26 | where in the memory, little-endian |
//! | 26..34 | what the event carries, little-endian |
//! | 34.. | the bytes |
//!
//! What is refused is answered with 3 and the fault's code: at least the first of a node's.

use super::{Over, refusal};
use crate::{
    DeviceEvent,
    device::{Fault, Node, Refusal, Target},
};
use petasos_fabric::{Access, Endpoint, InjectError, Key, key::KeyParts};

/// The bytes before those of an immediate put: what it is, whether there is an event, the route of the
/// memory, the offset, what the event carries.
pub(super) const HEAD: usize = 2 + ROUTE + 8 + 8;
const ROUTE: usize = 16;
/// What names memory: the route of the two-sided engine in its key.
pub(super) type Route = [u8; ROUTE];
/// What a message is; those below are the classes of packets.
const IMMEDIATE: u8 = 2;
const REFUSED: u8 = 3;
/// By their codes on the way.
const FAULTS: [Fault; 4] = [Fault::Stale, Fault::Denied, Fault::OutOfBounds, Fault::Unsupported];

/// The route of the two-sided engine in a key.
pub(super) fn route(parts: &KeyParts) -> Option<Route> {
    parts.route(Key::ROUTE_TWO_SIDED)?[..].try_into().ok()
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
        let Some(route) = self.import(to, peer, &target.key).and_then(|imported| imported.route)
        else {
            self.mail.push_back(DeviceEvent::Refused { node: to, fault: Fault::Stale });
            return Ok(());
        };
        let mut head = [0; HEAD];
        (head[0], head[1]) = (IMMEDIATE, event.is_some().into());
        head[2..2 + ROUTE].copy_from_slice(&route);
        head[2 + ROUTE..HEAD - 8].copy_from_slice(&target.offset.to_le_bytes());
        head[HEAD - 8..].copy_from_slice(&event.unwrap_or_default().to_le_bytes());
        self.inner.inject(peer, &[&head, bytes]).map_err(refusal)
    }

    /// Takes a message that is about an immediate put; false if it is not.
    pub(super) fn immediate(&mut self, node: Node, message: &[u8]) -> bool {
        match message.split_first() {
            Some((&IMMEDIATE, put)) if message.len() >= HEAD => match self.land(node, put) {
                Ok(arrived) => self.mail.extend(arrived),
                // The first is enough, and who does not listen makes no heap of them.
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

    /// An immediate put takes effect. Gives its event, if it has one.
    fn land(&mut self, node: Node, put: &[u8]) -> Result<Option<DeviceEvent>, Fault> {
        let (event, rest) = put.split_first().ok_or(Fault::Unsupported)?;
        let (route, rest) = rest.split_first_chunk::<ROUTE>().ok_or(Fault::Unsupported)?;
        let (offset, rest) = rest.split_first_chunk().ok_or(Fault::Unsupported)?;
        let (data, bytes) = rest.split_first_chunk().ok_or(Fault::Unsupported)?;
        let (offset, data) = (u64::from_le_bytes(*offset), u64::from_le_bytes(*data));
        let opened = self.routes.get(route).and_then(|region| self.opened.get(region));
        let opened = opened.ok_or(Fault::Stale)?;
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

    /// Tells those whose immediate puts were refused.
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
