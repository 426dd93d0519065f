//! `petasos forward`: files of a server, for many clients.

mod bucket;
mod change;
pub(crate) mod guard;
mod inspect;
mod mount;
pub(crate) mod mount_ask;
pub(crate) mod mount_helper;
mod moving;
mod out;
mod serve;
mod session;
mod status;

pub(crate) use mount::let_go;

use crate::{
    cli::forward::{Command, Forward},
    exit::Outcome,
};

pub(crate) fn run(options: &Forward) -> Outcome {
    match &options.command {
        Command::Serve(options) => serve::run(options),
        Command::Put(options) => moving::put(options),
        Command::Get(options) => moving::get(options),
        Command::Sync(options) => moving::sync(options),
        Command::Ls(options) => inspect::ls(options),
        Command::Stat(options) => inspect::stat(options),
        Command::Cat(options) => inspect::cat(options),
        Command::Rm(options) => change::rm(options),
        Command::Mkdir(options) => change::mkdir(options),
        Command::Mv(options) => change::mv(options),
        Command::Status(options) => status::run(options),
        Command::Mount(options) => mount::run(options),
    }
}
