//! What `petasos broker status` shows.

use super::{Counters, Engine, Entry};
use serde::Serialize;

/// The state of a broker.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Status {
    /// By tenant, in the order of the configuration.
    pub tenants: Vec<TenantStatus>,
    /// Connections that are there.
    pub connections: Vec<ConnectionStatus>,
    /// The last connections, refusals and endpoints that broke the rules, oldest first.
    pub log: Vec<Entry>,
}

/// One tenant.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct TenantStatus {
    /// What it is called.
    pub name: String,
    /// Its endpoints.
    pub endpoints: Vec<EndpointStatus>,
    /// Connections that it has made, and that were made to it.
    pub connections_made: u32,
    /// The same to it.
    pub connections_taken: u32,
    /// Bytes that its connections may have on their way.
    pub outstanding_bytes: u64,
    /// What it has sent and received, also on connections that have ended.
    pub sent: Counters,
    /// The same that it received.
    pub received: Counters,
    /// Endpoints and connections that were refused.
    pub refused: u64,
    /// Endpoints that broke the rules.
    pub violations: u64,
    /// How often it had to wait for its rate.
    pub throttled: u64,
}

/// One endpoint.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct EndpointStatus {
    /// `NAME@TENANT`.
    pub name: String,
    /// Files that it has registered.
    pub files: usize,
    /// Their bytes.
    pub registered_bytes: u64,
    /// Whether its ring has no room: it does not read.
    pub waits: bool,
}

/// One connection.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct ConnectionStatus {
    /// The endpoint that made it.
    pub from: String,
    /// To whom.
    pub to: String,
    /// The rule that allows it.
    pub rule: String,
    /// Packets that wait in the broker.
    pub queued: usize,
    /// Bytes that were sent and not consumed.
    pub outstanding_bytes: u32,
    /// What it has carried.
    pub carried: Counters,
}

impl Engine {
    /// The state.
    #[must_use]
    pub fn status(&self) -> Status {
        let endpoints = |nth: usize| {
            let mut all: Vec<EndpointStatus> = self
                .ports
                .values()
                .filter(|port| port.tenant == nth)
                .map(|port| EndpointStatus {
                    name: port.name.to_string(),
                    files: port.files.len(),
                    registered_bytes: port.registered,
                    waits: port.full,
                })
                .collect();
            all.sort_by(|one, two| one.name.cmp(&two.name));
            all
        };
        let tenants = self.tenants.iter().enumerate().map(|(nth, tenant)| TenantStatus {
            name: tenant.name.clone(),
            endpoints: endpoints(nth),
            connections_made: tenant.made,
            connections_taken: tenant.taken,
            outstanding_bytes: tenant.granted,
            sent: tenant.sent,
            received: tenant.received,
            refused: tenant.refused,
            violations: tenant.violations,
            throttled: tenant.throttled,
        });
        let mut ids: Vec<&u64> = self.connections.keys().collect();
        ids.sort();
        let connections = ids.into_iter().map(|id| {
            let connection = &self.connections[id];
            let [from, to] = &connection.names;
            ConnectionStatus {
                from: from.to_string(),
                to: to.to_string(),
                rule: connection.rule.clone(),
                queued: connection.queue.len(),
                outstanding_bytes: connection.used,
                carried: connection.counters,
            }
        });
        Status {
            tenants: tenants.collect(),
            connections: connections.collect(),
            log: self.log.entries(),
        }
    }
}
