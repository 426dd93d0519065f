//! A connection on which packets flow: reading them, and writing what waits.

use crate::{
    Counters,
    closing::{Closing, Note},
    io::Scatter,
    outbox::Outbox,
    quota::Permit,
    sealed::Sealed,
};
use petasos_fabric::{
    Event, Peer,
    two_sided::{
        Engine, Placement, Violation,
        header::{self, PREFIX},
    },
};
use petasos_noise::Channel;
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

/// The receive buffer: many small packets come with one system call. It begins short, as most peers
/// send little, and gets its full length once more came at a time.
const FIRST_BUFFER: usize = 4 * 1024;
const BUFFER: usize = 64 * 1024;
/// Bytes read from one connection in one pass, so that others have their turn.
const FAIR: usize = 256 << 10;

/// A connection to a peer whose handshake is over.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) socket: OwnedFd,
    pub(crate) outbox: Outbox,
    /// Whether the last attempt to send found the socket full.
    pub(crate) blocked: bool,
    /// Whether sending failed: the end of the stream must come.
    pub(crate) dead: bool,
    /// Whether anything has come.
    pub(crate) heard: bool,
    /// Passes since something came.
    pub(crate) quiet: u32,
    /// Whether it waits for its turn to be read on.
    pub(crate) unread: bool,
    /// Whether it is being closed as idle.
    pub(crate) closing: Closing,
    /// Bytes in both directions, without those about closing, to see whether there are any.
    pub(crate) traffic: u64,
    /// A note about closing that was read, and is to be handled.
    note: Option<Note>,
    /// Counts it, where the other side has made it.
    pub(crate) permit: Option<Permit>,
    /// How packets are encrypted, if they are.
    sealed: Option<Box<Sealed>>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    payload: Option<Payload>,
}

/// A payload that is partly here.
#[derive(Debug)]
struct Payload {
    placement: Placement,
    len: usize,
    at: usize,
}

/// What came of reading.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read {
    /// Nothing more is there now.
    Empty,
    /// There may be more.
    More,
    /// Something about closing: read on.
    Note(Note),
    /// The stream has ended.
    End,
}

/// Why a connection cannot go on.
#[derive(Debug)]
pub(crate) enum Broken {
    Io(io::Error),
    /// A record that the peer did not send, or not now.
    NotAuthentic,
    Violation(Violation),
}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        Broken::Io(error)
    }
}

impl From<Violation> for Broken {
    fn from(violation: Violation) -> Broken {
        Broken::Violation(violation)
    }
}

impl Connection {
    pub(crate) fn new(socket: OwnedFd, channel: Option<Channel>) -> Connection {
        Connection {
            socket,
            outbox: Outbox::default(),
            blocked: false,
            dead: false,
            heard: false,
            quiet: 0,
            unread: false,
            closing: Closing::No,
            traffic: 0,
            note: None,
            permit: None,
            // Room for what is decrypted at a time.
            buffer: vec![0; if channel.is_some() { BUFFER } else { FIRST_BUFFER }],
            sealed: channel.map(|channel| Box::new(Sealed::new(channel))),
            start: 0,
            end: 0,
            payload: None,
        }
    }

    /// Whether nothing is under way on it.
    pub(crate) fn is_still(&self) -> bool {
        let waits = self.blocked || self.dead || self.unread;
        let within = self.payload.is_some() || self.start < self.end || self.has_unsent();
        let within = within || self.sealed.as_ref().is_some_and(|sealed| sealed.has_come());
        self.closing == Closing::No && !waits && !within
    }

    /// Whether something waits to be sent.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.outbox.is_empty() || self.sealed.as_ref().is_some_and(|sealed| sealed.has_unsent())
    }

    /// Whether the end of the stream can be what the peer meant, though it did not say so.
    pub(crate) fn may_end(&self) -> bool {
        match self.closing {
            // A process in between can end a connection, but cannot say that the peer has agreed.
            Closing::Asked => self.sealed.is_none(),
            Closing::Agreed => true,
            Closing::No | Closing::Doubted => false,
        }
    }

    /// Reads and takes what is there, until `budget` events wait.
    pub(crate) fn read(
        &mut self,
        peer: Peer,
        engine: &mut Engine,
        counters: &mut Counters,
        budget: usize,
        events: &mut Vec<Event>,
    ) -> Result<Read, Broken> {
        let mut fair = FAIR;
        loop {
            self.take(peer, engine, budget, events)?;
            if let Some(note) = self.note.take() {
                return Ok(Read::Note(note));
            }
            if events.len() >= budget || fair == 0 {
                return Ok(Read::More);
            }
            let wanted = self.room();
            if wanted == 0 {
                // The buffer is full of messages before which the engine has something to do. To
                // receive no bytes would look like the end of the stream.
                return Ok(Read::More);
            }
            counters.receives += 1;
            let received = match self.sealed.is_some() {
                true => self.receive_sealed()?,
                false => self.receive(),
            };
            match received {
                Ok(0) => return Ok(Read::End),
                Ok(got) => {
                    counters.bytes_in += got as u64;
                    self.traffic = self.traffic.wrapping_add(got as u64);
                    (self.quiet, self.heard) = (0, true);
                    fair = fair.saturating_sub(got);
                    if got < wanted && !self.sealed.as_ref().is_some_and(|s| s.has_whole()) {
                        // All that was there has come; what follows is for the next pass. Of this,
                        // some may be left in the buffer, of which the poller knows nothing.
                        self.take(peer, engine, budget, events)?;
                        let more = self.note.is_some() || events.len() >= budget;
                        return Ok(if more { Read::More } else { Read::Empty });
                    }
                    if self.buffer.len() < BUFFER {
                        self.buffer.resize(BUFFER, 0);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Read::Empty),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the memory of closed regions out of the packets that are under way: what still comes
    /// is discarded, and what still has to be sent becomes a copy.
    pub(crate) fn release_closed(&mut self, peer: Peer, engine: &mut Engine) {
        if let Some(payload) = &mut self.payload {
            engine.divert(peer, &mut payload.placement);
        }
        self.outbox.release_closed(peer, engine);
    }

    /// How many bytes `receive` asks for.
    fn room(&self) -> usize {
        let payload = self.payload.as_ref().map_or(0, |payload| payload.len - payload.at);
        payload + self.buffer.len() - self.end
    }

    /// Receives into the payload that is due, and what follows it into the buffer.
    fn receive(&mut self) -> io::Result<usize> {
        let mut scatter = Scatter::default();
        let mut due = 0;
        if let Some(payload) = &mut self.payload {
            due = payload.len - payload.at;
            match &mut payload.placement {
                Placement::Buffer(buffer) => scatter.buffer(&mut buffer[payload.at..]),
                Placement::Memory(pieces) => {
                    let mut skip = payload.at;
                    for piece in &*pieces {
                        let here = skip.min(piece.len());
                        scatter.memory(piece, here);
                        skip -= here;
                    }
                }
                // Discarded: through the buffer.
                Placement::Discard => {
                    let len = due.min(self.buffer.len());
                    scatter.buffer(&mut self.buffer[..len]);
                    let got = scatter.receive(self.socket.as_fd())?;
                    payload.at += got;
                    return Ok(got);
                }
            }
        }
        if due == 0 || scatter.has_room() {
            scatter.buffer(&mut self.buffer[self.end..]);
        }
        let got = scatter.receive(self.socket.as_fd())?;
        let placed = got.min(due);
        if let Some(payload) = &mut self.payload {
            payload.at += placed;
        }
        self.end += got - placed;
        Ok(got)
    }

    /// Receives what is encrypted, and puts what it says into the buffer.
    fn receive_sealed(&mut self) -> Result<io::Result<usize>, Broken> {
        let Some(sealed) = &mut self.sealed else { return Ok(Ok(0)) };
        let got = sealed.receive(self.socket.as_fd(), &mut self.buffer[self.end..]);
        if let Ok(Ok(got)) = &got {
            self.end += got;
        }
        got.map_err(|_| Broken::NotAuthentic)
    }

    /// Takes the packets in the buffer.
    fn take(
        &mut self,
        peer: Peer,
        engine: &mut Engine,
        budget: usize,
        events: &mut Vec<Event>,
    ) -> Result<(), Broken> {
        loop {
            if let Some(payload) = &mut self.payload {
                let here = (payload.len - payload.at).min(self.end - self.start);
                let bytes = &self.buffer[self.start..self.start + here];
                payload.placement.write(payload.at, bytes);
                payload.at += here;
                self.start += here;
                if payload.at < payload.len {
                    self.compact();
                    return Ok(());
                }
                if let Some(payload) = self.payload.take() {
                    engine.landed(peer, payload.placement)?;
                }
            }
            let rest = &self.buffer[self.start..self.end];
            let Some(prefix) = rest.first_chunk::<PREFIX>() else {
                self.compact();
                return Ok(());
            };
            if events.len() >= budget {
                return Ok(());
            }
            if let Some(len) = header::message_len(*prefix)
                && let Some(message) = rest[PREFIX..].get(..len as usize)
                && message.len() <= engine.config().limits.max_message
            {
                // A plain message that is here whole: what the engine has comes first.
                if engine.has_events() {
                    engine.take_events(budget.saturating_sub(events.len()), events);
                    if engine.has_events() {
                        return Ok(());
                    }
                }
                let message = engine.lend(peer, message.len(), |to| to.copy_from_slice(message))?;
                self.start += PREFIX + message.len();
                events.push(Event::Message { peer, message });
                continue;
            }
            if let Some(note) = Note::decode(*prefix) {
                self.start += PREFIX;
                self.traffic = self.traffic.wrapping_sub(PREFIX as u64);
                self.note = Some(note);
                return Ok(());
            }
            let frame = header::frame(*prefix)?;
            let Some(header) = rest.get(..frame.header) else {
                self.compact();
                return Ok(());
            };
            let placement = engine.accept(peer, header)?;
            self.start += frame.header;
            self.payload = Some(Payload { placement, len: frame.payload, at: 0 });
        }
    }

    /// Moves the rest to the front of the buffer.
    fn compact(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// Sends what waits, and what the engine has, as long as the socket takes it.
    pub(crate) fn write(
        &mut self,
        peer: Peer,
        engine: &mut Engine,
        counters: &mut Counters,
    ) -> io::Result<()> {
        loop {
            while self.closing == Closing::No
                && self.outbox.has_room()
                && let Some(packet) = engine.poll_transmit(peer)
            {
                self.outbox.packet(packet);
            }
            if !self.has_unsent() {
                self.blocked = false;
                return Ok(());
            }
            counters.sends += 1;
            let (sent, packets) = match &mut self.sealed {
                Some(sealed) => sealed.send(&mut self.outbox, self.socket.as_fd())?,
                None => self.outbox.send(self.socket.as_fd())?,
            };
            counters.bytes_out += sent as u64;
            self.traffic = self.traffic.wrapping_add(sent as u64);
            (0..packets).for_each(|_| engine.sent(peer));
            if sent == 0 {
                self.blocked = true;
                return Ok(());
            }
        }
    }
}
