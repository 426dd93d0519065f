//! Messages that wait for room in the peer's inbox.

use crate::{
    allotment::Allotment,
    hub::{Content, Hub, Refused, Tagged},
    offer::Offer,
};
use bytes::Bytes;
use petasos_fabric::{Level, Payload, Slice, Token};
use std::sync::Arc;

/// A message on its way into the other inbox.
pub(crate) enum Outgoing {
    Send { token: Token, payload: Payload },
    Long { token: Token, header: Bytes, body: Slice },
    Tagged { token: Token, tag: u64, payload: Payload, level: Level },
}

impl Outgoing {
    pub(crate) fn token(&self) -> Token {
        match *self {
            Outgoing::Send { token, .. }
            | Outgoing::Long { token, .. }
            | Outgoing::Tagged { token, .. } => token,
        }
    }

    /// Whether it is an expected one.
    pub(crate) fn is_tagged(&self) -> bool {
        matches!(self, Outgoing::Tagged { .. })
    }

    /// Puts the message into the peer's inbox, if there is room. Returns the data that stays with
    /// the sender, which has this `id`; `None` if there is none. Expected messages of up to
    /// `eager_len` bytes are copied.
    pub(crate) fn send(
        &self,
        hub: &Hub,
        link: u64,
        may: &Arc<Allotment>,
        id: u64,
        eager_len: usize,
    ) -> Result<Option<Arc<Offer>>, Refused> {
        let mut offered = None;
        match self {
            Outgoing::Send { payload, .. } => hub.offer(link, || {
                let lease = may.lend(payload.len(), |room| match payload {
                    Payload::Bytes(bytes) => room.copy_from_slice(bytes),
                    Payload::Memory(slice) => slice.read(0, room),
                });
                lease.map(Content::Message)
            }),
            Outgoing::Long { header, body, .. } => hub.offer(link, || {
                let body = Arc::new(Offer::new(id, Payload::Memory(body.clone())));
                let lease = may.lend(header.len(), |room| room.copy_from_slice(header));
                offered = Some(Arc::clone(&body));
                lease.map(|header| Content::Long { header, offer: body })
            }),
            Outgoing::Tagged { tag, payload, level, .. } => {
                let small = payload.len() <= eager_len && *level < Level::Visible;
                let whole = if small { may.take_whole(payload.len()) } else { None };
                let (data, charge) = match whole.filter(|_| hub.eager.take(0)) {
                    Some(charge) => {
                        let bytes = match payload {
                            Payload::Bytes(bytes) => bytes.clone(),
                            Payload::Memory(slice) => slice.to_vec().into(),
                        };
                        (Tagged::Eager(bytes), charge)
                    }
                    None => {
                        let charge = may.take_header().ok_or(Refused::Full)?;
                        let payload = Arc::new(Offer::new(id, payload.clone()));
                        offered = Some(Arc::clone(&payload));
                        (Tagged::Offer(payload), charge)
                    }
                };
                hub.push(link, Content::Tagged { tag: *tag, data, charge })
            }
        }?;
        Ok(offered)
    }
}
