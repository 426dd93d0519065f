//! `petasos forward`: files of a server, for many clients.

mod change;
mod failure;
mod look;
mod mount;
mod options;
mod out;
mod place;
mod session;
mod status;

pub(crate) use options::Forward;

use crate::exit::{Code, Failure, Outcome};
use options::Command;

pub(crate) fn run(options: &Forward) -> Outcome {
    match &options.command {
        Command::Ls(options) => look::ls(options),
        Command::Stat(options) => look::stat(options),
        Command::Cat(options) => look::cat(options),
        Command::Rm(options) => change::rm(options),
        Command::Mkdir(options) => change::mkdir(options),
        Command::Mv(options) => change::mv(options),
        Command::Status(options) => status::run(options),
        Command::Mount(options) => mount::run(options),
        _ => Err(Failure::new(Code::Unavailable, "not in this version")),
    }
}
