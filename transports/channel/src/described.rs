//! Which channel messages to a peer take now: what `Endpoint::channels_of` says.

use crate::{
    Channels, Device, Force,
    flow::{Flow, Out},
};
use petasos_fabric::{ChannelState, ChannelUse, Peer, two_sided::header::PREFIX};
use std::ops::RangeInclusive;

/// Lengths of packets, from and to.
type Lengths = (usize, usize);

/// All lengths.
const ALL: Lengths = (0, usize::MAX);

impl<D: Device> Channels<D> {
    /// The channels to a peer; none for a stale handle, and for the endpoint itself.
    pub(crate) fn describe(&self, peer: Peer) -> Vec<ChannelUse> {
        if self.engine.peer_at(peer.index) != Some(peer) || self.engine.is_self(peer) {
            return Vec::new();
        }
        let none = Flow::default();
        let flow = self.peers.flow(peer.index).unwrap_or(&none);
        let exclusive = self.exclusive_lengths();
        let hole = exclusive.filter(|_| matches!(flow.out, Out::Open(_)));
        let mp = self.longest_mp();
        let packets = mp.map_or(Vec::new(), |to| without((0, to), hole));
        let fetched = match mp {
            None => vec![ALL],
            Some(usize::MAX) => Vec::new(),
            Some(to) => without((to + 1, usize::MAX), hole),
        };
        let (window, lent) = (self.config.window as usize, self.config.lent);
        let sent = flow.sent.len();
        let mut all = vec![
            ChannelUse::new("short packets", ChannelState::Open)
                .with_sizes(messages(packets))
                .with_credit(window.saturating_sub(sent), window, "packets"),
        ];
        all.push(self.describe_exclusive(flow, exclusive));
        let rendezvous = match fetched.is_empty() {
            true => ChannelUse::new("rendezvous", ChannelState::Never),
            false => ChannelUse::new("rendezvous", ChannelState::Open)
                .with_sizes(messages(fetched))
                .with_credit(self.loans.free(&flow.lent), lent, "regions"),
        };
        all.push(rendezvous);
        all
    }

    fn describe_exclusive(&self, flow: &Flow, lengths: Option<Lengths>) -> ChannelUse {
        let state = match (&flow.out, lengths) {
            (Out::Open(_), _) => ChannelState::Open,
            (Out::Closing(_), _) => ChannelState::Closing,
            (Out::Asked, _) => ChannelState::Asked,
            (_, None) => ChannelState::Never,
            (Out::Refused(until), _) if self.now < *until => ChannelState::Refused,
            (Out::Refused(_) | Out::None, _) => ChannelState::Closed,
        };
        let described = ChannelUse::new("exclusive FIFO", state)
            .with_sizes(messages(lengths.into_iter().collect()));
        match &flow.out {
            Out::Open(out) | Out::Closing(out) => {
                let cells = out.fifo.cells() as usize;
                described.with_credit(cells - out.fifo.used() as usize, cells, "cells")
            }
            _ => described,
        }
    }

    /// What goes through an exclusive channel, if there is one.
    fn exclusive_lengths(&self) -> Option<Lengths> {
        match self.config.force {
            Force::None => self.thresholds.exclusive(),
            Force::Exclusive => Some(ALL),
            Force::Mp | Force::Shared => None,
        }
    }

    /// The longest that goes as short packets, but for what goes through an exclusive channel.
    fn longest_mp(&self) -> Option<usize> {
        match self.config.force {
            Force::None => Some(self.thresholds.mp()),
            Force::Mp | Force::Exclusive => Some(usize::MAX),
            Force::Shared => None,
        }
    }
}

/// The lengths without those of the hole.
fn without((from, to): Lengths, hole: Option<Lengths>) -> Vec<Lengths> {
    let Some((begin, end)) = hole else { return vec![(from, to)] };
    let mut left = Vec::new();
    if from < begin {
        left.push((from, to.min(begin - 1)));
    }
    if end < to {
        left.push((from.max(end + 1), to));
    }
    left
}

/// Lengths of messages, whose packets have these: there is a header before each.
fn messages(packets: Vec<Lengths>) -> Vec<RangeInclusive<usize>> {
    let any = packets.into_iter().filter(|(_, to)| *to >= PREFIX);
    any.map(|(from, to)| {
        let to = if to == usize::MAX { to } else { to - PREFIX };
        from.saturating_sub(PREFIX)..=to
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holes() {
        assert_eq!(without((0, 9), None), [(0, 9)]);
        assert_eq!(without((0, 9), Some((3, 5))), [(0, 2), (6, 9)]);
        assert_eq!(without((0, 9), Some((0, 5))), [(6, 9)]);
        assert_eq!(without((0, 9), Some((5, 20))), [(0, 4)]);
        assert_eq!(without((10, usize::MAX), Some((5, 20))), [(21, usize::MAX)]);
        assert_eq!(without((10, usize::MAX), Some((0, 5))), [(10, usize::MAX)]);
        assert_eq!(without((0, 9), Some(ALL)), []);
        assert_eq!(without((0, 9), Some((20, 30))), [(0, 9)]);
    }

    #[test]
    fn headers_are_no_part_of_messages() {
        assert_eq!(messages(vec![(0, PREFIX - 1)]), []);
        assert_eq!(
            messages(vec![(0, PREFIX + 4), (PREFIX + 9, usize::MAX)]),
            [0..=4, 9..=usize::MAX]
        );
    }
}
