//! Moving packets: what a pass of `progress` does.

use crate::{
    Shm,
    channel::{Arrival, Channel, NOBODY, RUNG, kind},
    hello::Note,
    ring::Incoming,
    segment::Segment,
    socket,
    state::Source,
    sync::{Ordering, fence},
};
use petasos_fabric::{
    Access, Event, Lease, LostReason, Time,
    two_sided::{self, Placement, header},
};
use rustix::{event::epoll, io::Errno};
use std::{mem::MaybeUninit, time::Duration};

/// Watched peers that are looked at in each pass; of the others, so many as well, in turns.
pub(crate) const FRONT: usize = 8;
/// Messages taken from one peer in one pass.
const PER_PEER: usize = 32;
/// Packets of the engine's sent to one peer in one pass.
const PACKETS: usize = 64;
/// Passes without a message, and with messages, after which descriptors are looked at.
const IDLE_PASSES: u32 = 256;
const BUSY_PASSES: u32 = 16_384;
/// The former while connections are being made.
const CONNECTING_PASSES: u32 = 16;
/// The longest time between two looks.
const LOOK: Duration = Duration::from_millis(1);
/// Watched peers beyond so many lose their watch when nothing has come for so long (nanoseconds).
const QUIET_WATCHED: usize = 64;
const QUIET: u64 = 200_000_000;

impl Shm {
    // In.

    /// Whether something has come from a peer: a cheap look, which may be mistaken for a moment.
    #[inline]
    pub(crate) fn has_come(&self, index: u32) -> bool {
        let channel = self.channels.get(index as usize).and_then(Option::as_deref);
        channel.is_some_and(|channel| !channel.pair.is_empty())
    }

    /// Takes what has come from the peers in front, if there are no others. Most passes end here,
    /// with nothing, and most others with messages from one peer.
    #[inline]
    pub(crate) fn receive_come(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        match self.watched.iter().rposition(|index| self.has_come(*index)) {
            None => false,
            Some(0) => self.receive(self.watched[0], room, events),
            Some(last) => self.receive_front(last + 1, room, events),
        }
    }

    /// The same in a pass after something was sent. Apart, so that the pass without is short.
    #[inline(never)]
    pub(crate) fn ring_and_receive(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        self.ring_all();
        self.receive_come(room, events)
    }

    /// Takes what has come from so many peers in front, the last of them first. True if there was
    /// something.
    #[inline(never)]
    pub(crate) fn receive_front(
        &mut self,
        count: usize,
        room: usize,
        events: &mut Vec<Event>,
    ) -> bool {
        let end = events.len().saturating_add(room);
        let mut worked = false;
        // Backwards, as a peer that is lost is gone from the list.
        for at in (0..count).rev() {
            let (index, room) = (self.watched[at], end.saturating_sub(events.len()));
            worked |= self.has_come(index) && self.receive(index, room, events);
        }
        worked
    }

    /// The same for some of those behind the front, in turns.
    pub(crate) fn receive_round(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let end = events.len().saturating_add(room);
        let mut worked = false;
        for _ in 0..self.watched.len().saturating_sub(FRONT).min(FRONT) {
            let rest = self.watched.len().saturating_sub(FRONT);
            if rest == 0 || events.len() >= end {
                break;
            }
            self.round = (self.round + 1) % rest;
            let at = FRONT + self.round;
            let (index, room) = (self.watched[at], end - events.len());
            if self.has_come(index) && self.receive(index, room, events) {
                worked = true;
                if at < self.watched.len() {
                    // It is active: to the front, in the place of another each time.
                    self.watched.swap(at, self.round % FRONT);
                }
            }
        }
        worked
    }

    /// Takes from a peer from which something has come, as far as there is room in `events`. True if
    /// anything could be taken.
    #[inline(never)]
    pub(crate) fn receive(&mut self, index: u32, room: usize, events: &mut Vec<Event>) -> bool {
        let Shm { channels, counters, .. } = self;
        let Some(channel) = channels.get_mut(index as usize).and_then(Option::as_deref_mut) else {
            return false;
        };
        channel.touched = self.now;
        self.due = (self.passes + self.patience).min(BUSY_PASSES);
        let before = events.len();
        let end = before + room.min(PER_PEER);
        while events.len() < end {
            let seen = channel.pair.consumer.look(kind::MESSAGE);
            let Some(len) = seen.short() else {
                let others = seen.is_there() && self.receive_others(index, end, events);
                return others || events.len() > before;
            };
            push_with(events, || {
                let message = Lease::inline_words(channel.pair.consumer.words(), len);
                Event::Message { peer: channel.handle, message }
            });
            counters.received += 1;
            if channel.pair.finish_short() {
                counters.wake_ups += 1;
                channel.ring();
            }
        }
        room > 0
    }

    /// Takes what is no short message, and what follows. False if nothing could be taken.
    #[cold]
    #[inline(never)]
    fn receive_others(&mut self, index: u32, end: usize, events: &mut Vec<Event>) -> bool {
        for taken in 0..PER_PEER {
            match self.receive_any(index, events) {
                Ok(false) => return taken > 0,
                // What the engine has to say came before what follows.
                Ok(true) if self.hear_engine(end, events) && events.len() < end => {}
                Ok(true) => return true,
                Err(what) => {
                    self.violated(index, what);
                    return true;
                }
            }
        }
        true
    }

    /// Takes the engine's events. False if there was no room for all of them.
    fn hear_engine(&mut self, end: usize, events: &mut Vec<Event>) -> bool {
        self.engine.take_events(end.saturating_sub(events.len()), events);
        !self.engine.has_events()
    }

    /// Takes whatever comes next. False if there is nothing, or if it has to wait.
    fn receive_any(&mut self, index: u32, events: &mut Vec<Event>) -> Result<bool, String> {
        let Shm { channels, pool, config, .. } = self;
        let Some(Some(channel)) = channels.get_mut(index as usize) else { return Ok(false) };
        let peeked = channel.pair.peek().map_err(|broken| broken.to_string())?;
        let Some(incoming) = peeked else { return Ok(false) };
        let taken = if incoming.kind == kind::MESSAGE {
            if incoming.len > config.max_message {
                return Err(format!("a message of {} bytes", incoming.len));
            }
            let consumer = &channel.pair.consumer;
            let lease = pool.lend(incoming.len, |room| consumer.read(&incoming, 0, room));
            let taken = lease.is_some();
            let peer = channel.handle;
            events.extend(lease.map(|message| Event::Message { peer, message }));
            taken
        } else {
            self.receive_other(index, &incoming, events)?
        };
        let Some(channel) = self.channel(index) else { return Ok(false) };
        channel.held = !taken;
        if taken {
            let starving = channel.pair.finish(incoming);
            if starving {
                channel.ring();
            }
            self.counters.received += 1;
            self.counters.wake_ups += u64::from(starving);
        }
        Ok(taken)
    }

    /// Takes in anything but a plain message. False if it has to wait.
    fn receive_other(
        &mut self,
        index: u32,
        incoming: &Incoming,
        events: &mut Vec<Event>,
    ) -> Result<bool, String> {
        let Shm { channels, engine, .. } = self;
        let Some(channel) = channels.get_mut(index as usize).and_then(Option::as_deref_mut) else {
            return Ok(false);
        };
        let consumer = &channel.pair.consumer;
        let mut bytes = [0; header::MAX];
        if incoming.kind == kind::PACKET {
            // Copied once, and only the copy is looked at.
            let most = incoming.len.min(bytes.len());
            consumer.read(incoming, 0, &mut bytes[..most]);
            let prefix = bytes.first_chunk().filter(|_| most >= header::PREFIX);
            let prefix = prefix.ok_or("a packet without a header")?;
            let frame = header::frame(*prefix).map_err(|violation| violation.to_string())?;
            if frame.header + frame.payload != incoming.len {
                return Err(format!("a packet of {} bytes that says otherwise", incoming.len));
            }
            let head = &bytes[..frame.header];
            let peer = channel.handle;
            let said = |violation: two_sided::Violation| violation.to_string();
            let mut placement = engine.accept(peer, head).map_err(said)?;
            match &mut placement {
                Placement::Busy => return Ok(false),
                Placement::Discard => {}
                Placement::Buffer(buffer) => consumer.read(incoming, frame.header, buffer),
                Placement::Memory(pieces) => {
                    let mut at = frame.header;
                    for piece in pieces {
                        // SAFETY: memory that the engine places data in is writable, lives as long
                        // as the slice, and lies in no ring.
                        unsafe { consumer.read_raw(incoming, at, piece.as_ptr(), piece.len()) };
                        at += piece.len();
                    }
                }
            }
            engine.landed(peer, placement).map_err(said)?;
            return Ok(true);
        }
        if incoming.len > bytes.len() {
            return Err(format!("a packet of kind {} with {} bytes", incoming.kind, incoming.len));
        }
        let bytes = &mut bytes[..incoming.len];
        consumer.read(incoming, 0, bytes);
        match incoming.kind {
            kind::EVENT => {
                let arrival = Arrival::decode(bytes).ok_or("an event of a bad length")?;
                let peer = channel.handle;
                if let Some(region) = self.arrived(&arrival) {
                    let Arrival { offset, len, data, .. } = arrival;
                    events.push(Event::PutArrived { peer, region, offset, len, data });
                }
            }
            kind::WANT => {
                let wanted = crate::channel::numbers::<5>(bytes).ok_or("a wish of a bad length")?;
                self.give_segment(index, wanted);
            }
            kind::GONE => {
                let [id] = crate::channel::numbers(bytes).ok_or("a number of a bad length")?;
                channel.mapped.retain(|mapped| mapped.id != id);
            }
            kind => return Err(format!("a packet of the unknown kind {kind}")),
        }
        Ok(true)
    }

    /// The region in which a put has landed, if it could.
    fn arrived(&self, arrival: &Arrival) -> Option<petasos_fabric::RegionId> {
        let slot = usize::try_from(arrival.slot).ok()?;
        let (region, tag) = self.exposed.get(slot).copied().flatten()?;
        let (memory, access) = self.engine.region(region)?;
        let end = arrival.offset.checked_add(arrival.len)?;
        let right = tag == arrival.tag && access.allows(Access::WRITE);
        (right && end <= memory.len() as u64).then_some(region)
    }

    /// Answers a wish for the descriptor of a segment: of a region whose key the peer has.
    fn give_segment(&mut self, index: u32, [slot, id, first, second, writable]: [u64; 5]) {
        let writable = writable != 0;
        let found = usize::try_from(slot).ok().and_then(|slot| self.exposed.get(slot).copied()?);
        let region = found.map(|(region, _)| region).filter(|region| {
            let parts = self.engine.key_parts(*region).ok();
            let route = parts.as_ref().and_then(|p| p.route(petasos_fabric::Key::ROUTE_TWO_SIDED));
            route.is_some_and(|route| crate::channel::numbers::<2>(route) == Some([first, second]))
        });
        let memory = region.and_then(|region| self.engine.region(region));
        let segment = memory.and_then(|(memory, access)| {
            let changes = access.allows(Access::WRITE) || access.allows(Access::ATOMIC);
            let segment = memory.region().backing::<Segment>().filter(|s| s.id == id)?;
            (changes || !writable).then(|| (segment.descriptor(writable), segment.alive()))
        });
        let Some(channel) = self.channels.get_mut(index as usize).and_then(Option::as_deref_mut)
        else {
            return;
        };
        let note = |given| Note::Segment { id, given, writable }.encode();
        if let Some((Ok(fd), alive)) = segment {
            use rustix::fd::AsFd;
            if socket::send(&channel.socket, &note(true), &[fd.as_fd()]).is_ok() {
                channel.given.retain(|(given, _)| *given != id);
                channel.given.push((id, alive));
                return;
            }
        }
        let _ = socket::send(&channel.socket, &note(false), &[]);
    }

    /// Moves on with those who are over: what they sent, and then their end.
    pub(crate) fn end_all(&mut self, room: usize, events: &mut Vec<Event>) -> bool {
        let end = events.len().saturating_add(room);
        let mut worked = false;
        for index in self.endings.clone() {
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

    // Out.

    /// Sends what the engine has, to each peer in turn.
    pub(crate) fn transmit_all(&mut self) -> bool {
        let mut worked = false;
        while let Some(peer) = self.engine.next_output() {
            match self.channel(peer.index) {
                Some(channel) => {
                    channel.served = true;
                    self.serving.push_back(peer.index);
                }
                // Up without a channel: only in the moment in which it is lost.
                None => while self.engine.poll_transmit(peer).is_some() {},
            }
        }
        for _ in 0..self.serving.len() {
            let Some(index) = self.serving.pop_front() else { break };
            worked |= self.transmit(index);
        }
        worked
    }

    /// Sends to one peer as much as there is room for.
    fn transmit(&mut self, index: u32) -> bool {
        let mut sent = 0;
        while sent < PACKETS {
            let Shm { channels, engine, .. } = self;
            let Some(channel) = channels.get_mut(index as usize).and_then(Option::as_deref_mut)
            else {
                return sent > 0;
            };
            let peer = channel.handle;
            let Some(packet) = channel.stuck.take().or_else(|| engine.poll_transmit(peer)) else {
                channel.served = false;
                return sent > 0;
            };
            match channel.write(&packet) {
                Ok(true) => {
                    engine.sent(peer);
                    sent += 1;
                    self.counters.sent += 1;
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
        self.serving.push_back(index);
        sent > 0
    }

    /// Something was published: the peer is rung if it plainly sleeps, and else looked at again
    /// after a fence, once for all that this pass publishes.
    #[inline]
    pub(crate) fn published(&mut self, index: u32) {
        let Shm { channels, unrung, counters, .. } = self;
        if let Some(channel) = channels.get_mut(index as usize).and_then(Option::as_deref_mut)
            && channel.published(index, unrung)
        {
            counters.wake_ups += 1;
        }
    }

    /// Rings for those who fell asleep while something was published.
    #[inline]
    pub(crate) fn ring_all(&mut self) {
        if self.unrung == NOBODY {
            return;
        }
        fence(Ordering::SeqCst);
        let Shm { channels, unrung, .. } = self;
        let mut next = std::mem::replace(unrung, NOBODY);
        while let Some(channel) = channels.get_mut(next as usize).and_then(Option::as_deref_mut) {
            next = std::mem::replace(&mut channel.unrung, RUNG);
            if channel.pair.take_sleeper() {
                channel.ring();
                self.counters.wake_ups += 1;
            }
        }
    }

    // Descriptors and time.

    /// Whether it is time to look at the descriptors.
    #[inline]
    pub(crate) fn attention_due(&self) -> bool {
        self.passes >= self.due || self.now >= self.attend_at
    }

    /// Somebody is being connected to: looks at the descriptors now, and often.
    pub(crate) fn attend_soon(&mut self) {
        (self.due, self.patience) = (0, CONNECTING_PASSES);
    }

    /// Looks at the descriptors, and at what time has brought. True if there was something.
    pub(crate) fn attend(&mut self) -> bool {
        let now = self.now;
        let later = now >= self.attend_at;
        if later {
            self.attend_at = now.after(LOOK);
        }
        let mut worked = self.look(now);
        if self.arrivals.more {
            worked |= self.accept(now);
        }
        if !self.attempts.is_empty() {
            worked |= self.attempt_all(now);
        }
        if later {
            if !self.arrivals.is_empty() {
                self.cut_arrivals(now);
            }
            self.stop_watching_quiet(now);
            self.tell_gone();
        }
        let connecting = !self.attempts.is_empty() || !self.arrivals.is_empty();
        self.patience = if connecting { CONNECTING_PASSES } else { IDLE_PASSES };
        (self.passes, self.due) = (0, self.patience);
        worked
    }

    fn look(&mut self, now: Time) -> bool {
        let mut space = [MaybeUninit::<epoll::Event>::uninit(); 64];
        let none = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let Ok((seen, _)) = epoll::wait(&self.epoll, &mut space, Some(&none)) else {
            return false;
        };
        let worked = !seen.is_empty();
        for event in seen {
            let flags = event.flags;
            let Some((source, index, generation)) = Source::of(event.data.u64()) else { continue };
            let current = |this: &mut Shm| {
                let handle = this.channel(index).map(|channel| channel.handle.generation);
                handle.is_some_and(|handle| Source::same_generation(generation, handle))
            };
            match source {
                Source::Listener => self.arrivals.more = true,
                Source::Notifier => {}
                Source::Arrival => self.greeted(index, generation),
                Source::Attempt => self.answered(index, generation, now),
                Source::Bell if current(self) => self.start_watching(index),
                Source::Socket if current(self) => {
                    self.heard(index);
                    let gone = epoll::EventFlags::HUP | epoll::EventFlags::RDHUP;
                    if flags.intersects(gone | epoll::EventFlags::ERR) {
                        self.hang_up_now(index);
                    }
                }
                Source::Bell | Source::Socket => {}
            }
        }
        worked
    }

    /// The other end of the socket was closed.
    fn hang_up_now(&mut self, index: u32) {
        if let Some(channel) = self.channels.get(index as usize).and_then(Option::as_deref) {
            // Else it would be reported again and again.
            let _ = epoll::delete(&self.epoll, &channel.socket);
            self.hang_up(index, LostReason::Closed);
        }
    }

    /// Reads notes from the socket of a peer.
    fn heard(&mut self, index: u32) {
        for _ in 0..64 {
            let most = self.config.max_mapped;
            let Some(channel) = self.channel(index) else { return };
            let (bytes, fds) = match socket::receive(&channel.socket) {
                Ok((bytes, _)) if bytes.is_empty() => return self.hang_up_now(index),
                Ok(received) => received,
                Err(Errno::AGAIN | Errno::INTR) => return,
                Err(_) => return self.hang_up_now(index),
            };
            match Note::decode(&bytes) {
                Ok(Note::Bell) => self.start_watching(index),
                Ok(Note::Segment { id, given, writable }) => {
                    channel.take_segment(
                        id,
                        writable,
                        fds.into_iter().next().filter(|_| given),
                        most,
                    );
                }
                Ok(_) => return self.violated(index, "a greeting out of place".to_owned()),
                Err(garbled) => return self.violated(index, garbled.to_string()),
            }
        }
    }

    // Who is watched.

    /// Looks at this peer's ring from now on, without being rung for.
    pub(crate) fn start_watching(&mut self, index: u32) {
        if self.watched.len() >= self.config.max_watched {
            // The one whose turn came last is the least likely to be active.
            let rest = self.watched.len().saturating_sub(FRONT).max(1);
            let at = (self.watched.len() - 1).min(FRONT + self.round % rest);
            let other = self.watched[at];
            self.stop_watching(other);
        }
        let Some(channel) = self.channel(index) else { return };
        channel.pair.set_asleep(false);
        if !channel.watched {
            channel.watched = true;
            self.watched.push(index);
            // In front, and who was there goes to the end.
            let last = self.watched.len() - 1;
            if last >= FRONT {
                self.round = (self.round + 1) % FRONT;
                self.watched.swap(last, self.round);
            }
        }
    }

    /// From now on this peer has to ring.
    fn stop_watching(&mut self, index: u32) {
        self.watched.retain(|i| *i != index);
        let Some(channel) = self.channel(index) else { return };
        channel.watched = false;
        channel.pair.set_asleep(true);
        fence(Ordering::SeqCst);
        if channel.pair.peek() != Ok(None) {
            channel.bell_self();
        }
    }

    fn stop_watching_quiet(&mut self, now: Time) {
        if self.watched.len() <= QUIET_WATCHED {
            return;
        }
        let quiet = |channel: &Channel| now.0.saturating_sub(channel.touched.0) > QUIET;
        let candidates: Vec<u32> = self.watched[FRONT..].to_vec();
        for index in candidates {
            if self.watched.len() > QUIET_WATCHED && self.channel(index).is_some_and(|c| quiet(c)) {
                self.stop_watching(index);
            }
        }
    }

    /// Tells peers of segments that they may have mapped and that nobody here uses any more.
    pub(crate) fn tell_gone(&mut self) {
        for index in 0..self.channels.len() {
            let Some(channel) = self.channels[index].as_deref_mut() else { continue };
            let mut told = false;
            while let Some(at) =
                channel.given.iter().position(|(_, alive)| alive.strong_count() == 0)
            {
                let id = channel.given[at].0;
                if !matches!(channel.post(kind::GONE, &id.to_le_bytes()), Ok(true)) {
                    break;
                }
                channel.given.swap_remove(at);
                told = true;
            }
            if told {
                self.published(index as u32);
            }
        }
    }

    /// Whether all leases are out: then what has come cannot be taken.
    pub(crate) fn is_exhausted(&self) -> bool {
        !self.pool.has_room()
    }
}

/// Pushes what is made in its place: an event that is made before there is room for it would be
/// moved there.
#[inline]
fn push_with(events: &mut Vec<Event>, make: impl FnOnce() -> Event) {
    let len = events.len();
    if len == events.capacity() {
        events.reserve(1);
    }
    events.spare_capacity_mut()[0].write(make());
    // SAFETY: the element behind the last was written just now, within the capacity.
    unsafe { events.set_len(len + 1) }
}

impl Channel {
    /// Makes this endpoint's own bell ring for this peer, so that it is watched again.
    fn bell_self(&self) {
        let _ = rustix::io::write(&self.bell_in, &1u64.to_ne_bytes());
    }

    /// The answer to a wish for a segment.
    fn take_segment(
        &mut self,
        id: u64,
        writable: bool,
        fd: Option<rustix::fd::OwnedFd>,
        most: usize,
    ) {
        let wish = |want: &crate::channel::Want| want.id == id && want.writable == writable;
        let Some(at) = self.wanted.iter().position(|want| wish(want) && !want.refused) else {
            return;
        };
        let len = self.wanted[at].len;
        match fd.map(|fd| crate::segment::adopt(&fd, len, writable)) {
            Some(Ok(region)) => {
                self.wanted.swap_remove(at);
                self.keep(id, region, most);
            }
            _ => self.wanted[at].refused = true,
        }
    }
}
