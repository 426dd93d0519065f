//! The pipe to a process on the other side: its standard input and output.

use super::protocol::Request;
use petasos_wire::{Encoding, Wire, from_bytes, to_vec};
use std::{
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// The first line of the other side, after whatever its test harness has printed.
pub(super) const HELLO: &str = "petasos-conformance, the other side, 1";

/// The longest frame: all of the largest memory of a probe, and more.
const LONGEST: usize = 1 << 30;

/// A process that has not ended so long after its input is killed.
const GRACE: Duration = Duration::from_secs(20);

/// A process on the other side. It is killed, there, when this is dropped.
pub(super) struct Pipe {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl Pipe {
    /// Starts one.
    ///
    /// # Panics
    /// If it does not print its first line.
    pub(super) fn start(mut command: Command) -> Pipe {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped
            .spawn()
            .unwrap_or_else(|error| panic!("the other side was not started: {command:?}: {error}"));
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().expect("piped"));
        // Ends it also if it does not begin.
        let mut pipe = Pipe { child, to, from };
        let mut said = String::new();
        loop {
            let before = said.len();
            let read = pipe.from.read_line(&mut said).unwrap_or(0);
            if said[before..].trim_end().ends_with(HELLO) {
                return pipe;
            }
            assert!(read > 0, "the other side did not begin: {command:?} said: {said}");
        }
    }

    /// Sends a request, and waits for the answer.
    ///
    /// # Panics
    /// If the other side has ended.
    pub(super) fn ask<T: Wire>(&mut self, ask: &Request) -> T {
        let answer = self.to.as_mut().map(|to| {
            write_frame(to, &to_vec(Encoding::Native, ask))?;
            read_frame(&mut self.from)
        });
        match answer {
            Some(Ok(Some(bytes))) => from_bytes(Encoding::Native, &bytes)
                .unwrap_or_else(|error| panic!("the other side is of another version: {error}")),
            other => panic!("the other side ended, see what it said of it: {other:?}"),
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        drop(self.to.take());
        // It kills itself now; its end is seen here, so that its address is free again.
        let end = Instant::now() + GRACE;
        while Instant::now() < end {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes bytes, with their length in front.
pub(super) fn write_frame(to: &mut impl Write, bytes: &[u8]) -> std::io::Result<()> {
    let len = u32::try_from(bytes.len()).ok().filter(|len| *len as usize <= LONGEST);
    let len = len.ok_or(ErrorKind::FileTooLarge)?;
    // In one go: else the second part would wait for the first one's acknowledgement.
    let frame = [&len.to_le_bytes(), bytes].concat();
    to.write_all(&frame)?;
    to.flush()
}

/// Reads such bytes; `None` at the end.
pub(super) fn read_frame(from: &mut impl Read) -> std::io::Result<Option<Vec<u8>>> {
    let mut len = [0; 4];
    match from.read_exact(&mut len) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > LONGEST {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; len];
    from.read_exact(&mut bytes)?;
    Ok(Some(bytes))
}
