//! Progress on standard error, where that is a terminal.

use crate::output;
use indicatif::{ProgressBar, ProgressStyle};
use std::{borrow::Cow, time::Duration};

/// Shows how far a piece of work is; nothing where standard error is no terminal.
pub struct Progress(ProgressBar);

impl Progress {
    /// Of so many bytes.
    pub fn bytes(total: u64, what: impl Into<Cow<'static, str>>) -> Progress {
        let bar = ProgressBar::new(total);
        let style = "{msg:32} {bar:30} {bytes}/{total_bytes} {bytes_per_sec}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| default()));
        bar.set_message(what);
        Progress(bar)
    }

    /// Of steps, one after the other.
    pub fn steps(total: u64) -> Progress {
        let bar = ProgressBar::new(total);
        let style = "{spinner} {pos:>3}/{len} {wide_msg}";
        bar.set_style(ProgressStyle::with_template(style).unwrap_or_else(|_| default()));
        bar.enable_steady_tick(Duration::from_millis(200));
        Progress(bar)
    }

    /// So many steps there are, as it turned out.
    pub fn total(&self, steps: u64) {
        self.0.set_length(steps);
    }

    /// A word beside the progress, which stays.
    pub fn say(&self, what: &str) {
        self.0.suspend(|| output::note(what));
    }

    /// Nothing is shown from now on.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }

    /// So much is done by now.
    pub fn set_done(&self, done: u64) {
        self.0.set_position(done);
    }

    pub fn add(&self, done: u64) {
        self.0.inc(done);
    }

    /// The next step begins.
    pub fn step(&self, what: impl Into<Cow<'static, str>>) {
        self.0.inc(1);
        self.0.set_message(what);
    }
}

fn default() -> ProgressStyle {
    ProgressStyle::default_bar()
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
