//! A transport under the common address.

use petasos_fabric::Endpoint;

/// How far a transport goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// To processes of this node: of what [`Node::local`](crate::Node::local) calls one.
    Node,
    /// To every process that has an address.
    Network,
}

/// A transport under the common address.
pub struct Member {
    /// Its endpoint, as it was opened: no peer was resolved there.
    pub endpoint: Box<dyn Endpoint>,
    /// How far it goes.
    pub scope: Scope,
}
