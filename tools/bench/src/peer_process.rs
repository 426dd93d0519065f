//! The other side of a peer: this executable, started again.
//!
//! The temporary directory is an argument: the process removes it if the process that started it
//! has died.

use crate::{
    exit::{Code, Failure, Outcome},
    interrupt,
    limits::Cores,
    scratch,
};
use petasos_peers::Setup;
use std::{ffi::OsString, io, path::Path};

/// The hidden subcommand for which `main` calls [`run`].
pub(crate) const SUBCOMMAND: &str = "peer-process";

/// Where peers are measured: on the cores and in the directory of this run.
pub(crate) fn setup(cores: Cores, scratch: &Path) -> Setup {
    Setup {
        client: cores.client,
        server: cores.server,
        scratch: scratch.to_owned(),
        entry: vec![SUBCOMMAND.into(), scratch.into()],
    }
}

/// What the process does.
pub(crate) fn run(scratch: Option<OsString>) -> Outcome {
    interrupt::unblock_terminate().map_err(Failure::system("signals"))?;
    let outcome = petasos_peers::serve();
    // The parent died without an end line, and this process removes its directory.
    if matches!(outcome, Ok(false))
        && let Some(path) = scratch
    {
        scratch::inherit(Path::new(&path));
    }
    match outcome {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            Err(Failure::new(Code::Usage, error).advise("petasos bench peers"))
        }
        Err(error) => Err(Failure::system("answering as another stack")(error)),
    }
}
