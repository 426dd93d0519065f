//! Messages that are sent.

use super::{
    Endpoint, Shared,
    endpoint::{Op, list_flag},
    error::Errno,
    matching::joined,
    queue::Entry,
    wire::{Header, Packet},
};
use crate::limits::EAGER;
use bytes::Bytes;
use petasos_fabric::{Endpoint as _, Level, Operation, Payload, Slice, operation::Slices};
use petasos_ofi_sys::*;

/// A message that a program sends.
pub(crate) struct Send {
    pub(crate) header: Header,
    /// The number of the peer.
    pub(crate) to: u64,
    pub(crate) local: Slices,
    pub(crate) context: usize,
    /// Whether its success is reported.
    pub(crate) report: bool,
    /// `FI_DELIVERY_COMPLETE`: only when it has arrived.
    pub(crate) delivered: bool,
    /// `FI_FENCE`: only when all before it is over.
    pub(crate) fence: bool,
}

impl Endpoint {
    /// Sends a message. Up to [`EAGER`] bytes it has left the program's memory when this returns.
    ///
    /// # Errors
    /// `EAGAIN`, if there is no room for it now; the peer has no number.
    pub(crate) fn send(&mut self, shared: &mut Shared, send: Send) -> Result<(), Errno> {
        let Send { header, to, local, context, report, delivered, fence } = send;
        let peer = self.route(shared, to)?;
        if fence && self.accesses(peer) > 0 {
            return Err(libc::EAGAIN);
        }
        let fenced = |operation: Operation| if fence { operation.fenced() } else { operation };
        let len: usize = local.iter().map(Slice::len).sum();
        let mut bytes = std::mem::take(&mut self.scratch);
        Packet::Message(header, 0).encode(&mut bytes);
        let flags = FI_SEND | list_flag(header.list);
        let entry = Entry { context, flags, ..Entry::default() };
        let sent = if len > EAGER {
            if !self.takes_long(peer) {
                self.scratch = bytes;
                return Err(libc::EAGAIN);
            }
            let (header, body) = (Bytes::copy_from_slice(&bytes), joined(&local));
            let op = Op::Sent { entry, report, peer, long: true };
            self.submit(op, |token| fenced(Operation::SendLong { token, peer, header, body }))
        } else {
            append(&local, len, &mut bytes);
            let net = self.net.as_mut().ok_or(FI_EOPBADSTATE)?;
            if !delivered && !fence && net.inject(peer, &[&bytes]).is_ok() {
                shared.done(self.transmit, self.counts.send, report, entry);
                self.sent(bytes, peer, false);
                return Ok(());
            }
            // Not connected yet, or lost, or full: the fabric says which.
            let payload = Payload::Bytes(Bytes::copy_from_slice(&bytes));
            let level = if delivered { Level::Visible } else { Level::Reusable };
            let op = Op::Sent { entry, report, peer, long: false };
            self.submit(op, |token| fenced(Operation::Send { token, peer, payload, level }))
        };
        match sent {
            Ok(()) => {
                self.sent(bytes, peer, len > EAGER);
                Ok(())
            }
            Err((errno, _)) => {
                self.scratch = bytes;
                Err(errno)
            }
        }
    }

    fn sent(&mut self, scratch: super::wire::Bytes, peer: petasos_fabric::Peer, long: bool) {
        self.scratch = scratch;
        if let Some(known) = self.known(peer) {
            known.sent = true;
            known.long += usize::from(long);
        }
    }
}

/// Appends what lies in pieces.
pub(super) fn append(pieces: &Slices, len: usize, out: &mut super::wire::Bytes) {
    let mut at = out.len();
    out.resize(at + len, 0);
    for piece in pieces {
        piece.read(0, &mut out[at..at + piece.len()]);
        at += piece.len();
    }
}
