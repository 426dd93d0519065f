//! A process of this node: its connection, its business card, and how it ended.

use super::ClientId;
use petasos_fabric::Time;
use petasos_pmix::{BusinessCard, Entry, Error, Termination};
use std::time::Duration;

/// Bytes of all that a process may have committed.
pub(crate) const MAX_CARD: usize = 64 << 20;

#[derive(Debug, Default)]
pub(super) struct LocalProcess {
    client: Option<ClientId>,
    /// It has connected, at some time.
    connected: bool,
    pid: u32,
    termination: Option<Termination>,
    /// When this process took the place of another; 0: it is the first of its rank.
    since: Time,
    card: BusinessCard,
    /// It has published, or waited for what others publish.
    known_to_controller: bool,
    /// It has finalized, its process still runs, and may begin again.
    may_return: bool,
}

impl LocalProcess {
    /// A process that begins in place of one that failed.
    pub(super) fn again(restarts: u32, since: Time) -> LocalProcess {
        let card = BusinessCard { restarts, ..BusinessCard::default() };
        LocalProcess { since, card, ..LocalProcess::default() }
    }

    /// A rank that came here from a lost node, before it is known whether it begins again.
    pub(super) fn moved_here() -> LocalProcess {
        let termination = Some(Termination::NodeLost);
        LocalProcess { termination, connected: true, ..LocalProcess::default() }
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn set_pid(&mut self, pid: u32) {
        self.pid = pid;
    }

    pub(super) fn has_connected(&self) -> bool {
        self.connected
    }

    /// How it ended, though it may begin again.
    pub(super) fn termination(&self) -> Option<&Termination> {
        self.termination.as_ref()
    }

    /// How it ended, if it will not begin again.
    pub(super) fn final_termination(&self) -> Option<&Termination> {
        self.termination().filter(|_| !self.may_return)
    }

    /// How it failed, if it did.
    pub(super) fn failure(&self) -> Option<&Termination> {
        self.termination().filter(|why| !why.is_clean())
    }

    /// Why a client cannot connect as this process, if it has ended. What has finalized can begin
    /// again, in the same process of the system.
    pub(super) fn refusal(&self, again: bool) -> Option<&Termination> {
        self.termination().filter(|why| !again || **why != Termination::Finalized)
    }

    /// A client connects as this process. False: another one is connected.
    pub(super) fn attach(&mut self, client: ClientId) -> bool {
        if self.termination.take().is_some() {
            // The connection from before it finalized may still be open. It no longer counts.
            self.client = None;
        }
        if self.client.is_some_and(|other| other != client) {
            return false;
        }
        self.client = Some(client);
        (self.connected, self.may_return) = (true, false);
        true
    }

    /// A connection is closed. False: another one of the process has replaced it.
    pub(super) fn detach(&mut self, client: ClientId) -> bool {
        let current = self.client == Some(client);
        if current {
            self.client = None;
        }
        current
    }

    /// It has ended, in this way; `may_return`: it may begin again while its process runs.
    pub(super) fn terminate(&mut self, why: Termination, may_return: bool) {
        (self.termination, self.may_return) = (Some(why), may_return);
    }

    /// The way in which it ended, as another node has told.
    pub(super) fn ended_elsewhere(&mut self, why: Termination) {
        self.termination = Some(why);
    }

    /// Its process in the system ended: it cannot begin again. Says whether it could until now.
    pub(super) fn exited(&mut self) -> bool {
        std::mem::take(&mut self.may_return)
    }

    /// What an exit means: a process that has connected and not finalized has left others that may
    /// wait for it, whatever its exit code is.
    pub(super) fn interpret(&self, why: Termination) -> Termination {
        let open = matches!(self.termination, None | Some(Termination::Disconnected));
        match why {
            Termination::Exited(0) if self.connected && open => Termination::NotFinalized,
            why => why,
        }
    }

    /// Whether it should have connected by now. A process that was started later has as much time
    /// as the first ones had.
    pub(super) fn is_overdue(&self, now: Time, patience: Duration) -> bool {
        self.termination.is_none()
            && (self.since == Time::ZERO || now >= self.since.after(patience))
    }

    /// The controller keeps something of this process from now on.
    pub(super) fn set_known_to_controller(&mut self) {
        self.known_to_controller = true;
    }

    pub(super) fn is_known_to_controller(&self) -> bool {
        self.known_to_controller
    }

    pub(super) fn card(&self) -> &BusinessCard {
        &self.card
    }

    /// Whether it has committed anything.
    pub(super) fn has_card(&self) -> bool {
        self.card.version > 0
    }

    /// Adds to its business card, if the whole stays within the limit.
    pub(super) fn commit(&mut self, entries: Vec<(String, Entry)>) -> Result<(), Error> {
        let kept = &self.card.entries;
        let growth = |(key, entry): &(String, Entry)| {
            let before = kept.get(key).map_or(0, |before| before.size(key));
            entry.size(key) as isize - before as isize
        };
        let all: usize = kept.iter().map(|(key, entry)| entry.size(key)).sum();
        let all = all.saturating_add_signed(entries.iter().map(growth).sum());
        if all > MAX_CARD {
            return Err(super::limits::limit("bytes of a business card", all, MAX_CARD));
        }
        self.card.commit(entries);
        Ok(())
    }
}
