//! The endpoint as a [`Network`].

use super::{
    Net,
    memory::Opened,
    open::{Remote, Sizes},
    slots::BUFFER,
};
use crate::{
    OpenError, leftovers,
    providers::{BEST, Provider},
    sys::environment,
};
use petasos_datagram::{
    Config, Facts, Happened, Mark, Medium, Meeting, Network, Node, Packet, Refusal, RemoteOp,
    Taken, bare::Plain,
};
use petasos_fabric::{Access, Address, Enforcement, Slice, two_sided::Outgoing};
use std::os::fd::BorrowedFd;

impl Network for Net {
    type Kind = &'static Provider;
    type OpenError = OpenError;
    type Opened = Opened;
    /// The provider's key, and where the memory lies.
    type Key = (u64, u64);

    const SHORT: usize = BUFFER;

    fn kind(address: &Address) -> Result<(&'static Provider, Medium), OpenError> {
        let provider = Provider::of(address)?;
        let medium = Medium { scheme: provider.scheme, best: BEST, meeting: provider.meeting };
        Ok((provider, medium))
    }

    fn open(
        provider: &'static Provider,
        host: Option<&str>,
        headers: usize,
        config: &Config,
    ) -> Result<Net, OpenError> {
        let offer = provider.must_offer(host)?;
        // Version 2 loses the ends of long packets and of accesses on shared memory, or crashes on
        // them: there everything goes in packets that it takes before the call returns.
        let modest = provider.meeting == Meeting::Shm && offer.library().major() >= 2;
        let packet = match modest {
            true => offer.inject_size(),
            false if offer.provider().ends_with("ofi_rxm") => environment::eager(),
            false => usize::MAX,
        };
        let fragment = packet.saturating_sub(headers).clamp(256, Config::MAX_MESSAGE);
        let Config { sends, slabs, slab, .. } = *config;
        let sizes = Sizes { packet: headers + fragment, fragment, sends, slabs, slab };
        let enforcement = match provider.is_software() {
            // A provider in software checks rights in the owner's process.
            true => Enforcement::Owner,
            false => Enforcement::Device,
        };
        let access = offer.has_rma() && !modest;
        let data_bits = if access { provider.data_bits(&offer) } else { 0 };
        Net::open_offer(&offer, sizes, enforcement, Remote { access, data_bits })
    }

    #[inline]
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn name(&self) -> &[u8] {
        &self.name
    }

    fn error(&self, code: isize) -> String {
        self.library.error(code)
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the completion queue's descriptor, which is open as long as the queue is.
        self.wait.map(|fd| unsafe { BorrowedFd::borrow_raw(fd) })
    }

    fn try_wait(&mut self) -> bool {
        self.may_wait()
    }

    fn insert(&mut self, name: &[u8]) -> Result<Node, String> {
        self.insert_name(name).map_err(str::to_owned)
    }

    fn remove(&mut self, node: Node) {
        self.remove_node(node);
    }

    fn clean_up(&mut self, name: &[u8]) {
        leftovers::remove(name);
    }

    #[inline]
    fn inject(
        &mut self,
        to: Node,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
        _: Mark,
    ) -> Result<Taken, Refusal> {
        self.post_inject(to, len, fill).map(|()| Taken::Left)
    }

    #[inline]
    fn send_short(
        &mut self,
        to: Node,
        headers: &[&[u8]],
        parts: &[&[u8]],
        mark: Mark,
    ) -> Result<(), Refusal> {
        self.post_short(to, headers, parts, mark)
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
        key: &(u64, u64),
        offset: u64,
        mark: Mark,
    ) -> Result<(), Refusal> {
        self.post_access(node, op, local, *key, offset, mark)
    }

    fn spare(&mut self, lost: usize) {
        while self.slots.count() < self.sends + lost {
            let memory = [self.slots.grow(), self.contexts.grow()];
            self.objects.hold(memory);
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
        self.next_completion()
    }

    fn has_more(&self) -> bool {
        self.has_read()
    }

    fn poll(&mut self) -> bool {
        self.look_again()
    }

    #[inline]
    fn read(&self, packet: Packet, at: usize, into: &mut [u8]) {
        self.read_packet(packet, at, into);
    }

    fn copy(&self, packet: Packet, at: usize, into: &Slice) -> usize {
        self.part(packet, at, into.len()).map_or(0, |part| part.copy_to(into))
    }

    fn open_memory(&mut self, memory: &Slice, access: Access) -> Option<Opened> {
        self.open_to_nodes(memory, access)
    }

    fn close_memory(&mut self) {
        self.close_returned();
    }

    fn location(opened: &Opened) -> Vec<u8> {
        let (key, base) = opened.location();
        [key.to_le_bytes(), base.to_le_bytes()].concat()
    }

    fn key(&mut self, _: Node, place: &[u8]) -> Option<(u64, u64)> {
        let (key, base) = place.split_first_chunk()?;
        Some((u64::from_le_bytes(*key), u64::from_le_bytes(base.try_into().ok()?)))
    }
}

impl Plain for Net {
    #[inline]
    fn send_plain(&mut self, to: Node, bytes: &[u8]) -> bool {
        self.post_plain(to, bytes)
    }

    #[inline]
    fn receive_plain(&mut self) -> Option<usize> {
        self.read_plain()
    }
}
