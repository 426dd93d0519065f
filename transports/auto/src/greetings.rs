//! Handshake messages that are under way.

use crate::peers::Route;

/// Handshake messages that are to be sent, or waited for.
#[derive(Debug, Default)]
pub(crate) struct Greetings {
    routes: Vec<Route>,
    /// Members over which one was sent, and which were not polled since.
    sent: Vec<usize>,
}

impl Greetings {
    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// How many there are to be sent or waited for, or were sent.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.routes.len() | self.sent.len()
    }

    /// A message is to be sent by this route when there is room, or waited for.
    pub(crate) fn add(&mut self, route: Route) {
        self.routes.push(route);
    }

    /// The routes by which a message is to be sent, or waited for.
    pub(crate) fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Takes these routes out.
    pub(crate) fn take_routes(&mut self) -> Vec<Route> {
        std::mem::take(&mut self.routes)
    }

    /// One was sent over this member.
    pub(crate) fn sent(&mut self, member: usize) {
        self.sent.push(member);
    }

    /// Takes a member over which one was sent.
    pub(crate) fn pop_sent(&mut self) -> Option<usize> {
        self.sent.pop()
    }
}
