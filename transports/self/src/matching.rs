//! Expected messages: posted receives, and messages that came before their receive.

use crate::{
    hub::{Hub, Tagged},
    offer::Offer,
};
use petasos_fabric::{Done, OpErrorKind, Payload, Peer, Slice, Token};
use petasos_match::{Envelope, Key, MessageQueue, Pattern, PatternList};
use std::sync::Arc;

/// The most that one step of a fetch copies.
const PIECE: usize = 1 << 20;

pub(crate) struct Posted {
    pub(crate) token: Token,
    pub(crate) source: Option<Peer>,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) into: Slice,
}

pub(crate) struct Arrived {
    pub(crate) peer: Peer,
    pub(crate) tag: u64,
    pub(crate) data: Tagged,
}

impl Posted {
    fn pattern(&self) -> Pattern {
        Pattern::new(self.source.map(Peer::to_bits), self.tag, self.ignore)
    }
}

/// A copy from where the sender has it, under way.
pub(crate) struct Fetch {
    pub(crate) token: Token,
    pub(crate) peer: Peer,
    /// The sender's name for it, to tell that it is done.
    pub(crate) offer: Option<u64>,
    from: Payload,
    into: Slice,
    at: usize,
    /// The tag, if it is an expected message.
    tag: Option<u64>,
}

impl Fetch {
    pub(crate) fn body(token: Token, peer: Peer, id: u64, from: Payload, into: Slice) -> Fetch {
        Fetch { token, peer, offer: Some(id), from, into, at: 0, tag: None }
    }

    /// Copies at most `budget` bytes; gives the result when all is there.
    pub(crate) fn step(&mut self, budget: &mut usize) -> Option<Result<Done, OpErrorKind>> {
        let (sent, posted) = (self.from.len(), self.into.len());
        let wanted = sent.min(posted);
        while self.at < wanted {
            if *budget == 0 {
                return None;
            }
            let len = (wanted - self.at).min(PIECE).min(*budget);
            match &self.from {
                Payload::Bytes(bytes) => self.into.write(self.at, &bytes[self.at..self.at + len]),
                Payload::Memory(slice) => {
                    let (from, to) = (slice.part(self.at, len), self.into.part(self.at, len));
                    if let (Some(from), Some(to)) = (from, to) {
                        from.copy_to(&to);
                    }
                }
            }
            self.at += len;
            *budget -= len;
        }
        let (sent, posted, len) = (sent as u64, posted as u64, wanted as u64);
        let peer = self.peer;
        Some(match self.tag {
            None => Ok(Done::Received { len }),
            Some(_) if sent > posted => Err(OpErrorKind::Truncated { sent, posted }),
            Some(tag) => Ok(Done::Tagged { peer, tag, len }),
        })
    }
}

/// The word of a source is [`Peer::to_bits`].
#[derive(Default)]
pub(crate) struct Matching {
    posted: PatternList<Posted>,
    arrived: MessageQueue<Arrived>,
}

impl Matching {
    /// Posts a receive, which may find its message at once.
    pub(crate) fn post(&mut self, hub: &Hub, posted: Posted) -> Option<Fetch> {
        let pattern = posted.pattern();
        while let Some((_, message)) = self.arrived.take(&pattern) {
            if let Some((from, offer)) = claim(hub, message.data) {
                return Some(fetch(posted, message.peer, message.tag, from, offer));
            }
        }
        self.posted.push_back(pattern, posted);
        None
    }

    /// Takes in a message, which may find its receive at once.
    pub(crate) fn arrive(&mut self, hub: &Hub, message: Arrived) -> Option<Fetch> {
        let (peer, tag) = (message.peer, message.tag);
        let envelope = Envelope::new(peer.to_bits(), tag);
        let Some(key) = self.posted.first(envelope) else {
            self.arrived.push(envelope, message);
            return None;
        };
        let (from, offer) = claim(hub, message.data)?;
        let posted = self.posted.remove(key)?;
        Some(fetch(posted, peer, tag, from, offer))
    }

    /// Takes out the receive with this token.
    pub(crate) fn cancel(&mut self, token: Token) -> Option<Posted> {
        let (key, ..) = self.posted.iter().find(|(.., posted)| posted.token == token)?;
        self.posted.remove(key)
    }

    /// Takes out the receives from this peer, and lets go of what it can no longer send.
    pub(crate) fn lose(&mut self, peer: Peer) -> Vec<Posted> {
        self.arrived.retain(|_, message| message.peer != peer || message.is_eager());
        let from_peer = self.posted.iter().filter(|(.., posted)| posted.source == Some(peer));
        let lost: Vec<Key> = from_peer.map(|(key, ..)| key).collect();
        lost.into_iter().filter_map(|key| self.posted.remove(key)).collect()
    }
}

impl Arrived {
    fn is_eager(&self) -> bool {
        matches!(self.data, Tagged::Eager(_))
    }
}

/// The data of a message, unless its sender has taken it back.
fn claim(hub: &Hub, data: Tagged) -> Option<(Payload, Option<Arc<Offer>>)> {
    match data {
        Tagged::Eager(bytes) => {
            hub.eager.give_back(0);
            Some((Payload::Bytes(bytes), None))
        }
        Tagged::Offer(offer) => Some((offer.take()?, Some(offer))),
    }
}

fn fetch(posted: Posted, peer: Peer, tag: u64, from: Payload, offer: Option<Arc<Offer>>) -> Fetch {
    Fetch {
        token: posted.token,
        peer,
        offer: offer.map(|offer| offer.id),
        from,
        into: posted.into,
        at: 0,
        tag: Some(tag),
    }
}
