//! The guard of a mount: a process that takes the mount away when the process that serves it was
//! killed. Else whatever is below its directory fails from then on.
//!
//! It asks the mount nothing: a thread of that process may be in the kernel, where it waits for an
//! answer of its own process, as it does while the kernel gives pages up. Then the process does not
//! end, its device is not closed, and all that asks waits forever, until the mount's requests are
//! ended from outside.

use crate::exit::{Code, Failure, Outcome};
use petasos_forward::{
    descriptors,
    mount::{MountId, mounted_on, take_away},
};
use std::{
    env,
    ffi::OsString,
    fs::File,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Sender},
    thread,
};

/// The word by which this executable becomes one.
pub(crate) const GUARD: &str = "mount-guard";

/// Starts one. It lasts as long as this process has its standard input.
pub(super) fn start(directory: &Path) -> io::Result<()> {
    let mount = mounted_on(directory)?.ok_or(ErrorKind::NotFound)?;
    let mut command = Command::new(env::current_exe()?);
    command.arg(GUARD).arg(directory).arg(mount.to_string()).current_dir("/");
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let (report, started) = mpsc::channel();
    let run = move || hold(command, &report);
    thread::Builder::new().name("petasos-guarded".to_owned()).spawn(run)?;
    started.recv().map_err(io::Error::other)?
}

/// The thread that starts it, and has the other end of its standard input, which is closed with this
/// thread: when the process is killed, whatever its other threads wait for.
fn hold(mut command: Command, report: &Sender<io::Result<()>>) {
    match alone(&mut command) {
        Ok(_held) => {
            let _ = report.send(Ok(()));
            loop {
                thread::park();
            }
        }
        Err(error) => drop(report.send(Err(error))),
    }
}

fn alone(command: &mut Command) -> io::Result<(Child, [File; 3])> {
    descriptors::leave()?;
    // In the place of the standard streams, which would be those of a pipe else.
    let nowhere = || File::options().read(true).write(true).open("/dev/null");
    let streams = [nowhere()?, nowhere()?, nowhere()?];
    Ok((command.spawn()?, streams))
}

/// Is one.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> Outcome {
    let directory = PathBuf::from(arguments.next().unwrap_or_default());
    let mount = arguments.next().and_then(|mount| mount.to_str()?.parse::<MountId>().ok());
    let mount = mount.ok_or_else(|| Failure::new(Code::Usage, "a guard is told of its mount"))?;
    // What ends the process that it watches is not to end it as well.
    let _ = rustix::process::setsid();
    let _ = io::stdin().read_to_end(&mut Vec::new());
    take_away(&directory, &mount).map_err(Failure::system("taking a dead mount away"))?;
    Ok(())
}
