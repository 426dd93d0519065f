//! Connections on which nothing happens are closed, and made again when either side has something
//! to send.
//!
//! Both sides must want that. One *asks*, and sends nothing more until there is an answer. The
//! other *agrees* if it finds the connection as idle, which is the last that it sends there; or
//! else it refuses, and all goes on. The side that asked closes. (If both ask at a time, each takes
//! the other's question for the answer.) So each side has read all that the other had sent, and the
//! *session*, what both engines know of each other, stands still. It goes on over another
//! connection: the client names it in its hello, and the server confirms it in its verdict. A side
//! that has forgotten a session begins a new one, and the other side's peer is lost.

use super::{TcpEndpoint, claims::PATIENCE};
use crate::{
    closing::{Closing, Note},
    connection::Connection,
    dial::Dial,
    handshake::{Identity, Session, Verdict},
    peers::Connectivity,
    poller::Source,
    unauthenticated::Unauthenticated,
};
use petasos_fabric::{LostReason, Peer, Time, two_sided::header::PREFIX};
use std::time::Duration;

/// How often connections are checked, where only their number is limited; and the bounds of that
/// interval where their idle time is.
const CHECK: Duration = Duration::from_millis(50);
const CHECKS: [Duration; 2] = [Duration::from_millis(10), Duration::from_secs(1)];

impl TcpEndpoint {
    /// How often connections are checked; `None`: they are not closed.
    fn idle_interval(&self) -> Option<Duration> {
        match (self.config.close_idle_after, self.config.max_connections) {
            (Some(after), _) => Some((after / 4).clamp(CHECKS[0], CHECKS[1])),
            (None, Some(_)) => Some(CHECK),
            (None, None) => None,
        }
    }

    /// Asks to close the connections that have been idle for long, or are too many.
    pub(super) fn check_idle(&mut self) {
        self.idle_at = Time::NEVER;
        let Some(interval) = self.idle_interval() else { return };
        let now = self.now;
        let (mut open, mut idle) = (0, Vec::new());
        for entry in self.peers.iter_mut() {
            let (Some(peer), Connectivity::Open(connection)) = (entry.peer, &entry.connectivity)
            else {
                continue;
            };
            open += 1;
            if connection.traffic != entry.seen {
                (entry.seen, entry.since) = (connection.traffic, now);
            } else if connection.is_still() && self.engine.is_idle(peer) {
                idle.push((entry.since, peer));
            }
        }
        if open > 0 {
            self.idle_at = now.after(interval);
        }
        idle.sort_unstable();
        let excess = open - self.config.max_connections.unwrap_or(open).min(open);
        for (at, (since, peer)) in idle.into_iter().enumerate() {
            let quiet = now.since(since);
            let long = self.config.close_idle_after.is_some_and(|after| quiet >= after);
            if long || (at < excess && quiet >= interval) {
                self.say(peer, Closing::Asked, Note::Ask);
            }
        }
    }

    fn say(&mut self, peer: Peer, closing: Closing, note: Note) {
        if let Some(session) = self.entry(peer).and_then(|entry| entry.session) {
            // From now on the other side may come with another connection.
            match closing {
                Closing::No => self.peers.resume(&session),
                Closing::Asked | Closing::Agreed => self.peers.suspend(&session, peer),
                Closing::Doubted => {}
            }
        }
        if let Some(connection) = self.connection(peer) {
            connection.closing = closing;
            connection.outbox.note(&note.encode());
            connection.traffic = connection.traffic.wrapping_sub(PREFIX as u64);
            self.peers.mark_dirty(peer);
        }
    }

    /// Handles a note about closing.
    pub(super) fn take_note(&mut self, peer: Peer, note: Note) {
        let Some(closing) = self.connection(peer).map(|c| c.closing) else { return };
        match (note, closing) {
            (Note::Ask, Closing::No) if self.is_idle_too(peer) => {
                self.say(peer, Closing::Agreed, Note::Agree);
            }
            // A peer that asks again has read our answer to the first question: at most one waits
            // to be sent.
            (Note::Ask, Closing::No | Closing::Doubted) if !self.has_note(peer) => {
                self.say(peer, closing, Note::Refuse);
            }
            (Note::Ask | Note::Agree, Closing::Asked) => self.suspend(peer),
            (Note::Refuse, Closing::Asked) => {
                // It is asked again after the same time.
                let now = self.now;
                if let Some(entry) = self.entry(peer)
                    && let Connectivity::Open(connection) = &mut entry.connectivity
                {
                    connection.closing = Closing::No;
                    entry.since = now;
                    let meant = entry.meant;
                    if let Some(session) = entry.session {
                        self.peers.resume(&session);
                    }
                    if meant {
                        self.insist(peer, PATIENCE);
                    }
                }
                self.peers.mark_dirty(peer);
            }
            _ => {
                self.counters.violations += 1;
                let what = format!("{note:?} out of place");
                self.lose(peer, LostReason::Protocol(what));
            }
        }
    }

    /// Whether something about closing still waits to be sent.
    fn has_note(&mut self, peer: Peer) -> bool {
        self.connection(peer).is_some_and(|connection| connection.outbox.has_note())
    }

    /// Whether nothing has come, or gone, for a while.
    fn is_idle_too(&mut self, peer: Peer) -> bool {
        let (now, interval) = (self.now, self.idle_interval());
        let engine = self.engine.is_idle(peer);
        let Some(entry) = self.entry(peer) else { return false };
        let Connectivity::Open(connection) = &entry.connectivity else { return false };
        let quiet = connection.traffic == entry.seen;
        let long = interval.is_some_and(|interval| now.since(entry.since) >= interval);
        engine && quiet && long && !connection.has_unsent()
    }

    /// Closes a connection whose peer stays; connects again at once if there is something to send
    /// by now.
    pub(super) fn suspend(&mut self, peer: Peer) {
        let Some(entry) = self.entry(peer) else { return };
        let Some(session) = entry.session else { return };
        // The socket is closed, which also takes it out of the poller.
        entry.connectivity = Connectivity::Suspended;
        self.peers.suspend(&session, peer);
        self.counters.closed_idle += 1;
        if self.engine.is_idle(peer) {
            self.engine.trim(peer);
        } else {
            self.reconnect(peer);
        }
    }

    /// There is something to send on a connection that was closed.
    pub(super) fn reconnect(&mut self, peer: Peer) {
        let Some(info) = self.engine.peer_info(peer) else { return };
        let (now, patience) = (self.now, self.config.silence);
        if let Some(entry) = self.entry(peer) {
            let dial = Dial::new(info.address, entry.session, patience, now);
            entry.connectivity = Connectivity::Dialing(Box::new(dial));
            self.dialing.push(peer);
        }
    }

    /// A suspended session goes on over a new connection.
    pub(super) fn resume_session(
        &mut self,
        peer: Peer,
        connection: Connection,
        identity: &Identity,
    ) {
        let known = self.engine.peer_info(peer).and_then(|info| info.incarnation);
        if known != Some(identity.incarnation) {
            return self.lose(peer, LostReason::Restarted);
        }
        let now = self.now;
        let Some(entry) = self.entry(peer) else { return };
        let session = entry.session;
        entry.connectivity = Connectivity::Open(Box::new(connection));
        let meant = entry.meant;
        (entry.seen, entry.since) = (0, now);
        if let Some(session) = session {
            self.peers.resume(&session);
        }
        if meant {
            self.insist(peer, PATIENCE);
        }
        self.counters.connections += 1;
        self.counters.resumed += 1;
        self.idle_at = self.idle_at.min(now.after(CHECKS[0]));
        self.peers.mark_dirty(peer);
    }

    /// A client goes on with a session, and has proved that it knows it.
    pub(super) fn resume_from(
        &mut self,
        peer: Peer,
        mut client: Unauthenticated,
        session: &Session,
        identity: &Identity,
    ) {
        // Both have asked, and it was the first to see that: what it sent before is still to be
        // read here.
        let unread = self.connection(peer).is_some_and(|c| c.closing == Closing::Asked);
        let crossed = self
            .entry(peer)
            .is_some_and(|entry| matches!(&entry.connectivity, Connectivity::Dialing(dial) if dial.socket().is_some()));
        if unread || (crossed && self.identity.incarnation > identity.incarnation) {
            client.answer(Verdict::Crossed, None, &self.identity);
        } else if client.answer(Verdict::Resumed, Some(session), &self.identity) {
            let (socket, channel) = client.into_open();
            self.poller.set(&socket, Source::Peer(peer.index), true, false);
            self.resume_session(peer, Connection::new(socket, channel), identity);
        }
    }
}
