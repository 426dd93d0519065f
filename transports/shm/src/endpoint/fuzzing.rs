//! What a hostile peer can do: for the fuzz targets.

use crate::{
    Shm,
    control::ControlMessage,
    pair::Sizes,
    ring::{MAX_SHORT, SHORT},
    socket,
};
use petasos_fabric::{Address, Incarnation, Peer};

/// A valid note of each kind.
#[must_use]
pub fn notes() -> Vec<Vec<u8>> {
    let greeting = crate::control::Greeting {
        address: Address::parse("shm://peer").expect("an address"),
        incarnation: Incarnation::new(7).expect("not zero"),
        sizes: Sizes { ring: 1 << 17, long: 1 << 21, max: 1 << 20 },
        probe: 0x7fff_0000_0000,
    };
    let notes = [
        ControlMessage::Hello(greeting.clone()),
        ControlMessage::Welcome(greeting),
        ControlMessage::Refused { again: true, text: "not now".to_owned() },
        ControlMessage::Segment { id: 5, given: true, writable: false },
        ControlMessage::Doorbell,
    ];
    notes.iter().map(|note| note.encode().to_vec()).collect()
}

/// Decodes a note. What was understood can be said again.
///
/// # Panics
/// If it cannot.
pub fn note(bytes: &[u8]) {
    if let Ok(note) = ControlMessage::decode(bytes) {
        // The text of a refusal was escaped, and is cut when it is said again.
        if !matches!(note, ControlMessage::Refused { .. }) {
            assert_eq!(ControlMessage::decode(&note.encode()).ok(), Some(note));
        }
    }
}

impl Shm {
    /// Whether there is a pair with this peer.
    #[must_use]
    pub fn has_pair(&self, peer: Peer) -> bool {
        self.channels.get(peer.index).is_some()
    }

    /// Publishes something of any kind in a ring to a peer: a packet, the announcement of a long
    /// one (kinds from 64 on), or a part of one (from 128 on).
    pub fn post(&mut self, peer: Peer, kind: u8, bytes: &[u8]) {
        if let Some(channel) = self.channels.get_mut(peer.index)
            && bytes.len() <= 2048
        {
            let short = &bytes[..bytes.len().min(MAX_SHORT)];
            let _ = match (kind, kind % 64) {
                (_, 0) => return,
                (..128, SHORT) => channel.pair.send_short(short),
                (..64, kind) => channel.post(kind, bytes),
                (..128, kind) => channel.pair.forge_announcement(kind, bytes.len() * 9),
                (_, kind) => channel.pair.forge_part(kind, short),
            };
        }
    }

    /// Writes a word anywhere into the memory of a pair, wherever in its first 20 KiB.
    pub fn scribble(&mut self, peer: Peer, nth: usize, word: u64) {
        if let Some(channel) = self.channels.get(peer.index) {
            channel.pair.scribble(nth % (20 << 7), word);
        }
    }

    /// Writes a word of the entry of a region, as all peers see it.
    pub fn retell(&mut self, slot: u32, nth: usize, word: u64) {
        self.exports.table().scribble(slot % 16, nth % 8, word);
    }

    /// Sends bytes on the socket of a pair.
    pub fn say(&self, peer: Peer, bytes: &[u8]) {
        if let Some(channel) = self.channels.get(peer.index) {
            let _ = socket::send(channel.process.socket(), bytes, &[]);
        }
    }
}
