//! Posting: packets, and accesses.

use super::{
    Net, Slots,
    arrivals::over,
    memory::{Held, Key, Pieces, flatten},
    objects::{PACKET, request},
};
use crate::sys::{
    Began, UCP_AM_SEND_FLAG_EAGER, UCP_DATATYPE_IOV, UCP_OP_ATTR_FIELD_DATATYPE,
    UCP_OP_ATTR_FIELD_FLAGS, UCS_ERR_NO_MEMORY, UCS_ERR_NO_RESOURCE, UCS_OK, ucp_dt_iov,
    ucs_status_t,
};
use petasos_datagram::{Mark, Node, Refusal, Taken};
use petasos_fabric::{Slice, two_sided::Outgoing};
use std::{ffi::c_void, ptr};

/// Pieces of memory in one packet; more are copied.
const PIECES: usize = 4;

fn refusal(status: ucs_status_t) -> Refusal {
    match status {
        UCS_ERR_NO_RESOURCE | UCS_ERR_NO_MEMORY => Refusal::Full,
        status => Refusal::Failed(status.into()),
    }
}

/// A node that is not there.
const UNREACHABLE: Refusal = Refusal::Failed(crate::sys::UCS_ERR_UNREACHABLE as isize);
/// A key that is none for this node, or memory that cannot be written.
const INVALID: Refusal = Refusal::Failed(crate::sys::UCS_ERR_INVALID_PARAM as isize);

impl Net {
    /// Sends what lies in a slot's buffer, from its beginning.
    #[inline]
    fn send_buffer(&mut self, to: Node, slot: u32, len: usize) -> Result<Began, Refusal> {
        debug_assert!(len <= Slots::BUFFER);
        self.send_memory(to, slot, self.slots.buffer(slot).cast(), len, 0)
    }

    /// Sends memory, or pieces of memory: `count` bytes, or pieces. It is to be held until the slot
    /// is over, or, if it is done at once, not at all.
    #[inline]
    fn send_memory(
        &mut self,
        to: Node,
        slot: u32,
        memory: *const c_void,
        count: usize,
        datatype: u64,
    ) -> Result<Began, Refusal> {
        let ep = self.endpoint(to).ok_or(UNREACHABLE)?;
        let landing = &self.worker.landing;
        let mut param = request(over, landing.began(slot));
        param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
        param.flags = UCP_AM_SEND_FLAG_EAGER;
        if datatype != 0 {
            param.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
            param.datatype = datatype;
        }
        // SAFETY: an endpoint of this worker's; memory, and the list of its pieces, stay where they
        // are until the callback, for the caller holds them in the slot; what the callback is told
        // lies at a fixed place.
        let pointer = unsafe {
            (self.worker.library.ucp_am_send_nbx)(ep, PACKET, ptr::null(), 0, memory, count, &param)
        };
        match Began::of(pointer) {
            Began::Failed(status) => Err(refusal(status)),
            began => Ok(began),
        }
    }

    /// Sends a short packet by way of the next free slot's buffer, which `fill` writes. The slot is
    /// in use if it waits.
    #[inline]
    pub(super) fn post_short(
        &mut self,
        to: Node,
        len: usize,
        mark: Mark,
        fill: impl FnOnce(&Slots, u32),
    ) -> Result<Taken, Refusal> {
        let slot = self.slots.next().ok_or(Refusal::Full)?;
        fill(&self.slots, slot);
        if self.send_buffer(to, slot, len)? == Began::Done {
            return Ok(Taken::Left);
        }
        self.slots.keep(slot, (mark, Held::Nothing));
        Ok(Taken::Waits)
    }

    /// An operation has begun, or is over.
    fn began(&mut self, slot: u32, began: Began, mark: Mark, held: Held) {
        self.slots.keep(slot, (mark, held));
        if began == Began::Done {
            self.worker.landing.ended(slot, UCS_OK);
        }
    }

    /// Sends a packet, longer ones from where they lie.
    pub(super) fn post_send(
        &mut self,
        to: Node,
        header: &[u8],
        payload: Outgoing,
        mark: Mark,
    ) -> Result<(), (Refusal, Outgoing)> {
        let Some(slot) = self.slots.next() else { return Err((Refusal::Full, payload)) };
        let total = header.len() + payload.len();
        if total <= Slots::BUFFER {
            self.slots.write(slot, 0, header);
            self.slots.copy(slot, header.len(), &payload);
            return match self.send_buffer(to, slot, total) {
                Ok(began) => {
                    self.began(slot, began, mark, Held::Nothing);
                    Ok(())
                }
                Err(refusal) => Err((refusal, payload)),
            };
        }
        self.slots.write(slot, 0, header);
        let piece = |at: *mut u8, length| ucp_dt_iov { buffer: at.cast(), length };
        let mut pieces = vec![piece(self.slots.buffer(slot), header.len())];
        let held = match payload {
            Outgoing::Bytes(bytes) => {
                pieces.push(piece(bytes.as_ptr().cast_mut(), bytes.len()));
                Outgoing::Bytes(bytes)
            }
            Outgoing::Memory(memory) if memory.len() < PIECES => {
                pieces.extend(memory.iter().map(|part| piece(part.as_ptr(), part.len())));
                Outgoing::Memory(memory)
            }
            other => {
                let whole = flatten(&[], &other);
                pieces.push(piece(whole.as_ptr(), whole.len()));
                Outgoing::Memory([whole.whole()].into_iter().collect())
            }
        };
        let pieces = Pieces(pieces);
        let (list, count) = (pieces.0.as_ptr().cast(), pieces.0.len());
        match self.send_memory(to, slot, list, count, UCP_DATATYPE_IOV) {
            Ok(began) => {
                self.began(slot, began, mark, Held::Payload(held, pieces));
                Ok(())
            }
            Err(refusal) => Err((refusal, held)),
        }
    }

    /// Reads or writes memory of a node's. A write is over when a flush behind it is.
    pub(super) fn post_access(
        &mut self,
        node: Node,
        get: bool,
        local: Slice,
        key: &Key,
        offset: u64,
        mark: Mark,
    ) -> Result<(), Refusal> {
        let slot = self.slots.next().ok_or(Refusal::Full)?;
        let ep = self.endpoint(node).ok_or(UNREACHABLE)?;
        let unpacked = self.unpacked(key, node).ok_or(INVALID)?;
        let (rkey, at) = (unpacked.rkey.as_ptr(), unpacked.base.wrapping_add(offset));
        if get && !local.is_writable() {
            return Err(INVALID);
        }
        let (library, landing) = (self.worker.library, &self.worker.landing);
        let param = request(over, landing.began(slot));
        // SAFETY: an endpoint of this worker's, and a key that was unpacked for it; the local
        // memory is held, and stays where it is, until the callbacks came, and so is the key. It is
        // writable if it is written.
        let pointer = unsafe {
            match get {
                true => {
                    (library.ucp_get_nbx)(ep, local.as_ptr().cast(), local.len(), at, rkey, &param)
                }
                false => {
                    (library.ucp_put_nbx)(ep, local.as_ptr().cast(), local.len(), at, rkey, &param)
                }
            }
        };
        match Began::of(pointer) {
            Began::Failed(status) => return Err(refusal(status)),
            Began::Running => landing.expect(slot),
            Began::Done => {}
        }
        self.slots.keep(slot, (mark, Held::Memory(local, key.clone())));
        let mut status = UCS_OK;
        if !get {
            // SAFETY: an endpoint of this worker's.
            match Began::of(unsafe { (library.ucp_ep_flush_nbx)(ep, &param) }) {
                Began::Failed(failed) => status = failed,
                Began::Running => landing.expect(slot),
                Began::Done => {}
            }
        }
        landing.ended(slot, status);
        Ok(())
    }
}
