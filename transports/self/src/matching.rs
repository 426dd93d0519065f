//! Expected messages: posted receives, and messages that came before their receive.
//!
//! Both lists are searched from the front, which is what the order of matching asks for; a
//! program inside one process has few of either.

use crate::{
    hub::{Hub, Tagged},
    offer::Offer,
};
use bytes::Bytes;
use petasos_fabric::{Done, LostReason, OpErrorKind, Peer, Slice, Token};
use std::{collections::VecDeque, sync::Arc};

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
    fn takes(&self, peer: Peer, tag: u64) -> bool {
        (self.tag ^ tag) & !self.ignore == 0 && self.source.is_none_or(|source| source == peer)
    }
}

/// Where the data of a message is.
enum Source {
    /// Here; its sender is done with it.
    Eager(Bytes),
    /// With its sender. This side has taken it.
    Offer(Arc<Offer>),
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

    /// The sender's name for it, to tell that it is done.
    pub(crate) fn offer(&self) -> Option<u64> {
        match &self.from {
            Source::Eager(_) => None,
            Source::Offer(offer) => Some(offer.id),
        }
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

#[derive(Default)]
pub(crate) struct Matching {
    posted: VecDeque<Posted>,
    arrived: VecDeque<Arrived>,
}

impl Matching {
    /// Posts a receive, which may find its message at once.
    pub(crate) fn post(&mut self, hub: &Hub, posted: Posted) -> Option<Fetch> {
        let mut at = 0;
        while at < self.arrived.len() {
            let message = &self.arrived[at];
            if !posted.takes(message.peer, message.tag) {
                at += 1;
                continue;
            }
            if let Some(message) = self.arrived.remove(at)
                && let Some(from) = claim(hub, message.data)
            {
                return Some(fetch(posted, message.peer, message.tag, from));
            }
        }
        self.posted.push_back(posted);
        None
    }

    /// Takes in a message, which may find its receive at once.
    pub(crate) fn arrive(&mut self, hub: &Hub, message: Arrived) -> Option<Fetch> {
        let (peer, tag) = (message.peer, message.tag);
        let Some(at) = self.posted.iter().position(|posted| posted.takes(peer, tag)) else {
            self.arrived.push_back(message);
            return None;
        };
        let from = claim(hub, message.data)?;
        let posted = self.posted.remove(at)?;
        Some(fetch(posted, peer, tag, from))
    }

    /// Takes out the receive with this token.
    pub(crate) fn cancel(&mut self, token: Token) -> Option<Posted> {
        let at = self.posted.iter().position(|posted| posted.token == token)?;
        self.posted.remove(at)
    }

    /// Takes out the receives from this peer, and lets go of what it can no longer send.
    pub(crate) fn lose(&mut self, peer: Peer) -> Vec<Posted> {
        let gone = |message: &Arrived| message.peer == peer && !message.is_eager();
        self.arrived.retain(|message| !gone(message));
        let (lost, kept) = std::mem::take(&mut self.posted)
            .into_iter()
            .partition::<Vec<_>, _>(|posted| posted.source == Some(peer));
        self.posted = kept.into();
        lost
    }
}

impl Arrived {
    fn is_eager(&self) -> bool {
        matches!(self.data, Tagged::Eager(_))
    }
}

/// The data of a message, unless its sender has taken it back.
fn claim(hub: &Hub, data: Tagged) -> Option<Source> {
    match data {
        Tagged::Eager(bytes) => {
            hub.eager.give_back(0);
            Some(Source::Eager(bytes))
        }
        Tagged::Offer(offer) => offer.take().then_some(Source::Offer(offer)),
    }
}

fn fetch(posted: Posted, peer: Peer, tag: u64, from: Source) -> Fetch {
    let Posted { token, into, .. } = posted;
    Fetch { token, peer, from, into, at: 0, tag: Some(tag) }
}
