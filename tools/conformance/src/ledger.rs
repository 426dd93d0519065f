//! The account of operations: each accepted one completes exactly once.

use petasos_fabric::{Done, OpError, Operation, Token};
use std::collections::HashMap;

/// The operations of one endpoint.
#[derive(Debug, Default)]
pub struct Ledger {
    open: HashMap<Token, &'static str>,
    closed: HashMap<Token, Result<Done, OpError>>,
}

/// The kind of an operation, and of no other.
#[must_use]
pub fn kind(operation: &Operation) -> &'static str {
    match operation.plain() {
        Operation::Send { .. } => "Send",
        Operation::SendLong { .. } => "SendLong",
        Operation::Receive { .. } => "Receive",
        Operation::Discard { .. } => "Discard",
        Operation::SendTagged { .. } => "SendTagged",
        Operation::PostReceive { .. } => "PostReceive",
        Operation::Peek { .. } => "Peek",
        Operation::ReceiveClaimed { .. } => "ReceiveClaimed",
        Operation::DiscardClaimed { .. } => "DiscardClaimed",
        Operation::Put { .. } => "Put",
        Operation::Get { .. } => "Get",
        Operation::Atomic { .. } => "Atomic",
        Operation::Map { .. } => "Map",
        Operation::Flush { .. } => "Flush",
        Operation::Deregister { .. } => "Deregister",
        Operation::Revoke { .. } => "Revoke",
        _ => "another operation",
    }
}

/// Whether this is the result that such an operation can have.
fn fits(kind: &str, done: &Done) -> bool {
    match done {
        Done::Sent => matches!(kind, "Send" | "SendLong" | "SendTagged"),
        Done::Received { .. } => kind == "Receive",
        Done::Discarded => matches!(kind, "Discard" | "DiscardClaimed"),
        Done::Tagged { .. } => matches!(kind, "PostReceive" | "ReceiveClaimed"),
        Done::Peeked(_) => kind == "Peek",
        Done::Put => kind == "Put",
        Done::Got => kind == "Get",
        Done::Atomic | Done::Fetched(_) => kind == "Atomic",
        Done::Mapped(_) => kind == "Map",
        Done::Flushed => kind == "Flush",
        Done::Deregistered => kind == "Deregister",
        Done::Revoked => kind == "Revoke",
        _ => false,
    }
}

impl Ledger {
    /// An operation is about to be submitted.
    pub fn open(&mut self, operation: &Operation) {
        self.open.insert(operation.token(), kind(operation));
    }

    /// An operation was not accepted.
    pub fn withdraw(&mut self, token: Token) {
        self.open.remove(&token);
    }

    /// A completion came. An error says what is wrong with it.
    pub fn close(&mut self, token: Token, result: Result<Done, OpError>) -> Result<(), String> {
        let Some(kind) = self.open.remove(&token) else {
            return Err(match self.closed.get(&token) {
                Some(first) => format!("{token:?} completed twice: {first:?}, then {result:?}"),
                None => format!("{token:?} completed, but was never submitted: {result:?}"),
            });
        };
        if let Ok(done) = &result
            && !fits(kind, done)
        {
            return Err(format!("{token:?}, a {kind}, completed as {done:?}"));
        }
        self.closed.insert(token, result);
        Ok(())
    }

    /// The result, if it is there.
    #[must_use]
    pub fn result(&self, token: Token) -> Option<&Result<Done, OpError>> {
        self.closed.get(&token)
    }

    /// The result, taken out so that it does not hold its memory. A second completion
    /// is then still noticed, as one that was never submitted.
    pub fn take(&mut self, token: Token) -> Option<Result<Done, OpError>> {
        self.closed.remove(&token)
    }

    /// Whether this operation is under way, or has completed and its result was not taken.
    #[must_use]
    pub fn knows(&self, token: Token) -> bool {
        self.open.contains_key(&token) || self.closed.contains_key(&token)
    }

    /// What has not completed.
    pub fn outstanding(&self) -> impl Iterator<Item = (Token, &'static str)> {
        self.open.iter().map(|(token, kind)| (*token, *kind))
    }

    /// Whether everything has completed.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.open.is_empty()
    }
}
