//! Requests for a restart or a replacement that reach the controller before the news of the
//! failure. Each waits for that news, for a moment.

use super::{Engine, controller::Question, requests::limit, timers::Timer};
use crate::message::ControllerRequest;
use petasos_fabric::Time;
use petasos_pmix::{Error, message::Answer};
use std::time::Duration;

/// How long a request waits.
const PATIENCE: Duration = Duration::from_secs(2);
/// Requests that wait at a time.
const MAX_WAITING: usize = 4096;

/// The requests that wait, and until when.
#[derive(Debug, Default)]
pub(super) struct Premature(Vec<(Question, ControllerRequest, Time)>);

impl Premature {
    fn add(
        &mut self,
        question: Question,
        what: ControllerRequest,
        until: Time,
    ) -> Result<(), Error> {
        if self.0.len() >= MAX_WAITING {
            let (what, most) = ("restarts and replacements", MAX_WAITING);
            return Err(limit(what, most + 1, most));
        }
        self.0.push((question, what, until));
        Ok(())
    }

    fn take(
        &mut self,
        which: impl Fn(&ControllerRequest, Time) -> bool,
    ) -> Vec<(Question, ControllerRequest)> {
        let taken = self.0.extract_if(.., |(_, what, until)| which(what, *until));
        taken.map(|(question, what, _)| (question, what)).collect()
    }
}

impl Engine {
    /// At the controller: a request waits for the news of the failure that it is about.
    pub(super) fn await_failure(
        &mut self,
        question: Question,
        what: ControllerRequest,
    ) -> Result<Option<Answer>, Error> {
        self.controller.premature.add(question, what, self.timers.now().after(PATIENCE))?;
        self.timers.set_after(PATIENCE, Timer::Premature);
        Ok(None)
    }

    /// At the controller: a failure is known, and the requests that wait for it are tried again.
    pub(super) fn failure_known(&mut self, of: impl Fn(&ControllerRequest) -> bool) {
        for (question, what) in self.controller.premature.take(|what, _| of(what)) {
            self.question_came(question.node, question.id, question.by, what);
        }
    }

    /// No node has reported that these failed.
    pub(super) fn expire_premature(&mut self) {
        let now = self.now();
        for (question, what) in self.controller.premature.take(|_, until| until <= now) {
            let error = match what {
                ControllerRequest::Restart { proc, .. } => {
                    Error::NotRestarted { proc, why: "it has not failed".to_owned() }
                }
                ControllerRequest::Replace(node) => {
                    Error::NotReplaced { node, why: "it is not lost".to_owned() }
                }
                _ => Error::Misuse("it waits for nothing".to_owned()),
            };
            self.reply(question, Err(error));
        }
    }
}
