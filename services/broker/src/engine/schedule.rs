//! Which connection is served next.

use super::{
    Current, Engine, Outcome,
    connection::{Connection, Counters, Fetch, Side, mark},
};
use petasos_fabric::Time;
use petasos_tenant::wire::cost;

/// What a tenant, and a connection within it, gets at each of its turns, in bytes.
const QUANTUM: i64 = 64 << 10;
/// What a message costs beside its bytes.
const MESSAGE: i64 = 256;

impl Engine {
    /// A connection may have work: it gets its turn, unless it is waiting for one.
    pub(super) fn schedule(&mut self, id: u64) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if !connection.has_work() || std::mem::replace(&mut connection.scheduled, true) {
            return;
        }
        let tenant = connection.tenants[0];
        self.tenants[tenant].active.push_back(id);
        if !std::mem::replace(&mut self.tenants[tenant].listed, true) {
            self.runnable.push_back(tenant);
        }
    }

    /// When [`Engine::poll`] may find something though nothing was passed in: a tenant has tokens
    /// again.
    #[must_use]
    pub fn next_time(&self) -> Time {
        self.timed.iter().map(|(time, _)| *time).min().unwrap_or(Time::NEVER)
    }

    /// The next packet or payload to move.
    pub(super) fn next_item(&mut self, now: Time) -> Option<Current> {
        let due = |(time, _): &mut (Time, usize)| *time <= now;
        self.runnable.extend(self.timed.extract_if(.., due).map(|(_, tenant)| tenant));
        while let Some(nth) = self.runnable.front().copied() {
            let Engine { tenants, connections, ports, runnable, timed, .. } = self;
            let tenant = &mut tenants[nth];
            let Some(id) = tenant.active.front().copied() else {
                (tenant.listed, tenant.deficit) = (false, 0);
                runnable.pop_front();
                continue;
            };
            let connection = connections.get_mut(&id).filter(|c| c.has_work());
            let Some(connection) = connection else {
                tenant.active.pop_front();
                if let Some(idle) = connections.get_mut(&id) {
                    (idle.scheduled, idle.deficit) = (false, 0);
                }
                continue;
            };
            let full = ports.get_mut(&connection.to).filter(|port| port.full);
            if let Some(port) = full {
                tenant.active.pop_front();
                // Still scheduled: its port has it.
                port.blocked.push(id);
                continue;
            }
            let ready = tenant.bytes.ready(now).max(tenant.messages.ready(now));
            if ready > now {
                tenant.throttled += 1;
                timed.push((ready, nth));
                runnable.pop_front();
                continue;
            }
            if tenant.deficit <= 0 {
                tenant.deficit += QUANTUM;
                runnable.rotate_left(1);
                continue;
            }
            if connection.deficit <= 0 {
                connection.deficit += QUANTUM;
                tenant.active.rotate_left(1);
                continue;
            }
            return Some(match &connection.loan {
                Some(loan) if loan.announced => Current::Fetch(id),
                _ => Current::Item(id),
            });
        }
        None
    }

    /// The connection has been served: what that costs, and what it has carried.
    fn charge(&mut self, id: u64, carried: Counters) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.counters.add(carried);
        let bytes = carried.bytes as i64 + MESSAGE;
        connection.deficit -= bytes;
        let [from, to] = connection.tenants;
        let tenant = &mut self.tenants[from];
        tenant.deficit -= bytes;
        tenant.bytes.take(carried.bytes);
        tenant.messages.take(carried.messages);
        tenant.sent.add(carried);
        self.tenants[to].received.add(carried);
    }

    /// A packet was put into the ring of its receiver, or not.
    pub(super) fn item_done(&mut self, id: u64, outcome: Outcome) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if outcome == Outcome::Full {
            let to = connection.to;
            return self.set_full(to);
        }
        let (mark, len) =
            connection.queue.front().map_or((mark::DATA, 0), |(mark, bytes)| (mark, bytes.len()));
        connection.queue.pop();
        connection.delivered += cost(len);
        let mut carried = Counters { messages: 1, bytes: len as u64, bytes_in_place: 0 };
        if mark == mark::LENT
            && let Some(loan) = &mut connection.loan
        {
            // It is counted with its payload.
            (loan.announced, carried.messages) = (true, 0);
        }
        self.charge(id, carried);
        self.go_on(id);
    }

    /// A payload was copied, or not.
    pub(super) fn fetch_done(&mut self, id: u64, outcome: Outcome) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        if outcome == Outcome::Full {
            let to = connection.to;
            return self.set_full(to);
        }
        let Connection { loan, owed_to, owed_from, .. } = connection;
        let Some(loan) = loan.take() else { return };
        let in_place = matches!(loan.fetch, Some(Fetch::Into(_)));
        if outcome == Outcome::Failed {
            // Over comes with it, and says that nothing was fetched.
            return self.end(id, "its memory is gone");
        }
        owed_from.returned = true;
        if in_place {
            owed_to.fetched = Some(true);
            self.owe(id, Side::To);
        }
        self.owe(id, Side::From);
        let bytes_in_place = if in_place { loan.len } else { 0 };
        self.charge(id, Counters { messages: 1, bytes: loan.len, bytes_in_place });
        self.go_on(id);
    }
}
