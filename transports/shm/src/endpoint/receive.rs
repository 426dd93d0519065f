//! What comes in: from which of the peers that are watched, and plain messages out of their rings.

use crate::{
    Shm,
    assembly::Assembly,
    channel::kind,
    watchlist::{FRONT, PER_PEER},
};
use petasos_fabric::{
    Event, Lease, Peer,
    two_sided::{ExpectedBuffer, header::EXPECTED},
};

/// A long message counts as one for each so many bytes: a peer that sends long ones does not keep
/// out others for longer than one that sends short ones.
const AS_ONE: usize = 4 << 10;

/// What comes next from a peer, and is no short plain message.
enum Next {
    /// An expected message, which was taken.
    Taken,
    Nothing,
    Other,
}

/// The room that each of so many peers gets in a pass: some for each, if there is that much.
fn share(room: usize, peers: usize) -> usize {
    (room / peers.max(1)).clamp(1, PER_PEER)
}

impl Shm {
    /// Whether something has come from a peer: a cheap test, which may be mistaken for a moment.
    #[inline]
    pub(super) fn has_come(&self, index: u32) -> bool {
        self.channels.get(index).is_some_and(|channel| !channel.pair.is_empty())
    }

    /// The same, for parts of a message as well.
    fn is_there(&self, index: u32) -> bool {
        let channel = self.channels.get(index);
        channel.is_some_and(|channel| !channel.pair.is_empty() || channel.pair.is_within())
    }

    /// Takes what has come from the peers in front, if there are no others. Most passes end here,
    /// with nothing, and most others with messages from one peer.
    #[inline]
    pub(super) fn receive_come(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let sent = |index: &u32| self.has_come(*index);
        match self.watched.iter().enumerate().rfind(|(_, index)| sent(index)) {
            None => false,
            Some((0, &first)) => self.receive(first, room, events),
            Some((last, _)) => self.receive_front(last + 1, room, events),
        }
    }

    /// The same in a pass after something was sent. Apart, so that the pass without is short.
    #[inline(never)]
    pub(super) fn ring_and_receive(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        self.ring_pending();
        self.receive_come(room, events)
    }

    /// Takes what has come from so many peers in front, the last of them first. True if there was
    /// something.
    #[inline(never)]
    pub(super) fn receive_front(
        &mut self,
        count: usize,
        room: usize,
        events: &mut Vec<Event>,
    ) -> bool {
        let end = events.len().saturating_add(room);
        let mut worked = false;
        let front = self.watched.iter().take(count);
        let busy = front.filter(|index| self.has_come(**index)).count();
        let share = share(room, busy);
        // Where there is not room for all, another one is the first each time.
        let turn = if room < busy { self.schedule.passes() } else { 0 };
        // Backwards, as a peer that is lost is gone from the list; another one seldom, with it.
        for at in (0..count).rev() {
            let Some(index) = self.watched.get((at + turn) % count) else { continue };
            let room = end.saturating_sub(events.len()).min(share);
            worked |= self.has_come(index) && self.receive(index, room, events);
        }
        worked
    }

    /// The same for some of the peers behind the front, in turns.
    pub(super) fn receive_round(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let end = events.len().saturating_add(room);
        let mut worked = false;
        let polls = self.watched.behind_front().len().min(FRONT);
        let share = share(room, polls);
        for _ in 0..polls {
            if events.len() >= end {
                break;
            }
            let Some((at, index)) = self.watched.next_behind_front() else { break };
            let room = (end - events.len()).min(share);
            if self.has_come(index) && self.receive(index, room, events) {
                worked = true;
                self.watched.promote(at);
            }
        }
        worked
    }

    /// Goes on with the peers that have sent a long message in part.
    pub(super) fn receive_parts(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let end = events.len().saturating_add(room);
        let mut worked = false;
        for index in self.channels.take_partial() {
            worked |= self.receive(index, end.saturating_sub(events.len()), events);
            if self.channel(index).is_some_and(|channel| channel.pair.is_within())
                && !self.channels.partial().contains(&index)
            {
                self.channels.add_partial(index);
            }
        }
        worked
    }

    /// Takes a message from one of the peers in front.
    #[inline(never)]
    pub(super) fn receive_one(&mut self, message: &mut Lease) -> Option<Peer> {
        self.watched.begin_turn();
        for _ in 0..self.watched.front_len() {
            let index = self.watched.turn()?;
            if self.has_come(index)
                && let Some(from) = self.receive_message(index, message)
            {
                self.watched.took(weight(message));
                return Some(from);
            }
            self.watched.next_turn();
        }
        None
    }

    /// Takes what has come from the peers in front, and from some of the others, which have half of
    /// the room.
    #[inline(never)]
    pub(super) fn receive_many(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let before = events.len();
        let half = match self.watched.len() > FRONT {
            true => (room + self.schedule.passes() % 2) / 2,
            false => room,
        };
        let front = self.receive_front(FRONT, half, events);
        self.receive_round(room.saturating_sub(events.len() - before), events) || front
    }

    /// Takes the next message of a peer, if it is there.
    #[inline]
    pub(super) fn receive_message(&mut self, index: u32, message: &mut Lease) -> Option<Peer> {
        match self.receive_short(index, message) {
            Some(&peer) => Some(peer),
            None => self.receive_longer(index, message),
        }
    }

    /// The same for a message that is not to be taken plainly.
    #[inline]
    pub(super) fn receive_further(&mut self, index: u32, message: &mut Lease) -> Option<Peer> {
        let channel = self.channels.get_mut(index)?;
        match channel.receive_two(message, self.now, &mut self.counters) {
            Some(&peer) => Some(peer),
            None => self.receive_longer(index, message),
        }
    }

    /// The same for one that is not short. Of one that comes in parts, those that are there are
    /// taken.
    #[inline(never)]
    fn receive_longer(&mut self, index: u32, message: &mut Lease) -> Option<Peer> {
        loop {
            let Shm { channels, engine, config, counters, .. } = self;
            let channel = channels.get_mut(index)?;
            let incoming = channel.pair.peek().ok()??;
            let (within, kind) = (channel.pair.is_within(), incoming.kind);
            let ring = channel.pair.lies_in();
            let mut whole = None;
            if within {
                let Some(Assembly::Message(buffer, at)) = &mut channel.assembly else {
                    return None;
                };
                ring.read(&incoming, 0, &mut buffer[*at..*at + incoming.len]);
                *at += incoming.len;
                if *at == buffer.len()
                    && let Some(Assembly::Message(buffer, _)) = channel.assembly.take()
                {
                    whole = Some(buffer.into_lease());
                }
            } else if kind == kind::SHORT {
                // A pad was in front of it.
                return self.receive_short(index, message).copied();
            } else if kind == kind::ASKING && incoming.len <= Lease::LINES && !incoming.announced {
                whole = Some(Lease::short(incoming.len, |room| ring.read(&incoming, 0, room)));
            } else if matches!(kind, kind::MESSAGE | kind::ASKING)
                && incoming.len <= config.max_message
            {
                let Ok(mut buffer) = engine.buffer(channel.handle, incoming.len) else {
                    channel.overdrawn = true;
                    return None;
                };
                if incoming.announced {
                    channel.assembly = Some(Assembly::Message(buffer, 0));
                } else {
                    ring.read(&incoming, 0, &mut buffer);
                    whole = Some(buffer.into_lease());
                }
            } else {
                return None;
            }
            let rings = match kind {
                kind::ASKING => channel.pair.finish_asking(incoming),
                _ => channel.pair.finish(incoming),
            };
            if rings {
                counters.wake_ups += 1;
                channel.ring();
            }
            if let Some(whole) = whole {
                *message = whole;
                channel.touched = self.now;
                self.counters.received += 1;
                return Some(channel.handle);
            }
            if incoming.announced {
                channels.add_partial(index);
            }
        }
    }

    /// Takes the next message of a peer, which has one cell and this length, if nothing else is to
    /// be done about it.
    #[inline(always)]
    pub(super) fn receive_plainly(
        &mut self,
        index: u32,
        len: usize,
        message: &mut Lease,
    ) -> Option<&Peer> {
        let channel = self.channels.get_mut(index)?;
        let taken = channel.receive_plainly(len, message, self.now);
        taken.then(|| {
            self.counters.received += 1;
            &channel.handle
        })
    }

    /// Takes the next message of a peer, if it is there, and short.
    #[inline(always)]
    fn receive_short(&mut self, index: u32, message: &mut Lease) -> Option<&Peer> {
        let channel = self.channels.get_mut(index)?;
        channel.receive_short(message, self.now, &mut self.counters)
    }

    /// Takes from a peer from which something has come, as far as there is room in `events`. True
    /// if anything could be taken.
    #[inline(never)]
    pub(super) fn receive(&mut self, index: u32, room: usize, events: &mut Vec<Event>) -> bool {
        self.schedule.put_off(self.counters.received);
        let before = events.len();
        let end = before + room.min(PER_PEER);
        let mut message = Lease::default();
        let mut weighed = 0;
        while events.len() < end && weighed < PER_PEER {
            let peer = match self.receive_short(index, &mut message) {
                Some(&peer) => Some(peer),
                None => match self.receive_expected(index, events) {
                    Next::Taken => {
                        weighed += 1;
                        if self.has_come(index) {
                            continue;
                        }
                        break;
                    }
                    Next::Nothing => break,
                    Next::Other => self.receive_longer(index, &mut message),
                },
            };
            let Some(peer) = peer else {
                // What expected messages have caused is to be sent and reported in this pass, too.
                let others = (self.is_there(index) || !self.engine.is_quiet())
                    && self.receive_and_answer(index, end, events);
                return others || weighed > 0;
            };
            weighed += weight(&message);
            events.push(Event::Message { peer, message: std::mem::take(&mut message) });
        }
        if weighed > 0 && !self.engine.is_quiet() {
            self.answer(end, events);
        }
        weighed > 0
    }

    /// Takes the next message of a peer if it is a short expected one for which a receive is
    /// posted.
    #[inline]
    fn receive_expected(&mut self, index: u32, events: &mut Vec<Event>) -> Next {
        let Shm { channels, engine, counters, now, .. } = self;
        let Some(channel) = channels.get_mut(index) else { return Next::Nothing };
        if channel.pair.is_within() {
            return Next::Other;
        }
        let incoming = match channel.pair.consumer.peek() {
            Ok(Some(incoming)) => incoming,
            Ok(None) => return Next::Nothing,
            Err(_) => return Next::Other,
        };
        if incoming.kind != kind::PACKET || incoming.announced || incoming.len < EXPECTED {
            return Next::Other;
        }
        let ring = &channel.pair.consumer;
        // Whatever else the packet is, it begins with as many bytes.
        let header = ring.first_bytes();
        let data = incoming.len - EXPECTED;
        let place = |place: ExpectedBuffer<'_>| match place {
            ExpectedBuffer::Buffer(buffer) => ring.read(&incoming, EXPECTED, buffer),
            ExpectedBuffer::Memory(memory) => {
                assert!(memory.is_writable() && memory.len() >= data, "receiving into it");
                // SAFETY: the memory is writable for as many bytes, as was checked just now, lives
                // as long as the slice, and lies in no ring.
                unsafe { ring.read_raw(&incoming, EXPECTED, memory.as_ptr(), data) }
            }
        };
        if !engine.take_expected(channel.handle, header, incoming.len, place, events) {
            return Next::Other;
        }
        channel.touched = *now;
        counters.received += 1;
        if channel.pair.finish(incoming) {
            counters.wake_ups += 1;
            channel.ring();
        }
        Next::Taken
    }

    /// Ends the peers that have hung up, once what they sent is taken.
    pub(super) fn end_all(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let end = events.len().saturating_add(room);
        let mut worked = false;
        for index in self.channels.ending().to_vec() {
            let room = end.saturating_sub(events.len());
            worked |= self.has_come(index) && self.receive(index, room, events);
            if let Some(channel) = self.channel(index)
                && channel.pair.peek() == Ok(None)
                && let Some(reason) = channel.ending.take()
            {
                self.lose(index, reason);
                worked = true;
            }
        }
        worked
    }
}

/// For how many messages an event counts.
pub(super) fn weight_of(event: &Event) -> usize {
    match event {
        Event::Message { message, .. } => weight(message),
        _ => 1,
    }
}

/// For how many messages one of this length counts.
#[inline]
fn weight(message: &[u8]) -> usize {
    1 + message.len() / AS_ONE
}
