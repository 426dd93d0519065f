//! Exclusive channels: how they are asked for, given, recalled and closed.

use crate::{
    Channels, Device, Force, Garbage,
    device::Target,
    fifo::{self, CELL, ReceiveFifo, SendFifo},
    flow::{Flow, In, InFifo, Out, OutFifo},
    header::{Kind, granted},
    policy::{Share, Verdict},
    tag,
};
use petasos_fabric::{Access, Peer, Time};

impl<D: Device> Channels<D> {
    // As the sender.

    /// A peer is worth an exclusive channel: asks for one.
    pub(crate) fn ask_for_channel(&mut self, index: u32, flow: &mut Flow) {
        match flow.out {
            Out::None => {}
            Out::Refused(until) if self.now >= until => {}
            _ => return,
        }
        let bytes = self.config.exclusive.cells as usize * CELL;
        let shares: Vec<Share> =
            self.holders.outgoing().iter().filter_map(|peer| self.share_out(*peer)).collect();
        match self.config.exclusive.keep.decide(&shares, bytes, 0, self.now) {
            Verdict::Grant => {
                self.holders.add_outgoing(index);
                flow.out = Out::Asked;
                flow.control.add(Kind::Ask);
                self.flush_control(index, flow);
            }
            Verdict::Take(victim) => {
                flow.out = Out::None;
                let Some(mut other) = self.peers.take_flow(victim) else { return };
                self.close_out(victim, &mut other);
                self.peers.put_flow(victim, other);
            }
            Verdict::Wait => flow.out = Out::None,
            Verdict::Refuse => flow.out = Out::Refused(self.now.after(self.config.exclusive.pause)),
        }
    }

    fn share_out(&self, index: u32) -> Option<Share> {
        let flow = self.peers.flow(index)?;
        let bytes = self.config.exclusive.cells as usize * CELL;
        let (used, leaving) = match &flow.out {
            Out::None | Out::Refused(_) => return None,
            Out::Asked => (Time::NEVER, false),
            Out::Open(out) => (out.used, false),
            Out::Closing(out) => (out.used, true),
        };
        Some(Share { holder: index, bytes, used, leaving })
    }

    /// The peer gives the channel that it was asked for.
    pub(crate) fn channel_granted(
        &mut self,
        index: u32,
        flow: &mut Flow,
        body: &[u8],
    ) -> Result<(), Garbage> {
        let (cells, key) = granted(body)?;
        let most = self.config.exclusive.cells;
        if !matches!(flow.out, Out::Asked) || !(fifo::MIN_CELLS..=most).contains(&cells) {
            return Err(Garbage::new("a channel that was not asked for", cells.into()));
        }
        let fifo = SendFifo::new(cells);
        match self.port.device_mut().register(&fifo.image().whole(), Access::NONE, 0) {
            Ok((registration, _)) => {
                let (target, used) = (Target { key, offset: 0 }, self.now);
                flow.out = Out::Open(Box::new(OutFifo { fifo, target, registration, used }));
            }
            Err(_) => {
                self.pause_asking(index, flow);
                flow.control.add(Kind::Closed);
                self.flush_control(index, flow);
            }
        }
        self.schedule.list_output(index, flow);
        Ok(())
    }

    /// The peer gives none.
    pub(crate) fn channel_refused(&mut self, index: u32, flow: &mut Flow) -> Result<(), Garbage> {
        if !matches!(flow.out, Out::Asked) {
            return Err(Garbage::new("a refusal that was not asked for", 0));
        }
        self.counters.denied += 1;
        self.pause_asking(index, flow);
        self.schedule.list_output(index, flow);
        Ok(())
    }

    /// There is no channel to this peer, and it is not asked again for a while.
    fn pause_asking(&mut self, index: u32, flow: &mut Flow) {
        self.holders.remove_outgoing(index);
        flow.out = Out::Refused(self.now.after(self.config.exclusive.pause));
    }

    /// No more goes through the exclusive channel to a peer.
    pub(crate) fn close_out(&mut self, index: u32, flow: &mut Flow) {
        match std::mem::take(&mut flow.out) {
            Out::Open(out) => flow.out = Out::Closing(out),
            other => flow.out = other,
        }
        self.close_drained(index, flow);
        self.schedule.list_output(index, flow);
    }

    /// Ends an exclusive channel whose records have all been taken.
    pub(crate) fn close_drained(&mut self, index: u32, flow: &mut Flow) {
        let Out::Closing(out) = &flow.out else { return };
        if out.fifo.is_drained() {
            self.port.device_mut().deregister(out.registration, None);
            self.holders.remove_outgoing(index);
            flow.out = Out::None;
            flow.control.add(Kind::Closed);
            self.flush_control(index, flow);
        }
    }

    // As the receiver.

    /// A peer asks for a channel.
    pub(crate) fn channel_asked_for(
        &mut self,
        peer: Peer,
        flow: &mut Flow,
        body: &[u8],
    ) -> Result<(), Garbage> {
        let cells = body.try_into().map(u32::from_le_bytes);
        let cells = cells.unwrap_or(0).min(self.config.exclusive.cells);
        if cells < fifo::MIN_CELLS || !matches!(flow.inward, In::None) {
            return Err(Garbage::new("an invalid request for a channel", 0));
        }
        let bytes = cells as usize * CELL;
        let shares: Vec<Share> =
            self.holders.incoming().iter().filter_map(|peer| self.share_inward(*peer)).collect();
        let waiting = self.holders.waiting();
        let verdict = match self.config.force {
            Force::Mp | Force::Shared => Verdict::Refuse,
            _ => self.config.exclusive.give.decide(&shares, bytes, waiting, self.now),
        };
        if let Verdict::Take(victim) = verdict {
            self.recall(victim);
        }
        match verdict {
            Verdict::Grant => self.give(peer, flow, cells),
            // A sender that uses nothing else would stand still meanwhile.
            Verdict::Take(_) | Verdict::Wait if self.config.force == Force::None => {
                flow.inward = In::Waiting(cells);
                self.holders.add_waiting(peer);
            }
            _ => {
                self.counters.refused += 1;
                flow.control.add(Kind::Refuse);
                self.flush_control(peer.index, flow);
            }
        }
        Ok(())
    }

    fn share_inward(&self, index: u32) -> Option<Share> {
        let flow = self.peers.flow(index)?;
        let In::Open(inward) = &flow.inward else { return None };
        let bytes = inward.fifo.memory().len();
        Some(Share { holder: index, bytes, used: inward.used, leaving: inward.leaving })
    }

    fn recall(&mut self, victim: u32) {
        let Some(mut flow) = self.peers.take_flow(victim) else { return };
        if let In::Open(inward) = &mut flow.inward {
            inward.leaving = true;
            flow.control.add(Kind::Recall);
            self.flush_control(victim, &mut flow);
        }
        self.peers.put_flow(victim, flow);
    }

    fn give(&mut self, peer: Peer, flow: &mut Flow, cells: u32) {
        let fifo = ReceiveFifo::new(cells);
        let tag = tag::of_fifo(peer.index);
        // Also readable: it holds only what its one writer wrote, and some networks register no
        // memory that can only be written.
        let access = Access::WRITE.with(Access::READ);
        match self.port.device_mut().register(&fifo.memory().whole(), access, tag) {
            Ok((registration, key)) => {
                self.counters.given += 1;
                self.holders.add_incoming(peer.index);
                let (used, leaving) = (self.now, false);
                flow.inward = In::Open(Box::new(InFifo { fifo, registration, key, used, leaving }));
                flow.control.add(Kind::Grant);
            }
            Err(_) => {
                self.counters.refused += 1;
                flow.inward = In::None;
                flow.control.add(Kind::Refuse);
            }
        }
        self.flush_control(peer.index, flow);
    }

    /// A peer has closed its channel.
    pub(crate) fn channel_closed(&mut self, index: u32, flow: &mut Flow) -> Result<(), Garbage> {
        let In::Open(inward) = &mut flow.inward else {
            return Err(Garbage::new("an end of a channel that does not exist", 0));
        };
        if let Some(front) = inward.fifo.front()? {
            return Err(Garbage::new("a record in a channel that ended", front.seq().into()));
        }
        self.end_inward(index, flow);
        Ok(())
    }

    /// The exclusive channel from a peer has ended; peers that wait for one get it now.
    pub(crate) fn end_inward(&mut self, index: u32, flow: &mut Flow) {
        match std::mem::take(&mut flow.inward) {
            In::None => return,
            In::Waiting(_) => self.holders.remove_waiting(index),
            In::Open(inward) => {
                self.port.device_mut().deregister(inward.registration, None);
                self.holders.remove_incoming(index);
                self.counters.taken += u64::from(inward.leaving);
            }
        }
        flow.control.remove(Kind::Grant);
        flow.control.remove(Kind::Recall);
        while let Some(next) = self.holders.first_waiting() {
            let shares: Vec<Share> = self
                .holders
                .incoming()
                .iter()
                .filter_map(|peer| self.share_inward(*peer))
                .collect();
            let slot = self.peers.take_flow(next.index);
            let Some(mut other) = slot else {
                self.holders.pop_waiting();
                continue;
            };
            let cells = match other.inward {
                In::Waiting(cells) => Some(cells),
                _ => None,
            };
            let give = &self.config.exclusive.give;
            let fits = cells.is_none_or(|cells| {
                let bytes = cells as usize * CELL;
                give.decide(&shares, bytes, 0, self.now) == Verdict::Grant
            });
            if fits {
                self.holders.pop_waiting();
                if let Some(cells) = cells {
                    self.give(next, &mut other, cells);
                }
            }
            self.peers.put_flow(next.index, other);
            if !fits {
                return;
            }
        }
    }
}
