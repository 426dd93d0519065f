//! Completions of members, translated.

use crate::{Auto, outstanding::is_name, pace::Due};
use petasos_fabric::{Completion, Event, Status};

/// Whether the completion of a member is one of the user's as it is.
#[inline(always)]
pub(crate) fn is_ours(completion: &Completion) -> bool {
    let of_peer = matches!(completion.status(), Status::Tagged | Status::Peeked | Status::Failed);
    !of_peer && !is_name(completion.token())
}

impl Auto {
    /// Polls members for a completion, one after the other.
    #[inline(never)]
    pub(crate) fn poll_completions_of(&mut self, members: Due) -> Option<Completion> {
        for member in members {
            match self.members[member].endpoint.poll_completion() {
                Some(completion) if is_ours(&completion) => {
                    self.pace.found();
                    return Some(completion);
                }
                Some(completion) => return self.translate_completion(member, completion),
                None => {}
            }
        }
        None
    }

    /// Translates a completion that is not. `None` if it is none of the user's, or if other events
    /// come before it, which it caused: then the next pass reports both.
    #[inline(never)]
    pub(crate) fn translate_completion(
        &mut self,
        member: usize,
        mut completion: Completion,
    ) -> Option<Completion> {
        self.pace.found();
        if !is_name(completion.token())
            && completion.status() == Status::Tagged
            && let Some(peer) = completion.peer()
            && let Some(ours) = self.peers.introduced(member, peer)
        {
            completion.set_peer(ours);
            return Some(completion);
        }
        let mut event = Event::from(completion);
        if !self.translate_one(member, &mut event) {
            return None;
        }
        if self.early.is_empty() {
            return Completion::from_event(event).ok();
        }
        self.early.push(event);
        None
    }
}
