//! The results of a run so far: they are shown at its end, also if it is interrupted.

use super::{Bench, peers, results::Results};
use crate::{all_limits::Found, exit::Outcome, figures::Row, report::Folder};
use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

/// The figures, and how to show them.
pub(super) struct SoFar {
    title: String,
    bench: Arc<Bench>,
    folder: Option<Folder>,
    json: bool,
    begin: Instant,
    figures: Mutex<Figures>,
}

#[derive(Default)]
pub(super) struct Figures {
    pub(super) figures: Vec<Row>,
    pub(super) limits: Option<Found>,
    pub(super) peers: Option<peers::Report>,
}

impl SoFar {
    pub(super) fn new(title: &str, bench: Arc<Bench>, folder: Option<Folder>, json: bool) -> SoFar {
        let (title, begin) = (title.to_owned(), Instant::now());
        SoFar { title, bench, folder, json, begin, figures: Mutex::default() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows all.
    pub(super) fn give(&self) -> Outcome {
        let Figures { figures, limits, peers } = mem::take(&mut *self.lock());
        let took = self.begin.elapsed();
        let results = Results::new(&self.title, &self.bench, took, figures, limits, peers);
        self.bench.progress.end();
        results.give(self.folder.as_ref(), self.json)
    }

    /// Whether nothing was measured.
    pub(super) fn is_empty(&self) -> bool {
        let found = self.lock();
        found.figures.is_empty() && found.limits.is_none() && found.peers.is_none()
    }

    /// Shows the figures so far, if there are any, with a note that the run was cut short.
    pub(super) fn cut_short(&self) {
        if self.is_empty() {
            return;
        }
        self.bench.cut_short();
        if let Err(failure) = self.give() {
            // The reason for the end is reported elsewhere.
            failure.say();
        }
    }
}
