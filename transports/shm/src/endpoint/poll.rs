//! Polling descriptors, and what is due by the clock; which peers are watched.

use crate::{
    Shm,
    channel::{Channel, kind},
    control::ControlMessage,
    poller::{Batch, Source},
    socket,
    sync::{Ordering, fence},
};
use petasos_fabric::{LostReason, Time};
use rustix::io::Errno;

/// Watched peers beyond so many lose their watch when nothing has come for so long (nanoseconds).
const QUIET_WATCHED: usize = 64;
const QUIET: u64 = 200_000_000;

impl Shm {
    /// Polls the descriptors, and does what is due by the clock. True if anything was done.
    pub(super) fn poll_descriptors(&mut self) -> bool {
        let now = self.now;
        let timed = self.schedule.begin(now);
        let mut worked = self.poll_once(now);
        self.arrivals.resume(now, &self.poller);
        if self.arrivals.has_backlog() {
            worked |= self.accept(now);
        }
        if !self.attempts.is_empty() {
            worked |= self.try_to_connect(now);
        }
        if timed {
            self.cut_arrivals(now);
            self.stop_watching_quiet(now);
            self.report_unused_segments();
            self.closing.release_pairs();
            self.channels.trim(now);
        }
        self.schedule.finish(!self.attempts.is_empty() || !self.arrivals.is_empty());
        worked
    }

    /// Handles what is ready. True if anything was.
    fn poll_once(&mut self, now: Time) -> bool {
        let mut batch = Batch::new();
        let ready = self.poller.poll(&mut batch);
        let worked = ready.len() > 0;
        for ready in ready.flatten() {
            let index = ready.index;
            let of_peer = self.channel(index).is_some_and(|c| ready.is_of(c.handle.generation));
            match ready.source {
                Source::Listener => self.arrivals.set_backlog(),
                Source::Notifier => {}
                Source::Arrival => self.greeted(index, |generation| ready.is_of(generation)),
                Source::Attempt => self.answered(ready, now),
                Source::Doorbell if of_peer => self.start_watching(index),
                Source::Socket if of_peer => {
                    self.read_socket(index);
                    if ready.hung_up {
                        self.hang_up_now(index);
                    }
                }
                Source::Doorbell | Source::Socket => {}
            }
        }
        worked
    }

    /// The other end of the socket was closed.
    fn hang_up_now(&mut self, index: u32) {
        if let Some(channel) = self.channels.get(index) {
            // Else it would be reported again and again.
            self.poller.remove(channel.process.socket());
            self.channels.hang_up(index, LostReason::Closed);
        }
    }

    /// Reads control messages from the socket of a peer.
    fn read_socket(&mut self, index: u32) {
        for _ in 0..64 {
            let most = self.config.max_mapped;
            let Some(channel) = self.channel(index) else { return };
            // A segment for which there is no descriptor to be had is not mapped.
            let (bytes, fds) = match socket::receive(channel.process.socket()) {
                Ok(received) if received.bytes.is_empty() => return self.hang_up_now(index),
                Ok(received) => (received.bytes, received.fds),
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => return self.hang_up_now(index),
            };
            match ControlMessage::decode(&bytes) {
                Ok(ControlMessage::Doorbell) => self.start_watching(index),
                Ok(ControlMessage::Segment { id, given, writable }) => {
                    let fd = fds.into_iter().next().filter(|_| given);
                    channel.segments.answered(id, writable, fd, most);
                }
                Ok(_) => return self.violated(index, "a greeting out of turn".to_owned()),
                Err(garbled) => return self.violated(index, garbled.to_string()),
            }
        }
    }

    // Watched peers.

    /// Polls this peer's ring from now on: it need not ring.
    pub(super) fn start_watching(&mut self, index: u32) {
        if self.watched.len() >= self.config.max_watched
            && let Some(other) = self.watched.least_likely()
        {
            self.stop_watching(other);
        }
        let Some(channel) = self.channel(index) else { return };
        channel.pair.set_asleep(false);
        if !channel.watched {
            channel.watched = true;
            self.watched.add(index);
        }
    }

    /// From now on this peer has to ring.
    fn stop_watching(&mut self, index: u32) {
        self.watched.remove(index);
        let Some(channel) = self.channel(index) else { return };
        channel.watched = false;
        channel.pair.set_asleep(true);
        fence(Ordering::SeqCst);
        if channel.pair.peek() != Ok(None) {
            // Rings this endpoint's own doorbell, so that the peer is watched again.
            channel.doorbell.signal();
        }
    }

    fn stop_watching_quiet(&mut self, now: Time) {
        if self.watched.len() <= QUIET_WATCHED {
            return;
        }
        // A peer that has sent something waits for its turn, however long that takes.
        let quiet = |channel: &Channel| {
            now.0.saturating_sub(channel.touched.0) > QUIET && channel.pair.is_empty()
        };
        for index in self.watched.behind_front().to_vec() {
            if self.watched.len() > QUIET_WATCHED && self.channel(index).is_some_and(|c| quiet(c)) {
                self.stop_watching(index);
            }
        }
    }

    /// Tells peers which of the segments that they may have mapped are not used here any more.
    pub(super) fn report_unused_segments(&mut self) {
        for index in 0..self.channels.len() as u32 {
            let Some(channel) = self.channel(index) else { continue };
            let mut told = false;
            while let Some(id) = channel.granted.unused() {
                if !matches!(channel.post(kind::UNUSED, &id.to_le_bytes()), Ok(true)) {
                    break;
                }
                channel.granted.remove(id);
                told = true;
            }
            if told {
                self.published(index);
            }
        }
    }
}
