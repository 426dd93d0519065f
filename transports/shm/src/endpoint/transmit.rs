//! Sending what the engine has, and ringing the doorbells of peers that sleep.

use crate::Shm;

/// Packets of the engine's sent to one peer in one pass.
const PACKETS: usize = 64;

impl Shm {
    /// Sends what the engine has, to each peer in turn.
    pub(super) fn transmit_all(&mut self) -> bool {
        let mut worked = false;
        while let Some(peer) = self.engine.next_output() {
            match self.channel(peer.index) {
                Some(channel) => {
                    channel.served = true;
                    self.sending.push_back(peer.index);
                }
                // Up without a channel: only in the moment in which it is lost.
                None => while self.engine.poll_transmit(peer).is_some() {},
            }
        }
        for _ in 0..self.sending.len() {
            let Some(index) = self.sending.pop_front() else { break };
            worked |= self.transmit(index);
        }
        worked
    }

    /// Sends to one peer as much as there is room for.
    fn transmit(&mut self, index: u32) -> bool {
        let mut sent = 0;
        while sent < PACKETS {
            let Shm { channels, engine, .. } = self;
            let Some(channel) = channels.get_mut(index) else { return sent > 0 };
            let peer = channel.handle;
            let Some(packet) = channel.stuck.take().or_else(|| engine.poll_transmit(peer)) else {
                channel.served = engine.messages_queued(peer);
                return sent > 0;
            };
            match channel.write(&packet) {
                Ok(true) => {
                    engine.sent(peer);
                    sent += 1;
                    self.counters.sent += 1;
                    if channel.pair.uses_long() {
                        channels.sent_long(self.now);
                    }
                    self.published(index);
                }
                Ok(false) => {
                    channel.stuck = Some(packet);
                    break;
                }
                Err(broken) => {
                    self.violated(index, broken.to_string());
                    return true;
                }
            }
        }
        self.sending.push_back(index);
        sent > 0
    }

    /// Something was published in the channel of a peer.
    #[inline]
    pub(super) fn published(&mut self, index: u32) {
        self.channels.published(index, &mut self.counters);
    }

    /// Rings for the peers that fell asleep while something was published.
    #[inline]
    pub(super) fn ring_pending(&mut self) {
        self.channels.ring_pending(&mut self.counters);
    }
}
