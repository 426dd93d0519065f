//! The broker of a host: one fast network for many containers, while the host keeps control of which
//! may talk to each other, and how much.
//!
//! Programs in containers reach it by `tenant://` (`petasos-tenant`), over a socket that is given
//! into the container. Each tenant has a socket of its own; by that, and by the credentials that the
//! kernel reports, the broker knows whose an endpoint is, whatever it says of itself.
//!
//! * [`Config`]: tenants, rules and limits, from a file or from flags.
//! * [`Engine`]: a state machine that checks what tenants say, and decides what moves next.
//! * [`Broker`]: sockets, rings and memory around it, in one thread.
//! * [`ask`]: what an administrator asks a broker for.
//!
//! # What a tenant cannot do
//!
//! It has no descriptor of another's memory, ring or socket: all that it has is shared with the
//! broker alone. What it writes there is read once and checked; one that breaks the rules is
//! expelled, and only its own connections end. It cannot name an endpoint to which no rule leads:
//! connections are numbered by the broker for their receiver, and by their sender for itself, and a
//! number means something on its own link only. It cannot make the broker keep more than its windows
//! or wait for its ring, as rings and queues are bounded, and nothing of the broker's blocks.
//!
//! What is not defended: the time that the broker takes for each message, of which every tenant gets
//! its share by turns and no more; and pages of a tenant's file that the broker is the first to touch,
//! to write there or to read what is not written, which the system counts as the broker's for as long
//! as anybody has the file. [`Limits::registered_bytes`] says how much that is at a time; a tenant that
//! keeps its files, and opens endpoints anew, can have it be more.

#![forbid(unsafe_code)]
#![warn(clippy::missing_errors_doc)]

mod bucket;
mod config;
mod engine;
mod host;
mod rules;

pub use bucket::Bucket;
pub use config::{CONTROL, Config, ConfigError, Limits, Tenant};
pub use engine::{
    ConnectionStatus, Counters, EndpointStatus, Engine, Entry, Memory, Order, Outcome, PortId,
    Status, TenantStatus, Violation,
};
pub use host::{Ask, Broker, OpenError, Stop, ask};
pub use rules::{Pattern, Rule, Rules, Verdict};
