//! Completions of members, translated.

use crate::{Auto, outstanding::is_name, pace::Due};
use petasos_fabric::{Completion, Event};
use std::mem;

impl Auto {
    /// Polls members for a completion, one after the other.
    #[inline(never)]
    pub(crate) fn poll_completions_of(&mut self, members: Due) -> Option<Completion> {
        for member in members {
            if let Some(mut completion) = self.members[member].endpoint.poll_completion() {
                let ours = self.translate_completion(member, &mut completion);
                return ours.then_some(completion);
            }
        }
        None
    }

    /// Makes a completion of a member one of the user's. False if it is none of these, or if other
    /// events come before it, which it caused: then the next pass reports both.
    #[inline(always)]
    pub(crate) fn translate_completion(
        &mut self,
        member: usize,
        completion: &mut Completion,
    ) -> bool {
        self.pace.found();
        if is_name(completion.token()) {
            return self.translate_fully(member, completion);
        }
        if completion.is_plain() {
            return true;
        }
        if let Some(there) = completion.peer()
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
