//! Whether a mount that is in the way is dead: a process of its own asks that.
//!
//! The kernel has a thread wait for the answer whatever happens, once the process of the mount has
//! taken the question; and the process of such a thread does not end before. The command ends in
//! time, for it does not wait for the process that asks.

use crate::exit::{Code, Failure, Outcome};
use petasos_forward::mount;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    env,
    ffi::OsString,
    io::{self, Read, Write},
    path::{Path, absolute},
    process::{Child, Command, Stdio},
};

/// The word by which this executable becomes the process that asks.
pub(crate) const ASK: &str = "mount-ask";

const DEAD: &str = "dead";
const ALIVE: &str = "alive";

/// How long what is mounted may take to answer before it is said not to.
const PATIENCE: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// Whether the process of the mount on a directory is gone.
pub(super) fn is_dead(directory: &Path) -> io::Result<bool> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(ASK).arg(absolute(directory)?).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut asks = command.spawn()?;
    let answer = answer(&mut asks);
    match answer {
        Ok(_) => drop(asks.wait()),
        // As soon as the kernel lets it.
        Err(_) => drop(asks.kill()),
    }
    match answer?.trim() {
        DEAD => Ok(true),
        ALIVE => Ok(false),
        _ => Err(io::Error::other("whether the mount there is served could not be asked")),
    }
}

fn answer(asks: &mut Child) -> io::Result<String> {
    let mut said = asks.stdout.take().expect("a piped output");
    if poll(&mut [PollFd::new(&said, PollFlags::IN)], Some(&PATIENCE))? == 0 {
        return Err(mount::silent());
    }
    let mut answer = String::new();
    said.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Is the process that asks.
pub(crate) fn run(directory: Option<OsString>) -> Outcome {
    let told = || Failure::new(Code::Usage, "what asks a mount is told where it is");
    let directory = directory.ok_or_else(told)?;
    let dead = mount::is_dead(Path::new(&directory)).map_err(Failure::system("asking a mount"))?;
    // The command that waits may be gone.
    drop(writeln!(io::stdout(), "{}", if dead { DEAD } else { ALIVE }));
    Ok(())
}
