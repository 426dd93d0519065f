//! Completions of members, translated.

use crate::{Auto, outstanding::is_name};
use petasos_fabric::{Completion, Event};
use std::mem;

/// Whether the completion of a member is one of the user's as it is.
#[inline(always)]
pub(crate) fn is_ours(completion: &Completion) -> bool {
    completion.is_plain() && !is_name(completion.token())
}

impl Auto {
    /// Translates what the member in front had; or polls the others, one after the other.
    #[inline(never)]
    pub(crate) fn translate_or_poll_on(
        &mut self,
        mut found: Option<Completion>,
    ) -> Option<Completion> {
        let (mut member, mut others) = (self.pace.front(), self.pace.others());
        while found.is_none() {
            member = others.next()?;
            found = self.members[member].endpoint.poll_completion();
        }
        let ours = found.as_mut().is_some_and(|found| self.translate_completion(member, found));
        if ours { found } else { None }
    }

    /// Makes a completion of a member one of the user's. False if it is none of these, or if other
    /// events come before it, which it caused: then the next pass reports both.
    #[inline]
    fn translate_completion(&mut self, member: usize, completion: &mut Completion) -> bool {
        self.pace.found();
        if is_ours(completion) {
            return true;
        }
        if !is_name(completion.token())
            && let Some(there) = completion.peer()
            && let Some(ours) = self.peers.introduced(member, there)
        {
            completion.set_peer(ours);
            return true;
        }
        self.translate_fully(member, completion)
    }

    /// The same of one that is more than a handle away.
    #[inline(never)]
    fn translate_fully(&mut self, member: usize, completion: &mut Completion) -> bool {
        let token = completion.token();
        let mut event = Event::from(mem::replace(completion, Completion::sent(token)));
        if !self.translate_one(member, &mut event) {
            return false;
        }
        if !self.early.is_empty() {
            self.report(event);
            return false;
        }
        match Completion::from_event(event) {
            Ok(ours) => {
                *completion = ours;
                true
            }
            Err(_) => false,
        }
    }
}
