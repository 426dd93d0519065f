//! The worker as a [`Network`].

use super::{
    Net, Slots,
    memory::{Held, Key, Opened},
};
use crate::{
    OpenError,
    kinds::{BEST, Kind},
    sys::UCS_OK,
};
use petasos_datagram::{
    Config, Facts, Happened, Mark, Medium, Network, Node, Packet, Refusal, RemoteOp, Taken,
    bare::Plain,
};
use petasos_fabric::{Access, Address, Slice, two_sided::Outgoing};
use std::os::fd::BorrowedFd;

/// UCX's code for an operation that it does not have.
const UCS_ERR_UNSUPPORTED: isize = -22;

impl Network for Net {
    type Kind = &'static Kind;
    type OpenError = OpenError;
    type Opened = Opened;
    type Key = Key;

    const SHORT: usize = Slots::BUFFER;

    fn kind(address: &Address) -> Result<(&'static Kind, Medium), OpenError> {
        let kind = Kind::of(address)?;
        Ok((kind, Medium { scheme: kind.scheme, best: BEST, meeting: kind.meeting }))
    }

    fn open(
        kind: &'static Kind,
        host: Option<&str>,
        headers: usize,
        config: &Config,
    ) -> Result<Net, OpenError> {
        Net::open_kind(kind, host, headers, config)
    }

    #[inline]
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn name(&self) -> &[u8] {
        &self.name
    }

    fn error(&self, code: isize) -> String {
        self.worker.library.error(code)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the worker's descriptor, which is open as long as the worker is.
        self.worker.wait.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    fn try_wait(&mut self) -> bool {
        self.worker.arm()
    }

    fn insert(&mut self, name: &[u8]) -> Result<Node, String> {
        self.connect(name)
    }

    fn remove(&mut self, node: Node) {
        self.disconnect(node);
    }

    #[inline]
    fn inject(
        &mut self,
        to: Node,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        mark: Mark,
    ) -> Result<Taken, Refusal> {
        assert!(len <= Slots::BUFFER);
        self.post_short(to, len, mark, |slots, slot| {
            // SAFETY: the buffer of a slot that is free, which nothing else uses or refers to;
            // initialised, and as long.
            fill(unsafe { std::slice::from_raw_parts_mut(slots.buffer(slot), len) });
        })
    }

    #[inline]
    fn send_short(
        &mut self,
        to: Node,
        headers: &[&[u8]],
        parts: &[&[u8]],
        mark: Mark,
    ) -> Result<(), Refusal> {
        let len = headers.iter().chain(parts).map(|part| part.len()).sum();
        let slot = self.slots.next().ok_or(Refusal::Full)?;
        let taken = self.post_short(to, len, mark, |slots, slot| {
            let mut at = 0;
            for part in headers.iter().chain(parts) {
                slots.write(slot, at, part);
                at += part.len();
            }
        })?;
        if taken == Taken::Left {
            self.slots.keep(slot, (mark, Held::Nothing));
            self.worker.landing.ended(slot, UCS_OK);
        }
        Ok(())
    }

    fn send(
        &mut self,
        to: Node,
        header: &[u8],
        payload: Outgoing,
        mark: Mark,
    ) -> Result<(), (Refusal, Outgoing)> {
        self.post_send(to, header, payload, mark)
    }

    fn access(
        &mut self,
        node: Node,
        op: RemoteOp,
        local: Slice,
        key: &Key,
        offset: u64,
        mark: Mark,
    ) -> Result<(), Refusal> {
        let get = match op {
            RemoteOp::Get => true,
            RemoteOp::Put => false,
            // UCP has no completion data, and the facts say so.
            RemoteOp::PutWithData(_) => return Err(Refusal::Failed(UCS_ERR_UNSUPPORTED)),
        };
        self.post_access(node, get, local, key, offset, mark)
    }

    fn spare(&mut self, lost: usize) {
        while self.slots.count() < self.sends + lost {
            self.worker.memory.push(self.slots.grow());
            self.worker.landing.grow(self.slots.count());
        }
    }

    fn holds(&self, memory: &Slice) -> bool {
        self.slots.entries().any(|(_, held)| held.overlaps(memory))
    }

    fn running(&self) -> usize {
        self.slots.running()
    }

    #[inline]
    fn next(&mut self) -> Option<Happened> {
        self.next_happened()
    }

    fn has_more(&self) -> bool {
        self.has_landed()
    }

    fn poll(&mut self) -> bool {
        self.look_again()
    }

    #[inline]
    fn read(&self, _: Packet, at: usize, into: &mut [u8]) {
        self.read_current(at, into).expect("within the packet");
    }

    fn copy(&self, _: Packet, at: usize, into: &Slice) -> usize {
        self.copy_current(at, into)
    }

    fn open_memory(&mut self, memory: &Slice, _: Access) -> Option<Opened> {
        let opened = self.map(memory)?;
        self.lent = true;
        Some(opened)
    }

    fn close_memory(&mut self) {
        self.close_returned();
    }

    fn location(opened: &Opened) -> Vec<u8> {
        opened.location().to_vec()
    }

    fn key(&mut self, node: Node, place: &[u8]) -> Option<Key> {
        self.unpack(node, place)
    }
}

impl Plain for Net {
    #[inline]
    fn send_plain(&mut self, to: Node, bytes: &[u8]) -> bool {
        let mark = Mark::Packet { link: 0, serial: 0 };
        self.post_short(to, bytes.len(), mark, |slots, slot| slots.write(slot, 0, bytes)).is_ok()
    }

    #[inline]
    fn receive_plain(&mut self) -> Option<usize> {
        match self.next_happened()? {
            Happened::Packet(packet) => Some(packet.len),
            _ => None,
        }
    }
}
