//! Reading from connections and writing to them.

use super::TcpEndpoint;
use crate::{
    connection::{Broken, Read},
    peers::{Connectivity, PeerEntry},
    poller::Source,
};
use petasos_fabric::{Event, LostReason, Peer};

/// Passes without anything after which a connection is not busy any more.
const QUIET: u32 = 4096;

impl TcpEndpoint {
    /// Sends what there is, to all. True if there was anything.
    pub(super) fn flush(&mut self) -> bool {
        while let Some(peer) = self.engine.next_output() {
            self.peers.mark_dirty(peer);
        }
        let dirty = self.peers.take_dirty();
        for &peer in &dirty {
            self.write(peer);
        }
        let busy = !dirty.is_empty();
        self.peers.reuse_dirty(dirty);
        busy
    }

    fn write(&mut self, peer: Peer) {
        let TcpEndpoint { peers, engine, counters, poller, .. } = self;
        let Some(entry) = peers.begin_write(peer) else {
            return;
        };
        let connection = match &mut entry.connectivity {
            Connectivity::Open(connection) => connection,
            Connectivity::Suspended => return self.reconnect(peer),
            Connectivity::None | Connectivity::Dialing(_) => return,
        };
        let was_blocked = connection.blocked;
        match connection.write(peer, engine, counters) {
            Ok(()) if was_blocked != connection.blocked => {
                poller.set(&connection.socket, Source::Peer(peer.index), true, connection.blocked);
            }
            Ok(()) => {}
            // What came before the end is still to be read.
            Err(_) => {
                connection.dead = true;
                self.leave_unread(peer);
            }
        }
    }

    /// Reads from a peer, until `budget` events are there.
    pub(super) fn read(&mut self, peer: Peer, budget: usize, events: &mut Vec<Event>) {
        let TcpEndpoint { peers, engine, counters, .. } = self;
        let entry = peers.get_mut(peer);
        let Some(PeerEntry { connectivity: Connectivity::Open(connection), unheard, .. }) = entry
        else {
            return;
        };
        let read = connection.read(peer, engine, counters, budget, events);
        if unheard.is_some() && connection.heard {
            self.hear_first(peer);
        }
        self.take_read(peer, read);
    }

    /// What came of reading from a peer.
    fn take_read(&mut self, peer: Peer, read: Result<Read, Broken>) {
        let TcpEndpoint { peers, counters, config, .. } = self;
        let entry = peers.get_mut(peer);
        let Some(PeerEntry { connectivity: Connectivity::Open(connection), .. }) = entry else {
            return;
        };
        let lost = match read {
            Ok(Read::End) | Err(Broken::Io(_)) if connection.may_end() => {
                return self.suspend(peer);
            }
            Ok(Read::Empty) if connection.dead => LostReason::Closed,
            Ok(Read::Empty) => return,
            Ok(Read::More) => return self.leave_unread(peer),
            Ok(Read::Note(note)) => {
                self.leave_unread(peer);
                return self.take_note(peer, note);
            }
            Ok(Read::End) => LostReason::Closed,
            Err(Broken::Violation(violation)) => {
                counters.violations += 1;
                LostReason::Protocol(violation.to_string())
            }
            Err(Broken::NotAuthentic) => {
                counters.violations += 1;
                LostReason::Protocol("something that the peer did not send, or not now".to_owned())
            }
            Err(Broken::Io(error)) => match error.raw_os_error() {
                Some(libc::ETIMEDOUT | libc::EHOSTUNREACH | libc::ENETUNREACH) => {
                    LostReason::Silent(config.silence)
                }
                Some(libc::ECONNRESET | libc::EPIPE) => LostReason::Closed,
                _ => LostReason::System(error.to_string()),
            },
        };
        self.lose(peer, lost);
    }

    /// A region was closed while packets are under way with its memory. All its bytes are moved by
    /// this side, so there is nothing to wait for.
    pub(super) fn release_closed(&mut self) {
        let TcpEndpoint { peers, engine, .. } = self;
        for entry in peers.iter_mut() {
            if let (Some(peer), Connectivity::Open(connection)) =
                (entry.peer, &mut entry.connectivity)
            {
                connection.release_closed(peer, engine);
            }
        }
    }

    /// There is more to read from this peer: when it is its turn.
    fn leave_unread(&mut self, peer: Peer) {
        if let Some(connection) = self.connection(peer)
            && !connection.unread
        {
            connection.unread = true;
            self.reads.add_unread(peer);
        }
    }

    /// Reads from the busy connections, or polls all of them.
    pub(super) fn poll(&mut self, budget: usize, events: &mut Vec<Event>) -> bool {
        if self.reads.begin_pass() && !self.armed {
            for at in (0..self.reads.busy().len()).rev() {
                let peer = self.reads.busy()[at];
                let quiet = self.connection(peer).map_or(QUIET, |connection| {
                    connection.quiet += 1;
                    connection.quiet
                });
                if quiet < QUIET {
                    self.read(peer, budget, events);
                } else {
                    self.reads.remove_busy(at);
                }
            }
            return false;
        }
        if std::mem::take(&mut self.armed) {
            self.bell.awake();
        }
        let mut ready = std::mem::take(&mut self.reads.ready);
        self.poller.ready(&mut ready);
        let mut busy = false;
        for source in ready.drain(..) {
            busy |= source != Source::Doorbell;
            match source {
                Source::Listener => self.accept(),
                // The notification is taken by `arm`: it ends a sleep, also the next one.
                Source::Doorbell => _ = self.bell.take(),
                // Checked in every pass.
                Source::Check => {}
                Source::Unauthenticated(slot) => self.read_handshake(slot as usize),
                Source::Peer(slot) => {
                    let Some(peer) = self.peers.at(slot) else {
                        continue;
                    };
                    let Some(connection) = self.connection(peer) else { continue };
                    let blocked = connection.blocked;
                    if blocked {
                        self.write(peer);
                    }
                    self.read(peer, budget, events);
                    self.reads.add_busy(peer);
                }
            }
        }
        self.reads.ready = ready;
        self.reads.end_poll();
        busy
    }

    /// The first word of a peer: it has the key of the session. Whose it is is asked when there is
    /// time.
    #[cold]
    fn hear_first(&mut self, peer: Peer) {
        let Some(entry) = self.entry(peer) else { return };
        if let (Some(identity), Some(session)) = (entry.unheard.take(), entry.session) {
            self.known_peers.shows(&identity, &session);
            self.deferred.note_owner(peer, identity);
        }
    }
}
