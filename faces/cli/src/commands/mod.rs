//! The commands, one a module.

pub(crate) mod bench;
pub(crate) mod broker;
pub(crate) mod completions;
pub(crate) mod forward;
pub(crate) mod info;
pub(crate) mod jobs;
pub(crate) mod limits;
pub(crate) mod ping;
pub(crate) mod provider;
pub(crate) mod quickstart;
mod route;
pub(crate) mod run;
pub(crate) mod serve;
pub(crate) mod tune;
