//! The guard of a mount: a process that takes the mount away when the process that serves it was
//! killed. Else whatever is below its directory fails from then on.
//!
//! It asks the mount nothing: a thread of that process may be in the kernel, where it waits for an
//! answer of its own process, as it does while the kernel gives pages up. Then the process does not
//! end, its device is not closed, and all that asks waits forever, until the mount's requests are
//! ended from outside.
//!
//! It ends with its mount, also where the process stays: the next mount may be at the same place,
//! with the same numbers, and before Linux 6.8 nothing else tells the two apart.

use crate::exit::{Code, Failure, Outcome};
use petasos_forward::{
    descriptors,
    mount::{MountId, take_away},
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    env,
    ffi::OsString,
    fs::File,
    io,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{self, Sender},
};

/// The word by which this executable becomes one.
pub(crate) const GUARD: &str = "mount-guard";

/// Starts one. It lasts as long as this process has its standard input, and the mount is there.
pub(super) fn start(directory: &Path, mount: &MountId) -> io::Result<()> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(GUARD).arg(directory).arg(mount.to_string()).current_dir("/");
    let (report, started) = mpsc::channel();
    descriptors::spawn_isolated("petasos-guarded", move || hold(command, &report))?;
    started.recv().map_err(io::Error::other)?
}

/// The thread that starts it, and has the other end of its standard input, which is closed with
/// this thread: when the process is killed, whatever its other threads wait for.
fn hold(command: Command, report: &Sender<io::Result<()>>) {
    match spawn(command) {
        Ok((mut guard, _streams)) => {
            // Waiting would close it.
            let _open = guard.stdin.take();
            let _ = report.send(Ok(()));
            let _ = guard.wait();
        }
        Err(error) => drop(report.send(Err(error))),
    }
}

fn spawn(mut command: Command) -> io::Result<(Child, [File; 3])> {
    // In the place of the standard streams, which would be those of a pipe else.
    let nowhere = || File::options().read(true).write(true).open("/dev/null");
    let streams = [nowhere()?, nowhere()?, nowhere()?];
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok((command.spawn()?, streams))
}

/// Is one.
pub(crate) fn run(mut arguments: impl Iterator<Item = OsString>) -> Outcome {
    let directory = PathBuf::from(arguments.next().unwrap_or_default());
    let mount = arguments.next().and_then(|mount| mount.to_str()?.parse::<MountId>().ok());
    let mount = mount.ok_or_else(|| Failure::new(Code::Usage, "a guard is told of its mount"))?;
    // What ends the process that it watches is not to end it as well.
    let _ = rustix::process::setsid();
    if outlives(&mount).map_err(Failure::system("watching a mount"))? {
        take_away(&directory, &mount).map_err(Failure::system("taking a dead mount away"))?;
    }
    Ok(())
}

/// Waits for the end of the process that serves a mount, or of the mount. True if the process ended
/// first.
fn outlives(mount: &MountId) -> io::Result<bool> {
    let (process, table) = (io::stdin(), File::open("/proc/self/mountinfo")?);
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    loop {
        let listed = mount.is_listed()?;
        let mut events = [
            PollFd::new(&process, PollFlags::IN),
            // Its events are those of changes.
            PollFd::new(&table, PollFlags::PRI),
        ];
        // A row may be missed while others change.
        match poll(&mut events, (!listed).then_some(&now)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [ended, changed] = events.map(|event| !event.revents().is_empty());
        if ended {
            return Ok(true);
        }
        if !listed && !changed {
            return Ok(false);
        }
    }
}
