//! Memory that a probe keeps ([`Slice::raw`]), and what stands for it between the two sides: a
//! region of which the other side makes raw memory of its own.

use super::protocol::Handle;
use petasos_fabric::{Operation, Region, Slice};
use std::collections::HashMap;

/// All that is in use.
#[derive(Default)]
pub(super) struct Shadows {
    list: Vec<Shadow>,
    /// The regions that operations close.
    closing: HashMap<u64, Handle>,
}

struct Shadow {
    user: User,
    raw: Slice,
    region: Region,
    /// Whether the user may write.
    written: bool,
}

/// What the memory is used for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum User {
    Operation(u64),
    Region(Handle),
    /// A region that is about to be registered.
    New,
}

impl User {
    /// The operation, and whether it writes to its memory.
    pub(super) fn of(operation: &Operation) -> (User, bool) {
        let written = matches!(
            operation.plain(),
            Operation::Get { .. } | Operation::Receive { .. } | Operation::PostReceive { .. }
        );
        (User::Operation(operation.token().0), written)
    }
}

impl Shadows {
    /// A region with the same content.
    pub(super) fn add(&mut self, raw: &Slice, (user, written): (User, bool)) -> Region {
        let region = Region::from_vec(raw.to_vec());
        self.list.push(Shadow { user, raw: raw.clone(), region: region.clone(), written });
        region
    }

    /// What was about to be registered has this handle, or was not.
    pub(super) fn registered(&mut self, region: Option<Handle>) {
        match region {
            Some(handle) => {
                let new = self.list.iter_mut().filter(|shadow| shadow.user == User::New);
                new.for_each(|shadow| shadow.user = User::Region(handle));
            }
            None => self.list.retain(|shadow| shadow.user != User::New),
        }
    }

    /// An operation closes this region.
    pub(super) fn close(&mut self, token: u64, region: Handle) {
        self.closing.insert(token, region);
    }

    /// Operations were not accepted: they are handed over again.
    pub(super) fn not_accepted(&mut self, tokens: impl Iterator<Item = u64>) {
        for token in tokens {
            self.list.retain(|shadow| shadow.user != User::Operation(token));
        }
    }

    /// An operation has completed, and what both sides have is the same. The probe has its memory
    /// back. True if there was any.
    pub(super) fn completed(&mut self, token: u64, good: bool) -> bool {
        let closed = self.closing.remove(&token).filter(|_| good).map(User::Region);
        let is = |user: User| user == User::Operation(token) || Some(user) == closed;
        let over: Vec<_> = self.list.extract_if(.., |shadow| is(shadow.user)).collect();
        for shadow in over.iter().filter(|shadow| shadow.written) {
            shadow.region.whole().copy_to(&shadow.raw);
        }
        !over.is_empty()
    }
}
