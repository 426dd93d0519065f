//! A medium within this process, whose lines hold few packets.

use petasos_plugin::{ConnectError, Medium, Readiness, Received, Sent, Transport};
use std::{
    collections::{HashMap, VecDeque},
    os::fd::BorrowedFd,
    sync::{
        Arc, LazyLock, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

/// Packets that a line holds.
const ROOM: usize = 3;
/// The longest packet in bytes.
pub(crate) const PACKET: usize = 4096;

/// What is under way on a line.
#[derive(Default)]
struct Wire {
    packets: VecDeque<Vec<u8>>,
    /// By either side.
    ended: bool,
}

type Shared = Arc<Mutex<Wire>>;

/// Lines that were begun, by the address to which they go.
static LISTENERS: LazyLock<Mutex<HashMap<String, VecDeque<Shared>>>> =
    LazyLock::new(Mutex::default);

fn begin(address: &str) -> Option<Shared> {
    let wire = Shared::default();
    LISTENERS.lock().unwrap().get_mut(address)?.push_back(wire.clone());
    Some(wire)
}

/// A line to an address, for what is no endpoint.
pub(crate) struct Raw(Shared);

impl Raw {
    /// Begins it.
    pub(crate) fn to(address: &str) -> Raw {
        Raw(begin(address).expect("an endpoint listens there"))
    }

    /// Sends a packet, however many there are.
    pub(crate) fn send(&self, packet: &[u8]) {
        self.0.lock().unwrap().packets.push_back(packet.to_vec());
    }

    /// Whether the other side has ended it.
    pub(crate) fn is_ended(&self) -> bool {
        self.0.lock().unwrap().ended
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.0.lock().unwrap().ended = true;
    }
}

/// An endpoint.
pub(crate) struct Queues<const LONGEST: usize> {
    address: String,
    lines: Vec<Option<Line>>,
}

struct Line {
    wire: Shared,
    /// Whether this side connected it.
    outward: bool,
    /// Whether there was no room, and the endpoint waits for some.
    full: bool,
}

impl<const LONGEST: usize> Queues<LONGEST> {
    fn line(&mut self, line: u32) -> Option<(&mut Line, Shared)> {
        let line = self.lines.get_mut(line as usize)?.as_mut()?;
        let wire = line.wire.clone();
        Some((line, wire))
    }

    fn add(&mut self, line: u32, wire: Shared, outward: bool) {
        self.lines.resize_with(self.lines.len().max(line as usize + 1), || None);
        assert!(self.lines[line as usize].is_none(), "line {line} is in use");
        self.lines[line as usize] = Some(Line { wire, outward, full: false });
    }
}

impl<const LONGEST: usize> Transport for Queues<LONGEST> {
    const SCHEME: &'static str = "queues";
    const TITLE: &'static str = "queues of this process";
    const ANY: &'static str = "queues://*";

    fn open(address: &str) -> Result<Queues<LONGEST>, String> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let mut address = address.to_owned();
        if address.ends_with("//*") {
            let nth = NEXT.fetch_add(1, Ordering::Relaxed);
            address = format!("{}://any-{nth}", Self::SCHEME);
        }
        if address.contains("panic") {
            panic!("told to panic");
        }
        LISTENERS.lock().unwrap().insert(address.clone(), VecDeque::new());
        Ok(Queues { address, lines: Vec::new() })
    }
}

impl<const LONGEST: usize> Medium for Queues<LONGEST> {
    fn address(&self) -> String {
        self.address.clone()
    }

    fn max_packet(&self) -> usize {
        LONGEST
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn connect(&mut self, line: u32, to: &str) -> Result<(), ConnectError> {
        assert!(!to.contains("panic"), "told to panic");
        if to.contains("nonsense") {
            return Err(ConnectError::Malformed("it is nonsense".to_owned()));
        }
        let Some(wire) = begin(to) else {
            return Err(ConnectError::Refused("nothing is there".to_owned()));
        };
        self.add(line, wire, true);
        Ok(())
    }

    fn accept(&mut self, line: u32) -> bool {
        let next = LISTENERS.lock().unwrap().get_mut(&self.address).and_then(VecDeque::pop_front);
        next.is_some_and(|wire| {
            self.add(line, wire, false);
            true
        })
    }

    fn send(&mut self, line: u32, packet: &[u8]) -> Sent {
        assert!(packet.len() <= LONGEST);
        let Some((line, wire)) = self.line(line) else { return Sent::Closed(String::new()) };
        let mut wire = wire.lock().unwrap();
        line.full = wire.packets.len() >= ROOM && !wire.ended;
        match (wire.ended, line.full) {
            (true, _) => Sent::Closed(String::new()),
            (_, true) => Sent::Later,
            _ => {
                wire.packets.push_back(packet.to_vec());
                Sent::All
            }
        }
    }

    fn receive(&mut self, line: u32, into: &mut [u8]) -> Received {
        let Some((line, wire)) = self.line(line) else { return Received::Closed(String::new()) };
        let mut wire = wire.lock().unwrap();
        let packet = if line.outward { None } else { wire.packets.pop_front() };
        match (packet, wire.ended) {
            (Some(packet), _) => {
                let len = packet.len().min(into.len());
                into[..len].copy_from_slice(&packet[..len]);
                Received::Packet(len)
            }
            (None, true) => Received::Closed(String::new()),
            (None, false) => Received::Later,
        }
    }

    fn shut(&mut self, line: u32) {
        let line = self.lines[line as usize].take().expect("a line that is in use");
        line.wire.lock().unwrap().ended = true;
    }

    fn poll(&mut self, ready: &mut Readiness<'_>) -> Result<(), String> {
        match LISTENERS.lock().unwrap().get(&self.address) {
            Some(waiting) if !waiting.is_empty() => ready.acceptable(),
            Some(_) => {}
            None => return Err("the listener is gone".to_owned()),
        }
        for (number, line) in self.lines.iter().enumerate() {
            let Some(Line { wire, outward, full }) = line else { continue };
            let wire = wire.lock().unwrap();
            if wire.ended || !outward && !wire.packets.is_empty() {
                ready.readable(number as u32);
            }
            if *full && wire.packets.len() < ROOM {
                ready.writable(number as u32);
            }
        }
        Ok(())
    }

    fn end(&mut self) {
        LISTENERS.lock().unwrap().remove(&self.address);
    }
}

impl<const LONGEST: usize> Drop for Queues<LONGEST> {
    fn drop(&mut self) {
        for line in self.lines.iter().flatten() {
            line.wire.lock().unwrap().ended = true;
        }
    }
}
