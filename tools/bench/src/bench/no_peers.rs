//! The placeholder for the other stacks where they are not built in.

use super::Bench;
use crate::{
    exit::{Code, Failure, Outcome},
    report::{Guest, Section},
};
use petasos::Transport;
use serde::Serialize;

/// Whether other stacks are built in.
pub(super) const BUILT_IN: bool = false;

/// There is no report.
#[derive(Serialize)]
pub(super) enum Report {}

impl Report {
    pub(super) fn text(&self, _: usize) -> String {
        match *self {}
    }

    pub(super) fn guests(&self) -> Vec<Guest> {
        match *self {}
    }

    pub(super) fn section(&self, _: usize) -> Section {
        match *self {}
    }
}

pub(super) fn require_built_in() -> Outcome {
    let text =
        "the other stacks are not built into this petasos-bench, as they are some 200 crates";
    Err(Failure::new(Code::Usage, text)
        .advise("cargo run --profile dist -p petasos-bench --features peers -- peers"))
}

pub(super) fn measure(_: &Bench, _: &'static Transport, _: &mut Option<Report>) -> Outcome {
    require_built_in()
}
