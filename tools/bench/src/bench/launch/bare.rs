//! The machine's limit without any launcher: as many processes, started or synchronised by bare
//! system calls.

use super::programs::quiet;
use crate::exit::{Failure, Outcome};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::{
    io::{self, Read, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The argument that makes a process one of those at the barrier.
pub(crate) const BARE: &str = "bench-launch-bare";
/// A process that sends nothing for so long is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// How many barriers are measured.
const TIMES: usize = 200;

/// So many processes, started one after the other and then waited for, in nanoseconds.
pub(super) fn start(program: &str, count: u32) -> Outcome<f64> {
    let run = || -> io::Result<f64> {
        let start = Instant::now();
        let started = (0..count).map(|_| quiet(&mut Command::new(program)).spawn());
        let children: Vec<Child> = started.collect::<io::Result<_>>()?;
        for mut child in children {
            child.wait()?;
        }
        Ok(start.elapsed().as_nanos() as f64)
    };
    run().map_err(Failure::system("starting processes"))
}

/// Processes that each have a socket to this one.
struct Star(Vec<(Child, UnixStream)>);

impl Star {
    fn new(count: u32) -> io::Result<Star> {
        let mut star = Star(Vec::new());
        for _ in 0..count {
            let (ours, theirs) = UnixStream::pair()?;
            ours.set_read_timeout(Some(PATIENCE))?;
            let mut command = Command::new("/proc/self/exe");
            command.arg(BARE).stdin(OwnedFd::from(theirs)).stdout(Stdio::null());
            star.0.push((command.spawn()?, ours));
        }
        Ok(star)
    }

    /// Receives a byte of each process, and then sends one to each.
    fn barrier(&mut self) -> io::Result<()> {
        let mut word = [0];
        for (_, stream) in &mut self.0 {
            stream.read_exact(&mut word)?;
        }
        self.0.iter_mut().try_for_each(|(_, stream)| stream.write_all(&word))
    }
}

impl Drop for Star {
    fn drop(&mut self) {
        for (child, _) in &mut self.0 {
            // Both fail only for a process that has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// How long a barrier of so many processes takes: each sends a byte to one process, which answers
/// when it has all, over Unix sockets, all asleep in between. With one process, a byte there and
/// back.
pub(super) fn together(count: u32) -> Outcome<f64> {
    let measure = || -> io::Result<f64> {
        let mut star = Star::new(count)?;
        // The first byte arrives when the process has started.
        star.barrier()?;
        let mut times = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let start = Instant::now();
            star.barrier()?;
            times.push(start.elapsed().as_nanos() as f64);
        }
        Ok(crate::limits::median(&mut times))
    };
    measure().map_err(Failure::system("a barrier of processes over sockets"))
}

/// What one of them does, until its socket is closed.
pub(crate) fn run_bare() -> Outcome {
    let run = || -> io::Result<()> {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        if getppid().is_none() {
            return Ok(());
        }
        let mut stream = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let mut word = [0];
        loop {
            stream.write_all(&word)?;
            if stream.read(&mut word)? == 0 {
                return Ok(());
            }
        }
    };
    // The parent may have ended, which is no failure.
    let _ = run();
    Ok(())
}
