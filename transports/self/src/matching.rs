//! Expected messages: posted receives, and messages that came before their receive.

use crate::{
    allotment::Charge,
    hub::{Hub, Tagged},
    offer::Offer,
};
use bytes::Bytes;
use petasos_fabric::{
    Claimed, Done, LostReason, OpErrorKind, Peeked, Peer, Slice, Token, offer::Room,
};
use petasos_match::{Envelope, Key, MessageQueue, Pattern, PatternList};
use std::{collections::HashMap, sync::Arc};

/// The most that one step of a fetch copies.
const PIECE: usize = 1 << 20;

pub(crate) struct Posted {
    pub(crate) token: Token,
    pub(crate) source: Option<Peer>,
    pub(crate) tag: u64,
    pub(crate) ignore: u64,
    pub(crate) into: Room,
}

pub(crate) struct Arrived {
    pub(crate) peer: Peer,
    pub(crate) tag: u64,
    pub(crate) data: Tagged,
    pub(crate) _charge: Charge,
}

impl Posted {
    fn pattern(&self) -> Pattern {
        Pattern::new(self.source.map(Peer::to_bits), self.tag, self.ignore)
    }
}

/// Where the data of a message is.
pub(crate) enum Source {
    /// Here; its sender is done with it.
    Eager(Bytes),
    /// With its sender. This side has taken it.
    Offer(Arc<Offer>),
}

impl Source {
    /// The sender's name for it, to tell that it is done.
    pub(crate) fn offer(&self) -> Option<u64> {
        match self {
            Source::Eager(_) => None,
            Source::Offer(offer) => Some(offer.id),
        }
    }
}

/// A copy from where the sender has it, under way.
pub(crate) struct Fetch {
    pub(crate) token: Token,
    pub(crate) peer: Peer,
    from: Source,
    into: Slice,
    at: usize,
    /// The tag, if it is an expected message.
    tag: Option<u64>,
}

impl Fetch {
    /// Of a body that was taken.
    pub(crate) fn body(token: Token, peer: Peer, offer: Arc<Offer>, into: Slice) -> Fetch {
        Fetch { token, peer, from: Source::Offer(offer), into, at: 0, tag: None }
    }

    /// The data of an expected message.
    pub(crate) fn tagged(message: Data, token: Token, into: Slice) -> Fetch {
        let Data { peer, tag, from } = message;
        Fetch { token, peer, from, into, at: 0, tag: Some(tag) }
    }

    /// The sender's name for it, to tell that it is done.
    pub(crate) fn offer(&self) -> Option<u64> {
        self.from.offer()
    }

    /// Whether it goes to this memory.
    pub(crate) fn writes(&self, memory: &Slice) -> bool {
        self.into.overlaps(memory)
    }

    /// Copies at most `budget` bytes; gives the result when all is there, or the sender has let the
    /// connection go.
    pub(crate) fn step(&mut self, budget: &mut usize) -> Option<Result<Done, OpErrorKind>> {
        let sent = match &self.from {
            Source::Eager(bytes) => bytes.len() as u64,
            Source::Offer(offer) => offer.len,
        };
        let posted = self.into.len();
        let wanted = usize::try_from(sent).map_or(posted, |sent| sent.min(posted));
        while self.at < wanted {
            if *budget == 0 {
                return None;
            }
            let len = (wanted - self.at).min(PIECE).min(*budget);
            match &self.from {
                Source::Eager(bytes) => self.into.write(self.at, &bytes[self.at..self.at + len]),
                Source::Offer(offer) if !offer.copy(self.at, len, &self.into) => {
                    return Some(Err(OpErrorKind::PeerLost(LostReason::Closed)));
                }
                Source::Offer(_) => {}
            }
            self.at += len;
            *budget -= len;
        }
        let (posted, len) = (posted as u64, wanted as u64);
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
    /// Receives that are over, as other endpoints have taken their memory.
    gone: Vec<Token>,
    arrived: MessageQueue<Arrived>,
    /// Messages that the program has claimed, by the ids of their handles.
    claims: HashMap<u64, Arrived>,
    latest_claim: u64,
}

impl Matching {
    /// Posts a receive, which may find its message at once.
    pub(crate) fn post(&mut self, hub: &Hub, posted: Posted) -> Option<Fetch> {
        let pattern = posted.pattern();
        if !posted.into.is_there() {
            self.gone.push(posted.token);
            return None;
        }
        while let Some((_, message)) = self.arrived.take(&pattern) {
            if let Some(data) = message.take_data(hub) {
                return self.fetch(data, posted);
            }
        }
        self.posted.push_back(pattern, posted);
        None
    }

    /// The receives of which the memory is gone to other endpoints, found since the last call.
    pub(crate) fn take_gone(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.gone)
    }

    /// Takes in a message, which may find its receive at once.
    pub(crate) fn arrive(&mut self, hub: &Hub, message: Arrived) -> Option<Fetch> {
        let envelope = Envelope::new(message.peer.to_bits(), message.tag);
        let key = loop {
            let Some(key) = self.posted.first(envelope) else {
                self.arrived.push(envelope, message);
                return None;
            };
            if self.posted.get(key).is_some_and(|posted| posted.into.is_there()) {
                break key;
            }
            self.gone.extend(self.posted.remove(key).map(|posted| posted.token));
        };
        let data = message.take_data(hub)?;
        let posted = self.posted.remove(key)?;
        self.fetch(data, posted)
    }

    fn fetch(&mut self, data: Data, posted: Posted) -> Option<Fetch> {
        let into = posted.into.take();
        if into.is_none() {
            self.gone.push(posted.token);
        }
        into.map(|into| Fetch::tagged(data, posted.token, into))
    }

    /// The oldest message that a receive with this pattern would take, which is set aside if the
    /// program claims it.
    pub(crate) fn peek(&mut self, pattern: &Pattern, claim: bool) -> Option<Peeked> {
        let key = self.arrived.find(pattern, None, Arrived::is_there)?;
        let message = self.arrived.get(key)?;
        let mut peeked = Peeked::new(message.peer, message.tag, message.len());
        if claim {
            self.latest_claim += 1;
            let claimed = Claimed { peer: message.peer, id: self.latest_claim };
            self.claims.extend(self.arrived.remove(key).map(|message| (claimed.id, message)));
            peeked.claimed = Some(claimed);
        }
        Some(peeked)
    }

    /// The claimed message with this handle.
    pub(crate) fn take_claimed(&mut self, claimed: Claimed) -> Option<Arrived> {
        let known = self.claims.get(&claimed.id).is_some_and(|m| m.peer == claimed.peer);
        if known { self.claims.remove(&claimed.id) } else { None }
    }

    /// A receive that waits with this memory.
    pub(crate) fn posted_into(&self, memory: &Slice) -> Option<Token> {
        let mut posted = self.posted.iter().map(|(.., posted)| posted);
        posted.find(|posted| posted.into.overlaps(memory)).map(|posted| posted.token)
    }

    /// Takes out the receive with this token.
    pub(crate) fn cancel(&mut self, token: Token) -> Option<Posted> {
        let (key, ..) = self.posted.iter().find(|(.., posted)| posted.token == token)?;
        self.posted.remove(key)
    }

    /// Takes out the receives from this peer, and lets go of what it can no longer send.
    pub(crate) fn lose(&mut self, peer: Peer) -> Vec<Posted> {
        self.arrived.retain(|_, message| message.peer != peer || message.is_eager());
        self.claims.retain(|_, message| message.peer != peer || message.is_eager());
        let from_peer = self.posted.iter().filter(|(.., posted)| posted.source == Some(peer));
        let lost: Vec<Key> = from_peer.map(|(key, ..)| key).collect();
        lost.into_iter().filter_map(|key| self.posted.remove(key)).collect()
    }
}

/// The data of a message, which goes to a receive.
pub(crate) struct Data {
    pub(crate) peer: Peer,
    tag: u64,
    pub(crate) from: Source,
}

impl Arrived {
    fn is_eager(&self) -> bool {
        matches!(self.data, Tagged::Eager(_))
    }

    /// Whether its sender has not withdrawn it.
    fn is_there(&self) -> bool {
        match &self.data {
            Tagged::Eager(_) => true,
            Tagged::Offer(offer) => offer.is_open(),
        }
    }

    /// Its length in bytes.
    fn len(&self) -> u64 {
        match &self.data {
            Tagged::Eager(bytes) => bytes.len() as u64,
            Tagged::Offer(offer) => offer.len,
        }
    }

    /// Its data, unless its sender has withdrawn it.
    pub(crate) fn take_data(self, hub: &Hub) -> Option<Data> {
        let Arrived { peer, tag, data, .. } = self;
        let from = match data {
            Tagged::Eager(bytes) => {
                hub.eager.give_back(0);
                Source::Eager(bytes)
            }
            Tagged::Offer(offer) => offer.take().then_some(Source::Offer(offer))?,
        };
        Some(Data { peer, tag, from })
    }
}
