//! The guard of a mount: a process that takes the mount away when the process that serves it was
//! killed. Else whatever is below its directory fails from then on.

use crate::exit::{Failure, Outcome};
use petasos_forward::mount::recover;
use std::{
    env,
    ffi::OsString,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The word by which this executable becomes one.
pub(crate) const GUARD: &str = "mount-guard";

/// How long the system may take to end what a process had, and how often to look.
const SETTLE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(20);

/// Starts one. It lasts as long as this process has its standard input.
pub(super) fn start(directory: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(GUARD).arg(directory).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

/// Is one.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> Outcome {
    let directory = PathBuf::from(arguments.next().unwrap_or_default());
    // What ends the process that it watches is not to end it as well.
    let _ = rustix::process::setsid();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    let end = Instant::now() + SETTLE;
    while is_there(&directory) {
        if recover(&directory).map_err(Failure::system("taking a dead mount away"))?
            || Instant::now() > end
        {
            break;
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// Whether something is mounted there.
fn is_there(directory: &Path) -> bool {
    petasos_forward::mount::is_mounted(directory).unwrap_or(false)
}
