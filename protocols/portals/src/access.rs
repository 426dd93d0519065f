//! The access control list of Portals 3: which process may use which portal.

use crate::{ProcessId, message::Arrival};

/// An entry of the access control list (Portals 3.3, `PtlACEntry`): which process may use which
/// portal.
///
/// ```
/// use petasos_portals::{Permit, ProcessId};
///
/// // All that user 1000 does; and what node 7 does at portal 4.
/// let user = Permit::user(1000);
/// let node = Permit {
///     process: ProcessId::physical(7, petasos_portals::ANY_PART),
///     user: None,
///     job: None,
///     portal: Some(4),
/// };
/// assert_eq!((user.portal, node.user), (None, None));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permit {
    /// Which process; parts of it may be any.
    pub process: ProcessId,
    /// Which user, or all.
    pub user: Option<u32>,
    /// Which job, or all.
    pub job: Option<u32>,
    /// Which portal, or all.
    pub portal: Option<u16>,
}

impl Permit {
    /// All that this user does.
    #[must_use]
    pub fn user(user: u32) -> Permit {
        Permit { process: ProcessId::ANY, user: Some(user), job: None, portal: None }
    }

    fn admits(&self, arrival: &Arrival) -> bool {
        let (process, mask) = (self.process.to_bits(), self.process.mask());
        (arrival.initiator.to_bits() ^ process) & mask == 0
            && self.user.is_none_or(|user| user == arrival.user)
            && self.job.is_none_or(|job| job == arrival.job)
            && self.portal.is_none_or(|portal| portal == arrival.portal)
    }
}

/// The entries of an access control list, by the number that requests name.
#[derive(Debug)]
pub(crate) struct AccessList {
    permits: Vec<Option<Permit>>,
}

impl AccessList {
    /// One entry, number 0.
    pub(crate) fn new(first: Permit) -> AccessList {
        AccessList { permits: vec![Some(first)] }
    }

    pub(crate) fn set(&mut self, index: usize, permit: Option<Permit>) {
        self.permits.resize(self.permits.len().max(index + 1), None);
        self.permits[index] = permit;
    }

    /// Whether the entry that a request names admits it.
    pub(crate) fn admits(&self, index: u32, arrival: &Arrival) -> bool {
        let permit = self.permits.get(index as usize).copied().flatten();
        permit.is_some_and(|permit| permit.admits(arrival))
    }
}
