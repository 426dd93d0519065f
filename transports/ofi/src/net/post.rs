//! Posting: packets, accesses, and slabs to receive into.

use super::{
    Net,
    slots::{BUFFER, Held, Owner},
};
use crate::sys::{
    FI_ADDR_UNSPEC, FI_DELIVERY_COMPLETE, FI_EAGAIN, FI_MULTI_RECV, FI_REMOTE_CQ_DATA, fi_addr_t,
    fi_msg, fi_msg_rma, fi_rma_iov,
};
use petasos_datagram::{Mark, Node, Refusal, RemoteOp, slots::copy_payload};
use petasos_fabric::{Region, Slice, two_sided::Outgoing};
use smallvec::SmallVec;
use std::ptr;

fn outcome(code: isize) -> Result<(), Refusal> {
    match code {
        0 => Ok(()),
        code if code == -FI_EAGAIN => Err(Refusal::Full),
        code => Err(Refusal::Failed(code)),
    }
}

/// A node that is not there.
const UNREACHABLE: Refusal = Refusal::Failed(-(libc::EHOSTUNREACH as isize));
/// An operation that this endpoint does not have.
const UNSUPPORTED: Refusal = Refusal::Failed(-(libc::EOPNOTSUPP as isize));
/// Memory that cannot be written.
const READ_ONLY: Refusal = Refusal::Failed(-(libc::EFAULT as isize));

impl Net {
    /// Where a node is in the library's table. Full, while the library would wait for another
    /// process to send to it.
    #[inline]
    fn at(&self, node: Node) -> Result<fi_addr_t, Refusal> {
        let known = self.nodes.get(node).ok_or(UNREACHABLE)?;
        match &known.lock {
            Some(lock) if lock.stays_held() => Err(Refusal::Full),
            _ => Ok(known.at),
        }
    }

    /// Sends what `fill` writes, in so many bytes that the provider takes it before the call
    /// returns: at most [`Facts::inject`](petasos_datagram::Facts::inject). Nothing comes back.
    #[inline]
    pub(super) fn post_inject(
        &mut self,
        to: Node,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<(), Refusal> {
        assert!(len <= self.facts.inject);
        let to = self.at(to)?;
        let room = &mut self.scratch[..len];
        fill(room);
        let ep = self.ep;
        // SAFETY: the endpoint is open, and has that address in its table; the bytes are ours, not
        // more than the provider takes so, and copied before the call returns.
        let code = unsafe { ((*(*ep).msg).inject)(ep, room.as_ptr().cast(), len, to) };
        outcome(code)
    }

    /// Sends a short packet, of [`BUFFER`] bytes at most, by way of a slot's buffer. Its mark comes
    /// back.
    #[inline]
    pub(super) fn post_short(
        &mut self,
        to: Node,
        headers: &[&[u8]],
        parts: &[&[u8]],
        mark: Mark,
    ) -> Result<(), Refusal> {
        let slot = self.slots.next().ok_or(Refusal::Full)?;
        let mut len = 0;
        for part in headers.iter().chain(parts) {
            self.slots.write(slot, len, part);
            len += part.len();
        }
        self.send_buffer(to, slot, len)?;
        self.slots.keep(slot, (mark, Held::Nothing));
        Ok(())
    }

    fn send_buffer(&mut self, to: Node, slot: u32, len: usize) -> Result<(), Refusal> {
        debug_assert!(len <= BUFFER);
        let to = self.at(to)?;
        let ep = self.ep;
        let (buffer, context) = (self.slots.buffer(slot), self.contexts.of(Owner::Slot(slot)));
        // SAFETY: the endpoint is open, and has that address in its table; buffer and context are
        // this slot's, at a fixed place, and are not used for anything else before the completion,
        // since the caller keeps the slot if this succeeds.
        let code =
            unsafe { ((*(*ep).msg).send)(ep, buffer.cast(), len, ptr::null_mut(), to, context) };
        outcome(code)
    }

    /// Sends a packet: header, and payload from where it lies. Its mark comes back; until then the
    /// payload is held. Refused, it is given back.
    pub(super) fn post_send(
        &mut self,
        to: Node,
        header: &[u8],
        payload: Outgoing,
        mark: Mark,
    ) -> Result<(), (Refusal, Outgoing)> {
        let Some(slot) = self.slots.next() else { return Err((Refusal::Full, payload)) };
        self.slots.write(slot, 0, header);
        let total = header.len() + payload.len();
        if total <= BUFFER {
            self.slots.copy(slot, header.len(), &payload);
            if let Err(refusal) = self.send_buffer(to, slot, total) {
                return Err((refusal, payload));
            }
            self.slots.keep(slot, (mark, Held::Nothing));
            return Ok(());
        }
        let addr = match self.at(to) {
            Ok(addr) => addr,
            Err(refusal) => return Err((refusal, payload)),
        };
        let mut pieces: SmallVec<[libc::iovec; 8]> = SmallVec::new();
        let piece = |at: *mut u8, len| libc::iovec { iov_base: at.cast(), iov_len: len };
        pieces.push(piece(self.slots.buffer(slot), header.len()));
        let most = self.details.pieces;
        let mut copy = None;
        match &payload {
            Outgoing::Bytes(bytes) if most > 1 => {
                pieces.push(piece(bytes.as_ptr().cast_mut(), bytes.len()));
            }
            Outgoing::Memory(memory) if memory.len() < most => {
                pieces.extend(memory.iter().map(|part| piece(part.as_ptr(), part.len())));
            }
            // In more pieces than the provider takes.
            _ => {
                let whole = Region::zeroed(total);
                whole.write(0, header);
                copy_payload(&payload, &whole, header.len());
                pieces[0] = piece(whole.as_ptr(), total);
                copy = Some(whole);
            }
        }
        let message = fi_msg {
            msg_iov: pieces.as_ptr(),
            desc: ptr::null_mut(),
            iov_count: pieces.len(),
            addr,
            context: self.contexts.of(Owner::Slot(slot)),
            data: 0,
        };
        let ep = self.ep;
        // SAFETY: the endpoint is open, and has that address in its table; the list of pieces is
        // copied by the call. What they name is the slot's buffer, and memory of the payload or of
        // the copy, which is held, and stays where it is, until the completion (or the end of the
        // endpoint) frees the slot. The library only reads it.
        let code = unsafe { ((*(*ep).msg).sendmsg)(ep, &message, 0) };
        if let Err(refusal) = outcome(code) {
            return Err((refusal, payload));
        }
        let held = copy.map_or(Held::Payload(payload), Held::Copy);
        self.slots.keep(slot, (mark, held));
        Ok(())
    }

    /// Reads or writes remote memory, given by the provider's key and its address: `local` is held
    /// until the mark comes back. A write is complete when it has arrived.
    pub(super) fn post_access(
        &mut self,
        node: Node,
        op: RemoteOp,
        local: Slice,
        (key, base): (u64, u64),
        offset: u64,
        mark: Mark,
    ) -> Result<(), Refusal> {
        let with_data = matches!(op, RemoteOp::PutWithData(_));
        if !self.details.rma || (with_data && self.facts.data_bits == 0) {
            return Err(UNSUPPORTED);
        }
        if op == RemoteOp::Get && !local.is_writable() {
            return Err(READ_ONLY);
        }
        let addr = self.at(node)?;
        let slot = self.slots.next().ok_or(Refusal::Full)?;
        let ep = self.ep;
        let here = libc::iovec { iov_base: local.as_ptr().cast(), iov_len: local.len() };
        let base = if self.details.virtual_addresses { base } else { 0 };
        let there = fi_rma_iov { addr: base.wrapping_add(offset), len: local.len(), key };
        let message = fi_msg_rma {
            msg_iov: &here,
            desc: ptr::null_mut(),
            iov_count: 1,
            addr,
            rma_iov: &there,
            rma_iov_count: 1,
            context: self.contexts.of(Owner::Slot(slot)),
            data: if let RemoteOp::PutWithData(data) = op { data } else { 0 },
        };
        // SAFETY: the endpoint is open, has that address in its table, and its offer has remote
        // access, so that the table of calls is there; both lists are copied by the call; the local
        // memory is held, and stays where it is, until the completion (or the end of the endpoint)
        // frees the slot. It is writable if it is written.
        let code = unsafe {
            match op {
                RemoteOp::Get => ((*(*ep).rma).readmsg)(ep, &message, 0),
                RemoteOp::Put => ((*(*ep).rma).writemsg)(ep, &message, FI_DELIVERY_COMPLETE),
                RemoteOp::PutWithData(_) => {
                    let flags = FI_DELIVERY_COMPLETE | FI_REMOTE_CQ_DATA;
                    ((*(*ep).rma).writemsg)(ep, &message, flags)
                }
            }
        };
        outcome(code)?;
        self.slots.keep(slot, (mark, Held::Memory(local)));
        Ok(())
    }

    /// Gives slabs that have been read to the library. False if some must wait.
    pub(super) fn repost(&mut self) -> bool {
        while let Some(slab) = self.slabs.next_unposted() {
            if self.post_slab(slab).is_err() {
                return false;
            }
            self.slabs.posted();
        }
        true
    }

    fn post_slab(&self, slab: u32) -> Result<(), Refusal> {
        let region = self.slabs.region(slab);
        let room = libc::iovec { iov_base: region.as_ptr().cast(), iov_len: region.len() };
        let message = fi_msg {
            msg_iov: &room,
            desc: ptr::null_mut(),
            iov_count: 1,
            addr: FI_ADDR_UNSPEC,
            context: self.contexts.of(Owner::Receive(slab)),
            data: 0,
        };
        let ep = self.ep;
        let flags = if self.details.multi { FI_MULTI_RECV } else { 0 };
        // SAFETY: the endpoint is open; the list is copied by the call. The slab stays where it is
        // for the life of the endpoint, there are no references into it, and it is posted once at a
        // time (`Slabs`).
        outcome(unsafe { ((*(*ep).msg).recvmsg)(ep, &message, flags) })
    }
}

impl Net {
    /// Sends a short message with as few calls as possible. False if there is no room.
    #[inline]
    pub(super) fn post_plain(&mut self, to: Node, bytes: &[u8]) -> bool {
        if bytes.len() > self.facts.inject {
            let mark = Mark::Packet { link: 0, serial: 0 };
            return self.post_short(to, &[], &[bytes], mark).is_ok();
        }
        let Ok(to) = self.at(to) else { return false };
        let ep = self.ep;
        // SAFETY: the endpoint is open, and has that address in its table; the bytes are copied
        // before the call returns.
        unsafe { ((*(*ep).msg).inject)(ep, bytes.as_ptr().cast(), bytes.len(), to) == 0 }
    }
}
