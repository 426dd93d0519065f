//! What a NIC does when it is polled.

use super::Nic;
use crate::network::Network;
use petasos_channel::DeviceEvent;
use petasos_fabric::Time;

impl<N: Network> Nic<N> {
    /// See [`petasos_channel::Device::poll`].
    #[inline]
    pub(super) fn poll_within(
        &mut self,
        (now, data): (Time, bool),
        most: usize,
        events: &mut Vec<DeviceEvent>,
    ) -> bool {
        (self.inner.now, self.data) = (now, data);
        self.inner.pace.begin_pass();
        let took = std::mem::take(&mut self.took);
        if self.has_nothing() {
            self.inner.pace.library_polled(took);
            self.inner.pace.end_pass(took);
            return took;
        }
        let before = events.len();
        let mut busy = self.poll_all(most) | took;
        if !self.mail.is_empty() || !self.stash.is_empty() {
            self.hand_out(most, events);
        }
        busy |= events.len() > before;
        self.inner.pace.end_pass(busy);
        busy
    }

    /// Whether the library was just asked for a packet, and had none, and nothing else is due.
    #[inline]
    fn has_nothing(&mut self) -> bool {
        let timed = self.next_time() < Time::NEVER || self.exposures.is_closing();
        let inner = &mut self.inner;
        let lists = &inner.lists;
        let listed = lists.has_controls()
            || lists.has_owing()
            || !lists.paused().is_empty()
            || !lists.ending().is_empty();
        let waits = self.found.is_some() || !self.mail.is_empty() || !self.stash.is_empty();
        let nodes = self.nodes.has_work() || !self.departed.is_empty();
        !listed
            && !waits
            && !nodes
            && !timed
            && !inner.pace.is_control_due(inner.counters.packets_in)
            && !inner.peers.has_news()
            && inner.pace.take_polled()
    }

    fn poll_all(&mut self, most: usize) -> bool {
        if !self.departed.is_empty() {
            self.forget_departed();
        }
        let mut busy = self.found.is_some();
        if busy {
            self.report_found();
        }
        let packets = self.inner.counters.packets_in;
        if self.inner.pace.is_control_due(packets) || self.inner.lists.has_controls() {
            self.inner.pace.control_polled(packets);
            busy |= self.inner.poll_control();
        }
        if self.inner.peers.has_news() {
            self.take_news();
        }
        if !self.inner.memory_controls.is_empty() {
            self.take_memory_controls();
        }
        if !self.inner.lists.paused().is_empty() {
            busy |= self.resume(most);
        }
        let arrived = !self.inner.pace.take_polled() && self.receive(most);
        self.inner.pace.library_polled(arrived);
        busy |= arrived;
        if arrived && !self.inner.lists.paused().is_empty() {
            self.resume(most);
        }
        if self.nodes.has_owed() {
            busy |= self.pay_all();
        }
        if self.inner.lists.has_owing() {
            busy |= self.inner.acknowledge();
        }
        if !self.inner.lists.ending().is_empty() {
            busy |= self.inner.finish_ended();
        }
        if self.inner.peers.has_news() {
            self.take_news();
        }
        if self.nodes.has_full() {
            self.tell_room();
        }
        if self.opened.end_mourning(self.inner.now) {
            self.inner.net.close_memory();
        }
        if self.exposures.is_closing() {
            self.close_free();
        }
        if self.operations.until() <= self.inner.now {
            self.end_late();
        }
        busy
    }

    /// When something is to be done, if nothing happens before.
    #[inline]
    pub(super) fn next_time(&self) -> Time {
        self.opened.until().min(self.operations.until()).min(self.exposures.until())
    }
}
