//! The engines of all nodes on a simulated network: one program, since nothing here depends on the
//! state of its process. Seeds without end: `seeds`.

mod bounds;
#[allow(dead_code)] // `seeds` uses the rest.
mod common;
mod hostile;
mod inventory;
mod replacements;
mod restarts;
mod rules;
mod scale;
