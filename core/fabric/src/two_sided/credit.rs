//! Credit: messages that need a lease travel only when the receiver has promised one.
//!
//! A message of more than [`Lease::LINES`] bytes, and such a header of a long message, costs a
//! credit that its receiver granted, and that is a promise of its pool: lent and promised together
//! are never more than the pool has. So a message that arrives always finds its lease, and nothing
//! waits behind it: no answer to a get, no request, no packet of another peer. Messages for which
//! there is no credit stay with their sender, and behind them all messages for the same receiver.
//! Shorter ones cost nothing.
//!
//! No peer has credit in the beginning. One that wants to send and has none *asks*, once; the
//! receiver *grants*, few at first, and twice as many each time when half of them is used, up to a
//! window. How much one peer may hold at a time, in leases that the program has not dropped and in
//! credit, is its [`Share`]: a slow consumer of one peer's messages leaves room for those of
//! others. A peer that waits and has none is served first: for it, credit of the peers that were
//! granted some longest ago is *recalled*, and they *return* what they do not need. A peer that
//! does not return it (it is stopped, or malicious) keeps its share, and no more than a window of
//! it unused.
//!
//! A receiver may also *hold* a peer's messages, however short ([`PeerQuota::deferred`]): it tells the
//! peer, whose messages then wait as if there were no credit.
//!
//! A peer whose quota ([`PeerQuota`]) is used up waits behind the others, for whose sake nothing is
//! recalled.
//!
//! What holds with more peers than leases: each peer that is alive gets a lease in its turn, after
//! a round trip to a peer that has one to spare. Not so if so many are stopped, or malicious, that
//! they hold all leases between them, which takes more than a hundred of them with 4,096 leases
//! (see [`Share`]). Then longer messages wait, with their senders; all else goes on.

use super::{
    Engine, Violation, connection::Connection, header::Header, ledger::Ledger, violation::broken,
};
use crate::{Buffer, Lease, Limits, Peer, PeerQuota, PeerState, PeerUsage, Pool, Share};

/// The most credit that a peer may have, in messages; above it a peer miscounts. Part of the
/// protocol.
const MOST: u32 = 1 << 20;
/// The longest window, and the shortest one.
const WINDOW: std::ops::RangeInclusive<usize> = 4..=128;
/// What a peer gets first, if there is plenty.
const FIRST: usize = 8;
/// Peers that are served in one pass of those that wait, and whose credit is recalled in one.
const TURN: usize = 64;

/// What was granted to a peer.
#[derive(Debug)]
pub(super) struct Grants {
    share: Share,
    /// Credit that it has not used, as far as is known here.
    unused: u32,
    /// The same after the last grant.
    level: u32,
    /// How much it was given at a time at last.
    step: u32,
    /// Bytes by which promises were longer than the messages that came.
    excess: u64,
    /// It waits for a grant, and is in the list of those that do.
    pub(super) waits: bool,
    /// It is in the list of those that have credit.
    listed: bool,
    /// It was asked to return what it does not need.
    recalled: bool,
    quota: PeerQuota,
    /// It waits because its quota is used up.
    over: bool,
    /// How often it did, and how often its quota had no room for expected messages.
    refused: u64,
    pub(super) unexpected_refused: u64,
}

/// Whether a message of so many bytes costs a credit.
#[inline]
pub(super) fn costs(len: usize) -> bool {
    len > Lease::LINES
}

impl Grants {
    fn new(pool: &Pool, limits: &Limits) -> Grants {
        let (share, quota) = (pool.share(limits.max_message), limits.quota);
        share.set_quota(&quota);
        Grants {
            share,
            unused: 0,
            level: 0,
            step: 0,
            excess: 0,
            waits: false,
            listed: false,
            recalled: false,
            quota,
            over: false,
            refused: 0,
            unexpected_refused: 0,
        }
    }

    /// Promises more, no more than its share allows; gives how much.
    fn more(&mut self, window: usize) -> u32 {
        self.settle();
        let left = self.share.left();
        let next = match self.step as usize {
            0 => (left / 16).clamp(1, FIRST),
            step => 2 * step,
        };
        let count = next.min(window).saturating_sub(self.unused as usize).min(left);
        if count > 0 {
            self.share.promise(count);
            self.step = next.min(window) as u32;
            self.unused += count as u32;
            self.level = self.unused;
            (self.recalled, self.over) = (false, false);
        }
        count as u32
    }

    /// Whether what the peer waits for is beyond its quota.
    fn is_over(&mut self) -> bool {
        let over = self.share.is_at_quota();
        self.refused += u64::from(over && !std::mem::replace(&mut self.over, over));
        over
    }

    /// Half of the last grant is used, and another one is due.
    #[inline]
    fn is_low(&self) -> bool {
        2 * self.unused <= self.level && !self.recalled && !self.waits
    }

    /// Gives back the bytes that promises had too many.
    fn settle(&mut self) {
        if self.excess > 0 {
            self.share.lighten(std::mem::take(&mut self.excess));
        }
    }

    /// So many credits come back unused.
    fn give_back(&mut self, count: u32) {
        self.settle();
        self.share.withdraw(count as usize);
        self.unused -= count;
        (self.level, self.step, self.recalled) = (self.unused, 0, false);
    }
}

impl Drop for Grants {
    fn drop(&mut self) {
        self.settle();
        self.share.withdraw(self.unused as usize);
    }
}

/// Credit for messages that need a lease, in both directions. Kept of each peer, also while nothing
/// is under way.
#[derive(Debug, Default)]
pub(super) struct Credit {
    /// Messages that we may send.
    ours: u32,
    /// We asked for more, and got none since.
    asked: bool,
    /// The peer takes none of our messages for now, however short.
    held: bool,
    /// What the peer may send, once it has asked.
    grants: Option<Box<Grants>>,
}

/// What the peer is to be told about credit.
#[derive(Debug, Default)]
pub(super) struct CreditReport {
    /// So much is granted.
    granted: u32,
    /// What it has is recalled.
    recall: bool,
    /// It has recalled what we have.
    give: bool,
    /// How we take things in, if that has changed.
    mode: Option<Header>,
}

impl Credit {
    /// Whether the peer takes no message for now.
    #[inline]
    pub(super) fn is_deferred(&self) -> bool {
        self.held
    }

    /// Whether there is credit for a message of so many bytes, if it costs any.
    #[inline]
    pub(super) fn allows(&self, len: usize) -> bool {
        !self.held & (!costs(len) || self.ours > 0)
    }

    /// A message of so many bytes is sent.
    #[inline]
    pub(super) fn spend(&mut self, len: usize) {
        self.ours -= u32::from(costs(len));
    }

    /// Asks for credit, unless that was done. Messages wait for it, or are held.
    pub(super) fn ask(&mut self) -> Option<Header> {
        (!self.held && !std::mem::replace(&mut self.asked, true)).then_some(Header::Ask)
    }

    /// A buffer for a message of so many bytes that has arrived. It breaks the protocol without
    /// credit.
    #[inline]
    pub(super) fn buffer(&mut self, len: usize) -> Result<Buffer, Violation> {
        if !costs(len) {
            return Ok(Buffer::zeroed(len));
        }
        match self.grants.as_deref_mut() {
            Some(grants) if grants.unused > 0 => {
                grants.unused -= 1;
                grants.excess += grants.share.excess(len);
                if grants.recalled || grants.unused == 0 {
                    // Others wait for these bytes, or no message of this peer may follow.
                    grants.settle();
                    grants.recalled &= grants.unused > 0;
                }
                Ok(grants.share.buffer(len))
            }
            _ => broken("a message without credit", len as u64),
        }
    }

    /// What was granted to the peer, and how much that may be.
    pub(super) fn grants(&mut self, pool: &Pool, limits: &Limits) -> &mut Grants {
        self.grants.get_or_insert_with(|| Box::new(Grants::new(pool, limits)))
    }

    /// What the peer may have.
    #[inline]
    pub(super) fn quota(&self, limits: &Limits) -> PeerQuota {
        self.grants.as_ref().map_or(limits.quota, |grants| grants.quota)
    }

    /// Enters what it has.
    pub(super) fn count(&self, usage: &mut PeerUsage) {
        if let Some(grants) = &self.grants {
            grants.share.count(usage);
            usage.leases_refused = grants.refused;
            usage.unexpected_refused = grants.unexpected_refused;
        }
    }

    /// Promises to this peer that it has not used.
    pub(super) fn promised(&self) -> usize {
        self.grants.as_ref().map_or(0, |grants| grants.unused as usize)
    }

    /// Half of what the peer was granted is used, and another grant is due.
    #[inline]
    fn is_low(&self) -> bool {
        self.grants.as_deref().is_some_and(Grants::is_low)
    }
}

impl CreditReport {
    pub(super) fn is_empty(&self) -> bool {
        self.granted == 0 && !self.recall && !self.give && self.mode.is_none()
    }
}

impl Connection {
    /// What there is to say about credit, if anything.
    pub(super) fn poll_credit(&mut self) -> Option<Header> {
        let (report, credit) = (&mut self.credit_report, &mut self.entry.credit);
        if let Some(mode) = report.mode.take() {
            return Some(mode);
        }
        if report.granted > 0 {
            let count = std::mem::take(&mut report.granted).into();
            return Some(Header::Grant { count });
        }
        if std::mem::take(&mut report.recall) {
            return Some(Header::Recall);
        }
        if report.give {
            // Messages that wait here go as soon as they may; what was meant for those of them that
            // are cancelled is given back later.
            let needed = u32::try_from(self.queues.messages_len()).unwrap_or(u32::MAX);
            let count = credit.ours.saturating_sub(needed);
            report.give = credit.ours > count;
            if count > 0 {
                credit.ours -= count;
                return Some(Header::Return { count: count.into() });
            }
        }
        None
    }

    /// Grants more, if there is more for this peer.
    fn grant(&mut self, window: usize, ledger: &mut Ledger) -> bool {
        let peer = self.handle;
        let Some(grants) = self.entry.credit.grants.as_deref_mut() else { return false };
        let count = grants.more(window);
        if count == 0 {
            return false;
        }
        if !std::mem::replace(&mut grants.listed, true) {
            ledger.credited.push_back(peer);
        }
        self.credit_report.granted += count;
        self.wake(ledger);
        true
    }

    /// Sets what the peer may have. What it has of credit beyond that is recalled.
    pub(super) fn set_quota(
        &mut self,
        quota: PeerQuota,
        of: (&Pool, &Limits),
        ledger: &mut Ledger,
    ) {
        let grants = self.entry.credit.grants(of.0, of.1);
        let deferred = std::mem::replace(&mut grants.quota, quota).deferred;
        grants.settle();
        grants.share.set_quota(&quota);
        let mut usage = PeerUsage::default();
        grants.share.count(&mut usage);
        let over = usage.leases > quota.leases || usage.lease_bytes > quota.lease_bytes;
        if over && grants.unused > 0 {
            grants.recalled = true;
            self.credit_report.recall = true;
            self.wake(ledger);
        }
        if deferred != quota.deferred {
            self.tell_mode(&of.1.quota, ledger);
        }
    }

    /// Tells the peer how this endpoint takes things in; `quota` is that of peers without one of
    /// their own.
    pub(super) fn tell_mode(&mut self, quota: &PeerQuota, ledger: &mut Ledger) {
        let own = self.entry.credit.grants.as_ref();
        let held = own.map_or(quota.deferred, |grants| grants.quota.deferred);
        self.credit_report.mode = Some(Header::Mode { held, attended: ledger.attended });
        self.wake(ledger);
    }

    /// The peer says how it takes things in.
    pub(super) fn accept_mode(&mut self, held: bool, attended: bool, ledger: &mut Ledger) {
        (self.entry.credit.held, self.entry.attended) = (held, attended);
        if !held {
            self.queues.release_held();
        }
        self.wake(ledger);
    }

    /// Tops up what a peer has that uses it; behind those that wait already, if there are any.
    #[inline]
    fn refill(&mut self, window: usize, ledger: &mut Ledger) {
        let peer = self.handle;
        let Some(grants) = self.entry.credit.grants.as_deref_mut().filter(|grants| grants.is_low())
        else {
            return;
        };
        if ledger.waiting.is_empty() {
            self.grant(window, ledger);
        } else {
            grants.settle();
            grants.waits = true;
            ledger.waiting.push_back(peer);
        }
    }

    /// A packet of the peer about credit.
    pub(super) fn accept_credit(
        &mut self,
        header: Header,
        (pool, limits): (&Pool, &Limits),
        ledger: &mut Ledger,
    ) -> Result<(), Violation> {
        match header {
            Header::Grant { count } => {
                if count == 0 || count > u64::from(MOST - self.credit.ours) {
                    return broken("more credit than there is", count);
                }
                self.credit.ours += count as u32;
                // A grant of more takes none of it back.
                (self.credit.asked, self.credit_report.give) = (false, false);
                self.wake(ledger);
            }
            Header::Ask => {
                let peer = self.handle;
                let grants = self.entry.credit.grants(pool, limits);
                // The excess of its last promises is for those that wait before it.
                grants.settle();
                // A peer that asks again waits already.
                if !std::mem::replace(&mut grants.waits, true) {
                    ledger.waiting.push_back(peer);
                }
            }
            Header::Recall => {
                self.credit_report.give = true;
                self.wake(ledger);
            }
            Header::Return { count } => match self.entry.credit.grants.as_deref_mut() {
                Some(grants) if count > 0 && count <= grants.unused.into() => {
                    grants.give_back(count as u32);
                    if grants.unused > 0 && !std::mem::replace(&mut grants.listed, true) {
                        ledger.credited.push_back(self.entry.handle);
                    }
                }
                _ => return broken("credit that was not granted", count),
            },
            _ => {}
        }
        Ok(())
    }
}

impl Engine {
    /// How much credit a peer has at a time at most: enough for a round trip, and a small part of
    /// the pool.
    fn window(&self) -> usize {
        let (things, bytes) = self.pool.quota().all();
        let longest = self.config.limits.max_message.max(1) as u64;
        let (shortest, most) = WINDOW.into_inner();
        let count = (things / 16).min(bytes / 16 / longest) as usize;
        count.clamp(shortest, most)
    }

    /// Whether peers wait for credit for which there was no room: no wake-up tells of leases that
    /// are dropped, so look again soon ([`Engine::take_events`]), and do not sleep for long.
    #[inline]
    #[must_use]
    pub fn has_waiting(&self) -> bool {
        !self.ledger.waiting.is_empty()
    }

    /// Buffers that the program holds.
    #[must_use]
    pub fn lent(&self) -> usize {
        self.pool.lent().saturating_sub(self.peers.promised())
    }

    /// Grants credit to the peers that wait for it, in turn. True if one got some.
    pub(super) fn serve_waiting(&mut self) -> bool {
        let (window, mut starving, mut granted) = (self.window(), false, false);
        let Engine { peers, ledger, .. } = self;
        for _ in 0..ledger.waiting.len().min(TURN) {
            let Some(peer) = ledger.waiting.pop_front() else { break };
            let Some(conn) = peers.get_mut(peer) else { continue };
            let Some(grants) = conn.entry.credit.grants.as_deref_mut() else { continue };
            grants.waits = false;
            if conn.state != PeerState::Up {
                continue;
            }
            if conn.grant(window, ledger) {
                granted = true;
                continue;
            }
            ledger.counters.busy += 1;
            // A peer that still has credit asks when it is used up, and is topped up before, if
            // there is more then.
            if let Some(grants) = conn.entry.credit.grants.as_deref_mut().filter(|g| g.unused == 0)
            {
                grants.waits = true;
                if !grants.is_over() && grants.share.held() == 0 {
                    // If there is none for this peer there is none for any: it stays the first.
                    starving = true;
                    ledger.waiting.push_front(peer);
                    break;
                }
                ledger.waiting.push_back(peer);
            }
        }
        if starving && !granted {
            self.recall();
        }
        granted
    }

    /// Asks some of the peers that have credit to return what they do not need.
    fn recall(&mut self) {
        let Engine { peers, ledger, .. } = self;
        let mut asked = 0;
        while asked < TURN
            && let Some(peer) = ledger.credited.pop_front()
        {
            let Some(grants) =
                peers.get_mut(peer).and_then(|l| l.entry.credit.grants.as_deref_mut())
            else {
                continue;
            };
            grants.settle();
            // It is in the list again once it has more, or has said what it needs.
            grants.listed = false;
            grants.recalled = grants.unused > 0;
            if grants.recalled
                && let Some(conn) = peers.get_mut(peer)
            {
                conn.credit_report.recall = true;
                conn.wake(ledger);
                asked += 1;
            }
        }
    }

    // For transports that move plain messages without the engine.

    /// Whether a plain message of so many bytes may be sent around the engine now: nothing waits
    /// here before it, and there is credit for it. Once it was sent, say [`Engine::sent_around`].
    #[inline]
    #[must_use]
    pub fn may_send(&self, peer: Peer, len: usize) -> bool {
        self.peers.entry_and_connection(peer).is_some_and(|(entry, conn)| {
            let first = conn.is_none_or(|conn| conn.queues.messages_len() == 0);
            entry.is_up() && !(entry.own | entry.held) && first && entry.credit.allows(len)
        })
    }

    /// A plain message of so many bytes was sent around the engine.
    #[inline]
    pub fn sent_around(&mut self, peer: Peer, len: usize) {
        if costs(len)
            && let Some(entry) = self.peers.entry_mut(peer)
        {
            entry.credit.spend(len);
        }
    }

    /// A buffer for a plain message that came and is taken around the engine: its peer's credit is
    /// used. Compare the length with `limits.max_message` before.
    ///
    /// # Errors
    /// [`Violation`] if the peer had no credit for it.
    pub fn buffer(&mut self, peer: Peer, len: usize) -> Result<Buffer, Violation> {
        let Some(entry) = self.peers.entry_mut(peer) else {
            return broken("a message of an unknown peer", len as u64);
        };
        let buffer = entry.credit.buffer(len);
        self.ledger.counters.violations += u64::from(buffer.is_err());
        self.refill(peer, len);
        buffer
    }

    /// The same as a lease that `fill` writes. It sees zeroes or bytes of earlier messages, and
    /// must write all.
    ///
    /// # Errors
    /// [`Violation`] if the peer had no credit for it.
    #[inline]
    pub fn lend(
        &mut self,
        peer: Peer,
        len: usize,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Lease, Violation> {
        if !costs(len) {
            return Ok(Lease::short(len, fill));
        }
        let mut buffer = self.buffer(peer, len)?;
        fill(&mut buffer);
        Ok(buffer.into_lease())
    }

    /// A message of so many bytes was taken of a peer, which may need more credit.
    #[inline]
    pub(super) fn refill(&mut self, peer: Peer, len: usize) {
        if costs(len) && self.peers.get(peer).is_some_and(|entry| entry.credit.is_low()) {
            let window = self.window();
            let Engine { peers, ledger, .. } = self;
            if let Some(conn) = peers.get_mut(peer) {
                conn.refill(window, ledger);
            }
        }
    }
}
