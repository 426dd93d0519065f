//! Who asks the head for a process to be started again, or for a node to be replaced, may have heard of the failure before
//! the head has: then it waits, for a moment, for word of that.

use super::{Engine, Timer, head::Asked};
use crate::{
    error::Error,
    message::{Answer, ControllerRequest},
};
use petasos_fabric::Time;
use std::time::Duration;

/// So long it waits.
const PATIENCE: Duration = Duration::from_secs(2);
/// Requests that wait at a time.
const MAX_WAITING: usize = 4096;

/// What waits, and until when.
#[derive(Debug, Default)]
pub(super) struct Hearsay(Vec<(Asked, ControllerRequest, Time)>);

impl Hearsay {
    fn take(
        &mut self,
        which: impl Fn(&ControllerRequest, Time) -> bool,
    ) -> Vec<(Asked, ControllerRequest)> {
        let taken = self.0.extract_if(.., |(_, what, until)| which(what, *until));
        taken.map(|(asked, what, _)| (asked, what)).collect()
    }
}

impl Engine {
    /// At the head: it is not known here that there is anything to be done.
    pub(super) fn awaits_word(
        &mut self,
        asked: Asked,
        what: ControllerRequest,
    ) -> Result<Option<Answer>, Error> {
        if self.head.hearsay.0.len() >= MAX_WAITING {
            let (what, most) = ("restarts and replacements", MAX_WAITING);
            return Err(super::requests::limit(what, most + 1, most));
        }
        let until = self.now.after(PATIENCE);
        self.agenda.set(until, Timer::Hearsay);
        self.head.hearsay.0.push((asked, what, until));
        Ok(None)
    }

    /// At the head: word of what some of these wait for has come, and they are looked at again.
    pub(super) fn word_came(&mut self, of: impl Fn(&ControllerRequest) -> bool) {
        for (asked, what) in self.head.hearsay.take(|what, _| of(what)) {
            self.head_asked(asked.node, asked.id, asked.by, what);
        }
    }

    /// Nobody has told the head that these failed.
    pub(super) fn expire_hearsay(&mut self) {
        let now = self.now;
        for (asked, what) in self.head.hearsay.take(|_, until| until <= now) {
            let error = match what {
                ControllerRequest::Restart { proc, .. } => {
                    Error::NotRestarted { proc, why: "it has not failed".to_owned() }
                }
                ControllerRequest::Replace(node) => {
                    Error::NotReplaced { node, why: "it is not lost".to_owned() }
                }
                _ => Error::Misuse("it waits for nothing".to_owned()),
            };
            self.head_says(asked, Err(error));
        }
    }
}
