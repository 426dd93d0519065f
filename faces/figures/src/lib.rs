//! What a machine can do, and what Petasos does beside it.
//!
//! A time or a bandwidth says little by itself: it changes from machine to machine, and on a busy
//! one from hour to hour. So each figure of the `petasos` command is measured beside a limit of the
//! same machine in the same run, and what is shown first is the ratio of the two.
//!
//! ```text
//!   petasos (the command)       petasos-bench
//!              \                  /
//!               petasos-figures
//!   all_limits, latency, bulk        measurements: ours beside the machine's
//!   figures, pivot, grid, plots      how they are shown
//!   pair, server, client, service    the two processes of a measurement
//!   limits                           what the machine can do, without Petasos
//! ```
//!
//! This crate is what the command and `petasos-bench` share, and changes with them: it is no
//! interface for other programs. It is a crate of its own because its loops must be compiled as one
//! unit, with everything inlined that can be, which the rest of the command need not.
//!
//! | modules | what is in them |
//! |---|---|
//! | `limits`, `all_limits`, `accounting`, `machine` | what a machine can do at best, what the system counts of a process, and on which machine a run was |
//! | `latency`, `bulk`, `bare`, `beside` | calls, bulk data and bare operations of an endpoint, each beside its limit |
//! | `pair`, `server`, `client`, `service`, `channel`, `again` | the processes that measure, which are this executable, started again |
//! | `waiting`, `message`, `noise` | how the two sides wait, and what they send |
//! | `figures`, `pivot`, `grid`, `plots`, `table`, `output`, `progress` | figures with their units, and how they are shown |
//! | `exit`, `interrupt`, `log`, `scratch` | how a command fails, ends, logs and cleans up |

#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod accounting;
#[doc(hidden)]
pub mod again;
#[doc(hidden)]
pub mod all_limits;
#[doc(hidden)]
pub mod bare;
#[doc(hidden)]
pub mod beside;
#[doc(hidden)]
pub mod bulk;
#[doc(hidden)]
pub mod channel;
#[doc(hidden)]
pub mod client;
#[doc(hidden)]
pub mod exit;
#[doc(hidden)]
pub mod figures;
#[doc(hidden)]
pub mod grid;
#[doc(hidden)]
pub mod interrupt;
#[doc(hidden)]
pub mod latency;
#[doc(hidden)]
pub mod limits;
#[doc(hidden)]
pub mod log;
#[doc(hidden)]
pub mod machine;
#[doc(hidden)]
pub mod message;
#[doc(hidden)]
pub mod noise;
#[doc(hidden)]
pub mod output;
#[doc(hidden)]
pub mod pair;
#[doc(hidden)]
pub mod pivot;
#[doc(hidden)]
pub mod plots;
#[doc(hidden)]
pub mod progress;
#[doc(hidden)]
pub mod scratch;
#[doc(hidden)]
pub mod server;
#[doc(hidden)]
pub mod service;
#[doc(hidden)]
pub mod table;
#[doc(hidden)]
pub mod waiting;
