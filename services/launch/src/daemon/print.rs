//! What the processes write, on this process's standard output and error, or in files: by a thread,
//! so that a slow reader does not hold up the daemon.
//!
//! What cannot be written is lost, and so the first error is told, once: while the job runs, and in
//! the end with how it ended.

use super::{
    output_files::OutputFiles,
    wake::{Wake, Waker},
};
use crate::controller::Unwritten;
use rustix::{
    event::{PollFd, PollFlags, poll},
    io::Errno,
    stdio::{stderr, stdout},
};
use std::{
    collections::BTreeMap,
    io,
    os::fd::BorrowedFd,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread::{self, JoinHandle},
};

/// Bytes that wait to be written before no more are taken from the processes.
const ROOM: usize = 1 << 20;
/// A line is printed in parts if it is longer.
const LONGEST_LINE: usize = 64 << 10;

/// What a rank wrote: on standard error, or on standard output.
#[derive(Debug)]
struct Piece {
    rank: u32,
    error: bool,
    bytes: Vec<u8>,
}

/// The printing thread, and what it has to do.
#[derive(Debug)]
pub(crate) struct Printer {
    sender: Option<Sender<Piece>>,
    thread: Option<JoinHandle<Option<Unwritten>>>,
    waiting: Arc<AtomicUsize>,
    /// With labels: the beginnings of lines, by rank and stream.
    lines: Option<BTreeMap<(u32, bool), Vec<u8>>>,
}

impl Printer {
    /// With `files`, what ranks write goes there as it is, and nothing is printed.
    pub(crate) fn start(
        labels: bool,
        mut files: Option<OutputFiles>,
        waker: Waker,
    ) -> io::Result<Printer> {
        let lines = (labels && files.is_none()).then(BTreeMap::new);
        let (sender, receiver) = channel::<Piece>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = waiting.clone();
        let run = move || {
            let mut first = None;
            let mut note = |written: Result<(), Unwritten>| {
                let Err(lost) = written else { return };
                if first.is_none() {
                    first = Some(lost.clone());
                    waker.tell(Wake::Unwritten(lost));
                }
            };
            for Piece { rank, error, bytes } in receiver {
                let written = match &mut files {
                    Some(files) => files.write(rank, error, &bytes).map_err(Unwritten::from),
                    None => print(error, &bytes),
                };
                left.fetch_sub(bytes.len(), Ordering::Relaxed);
                waker.tell(Wake::Printed);
                note(written);
            }
            // Some file systems say only now that there was no room.
            note(close_another(stdout()).map_err(|why| Unwritten::of(false, &why)));
            note(close_another(stderr()).map_err(|why| Unwritten::of(true, &why)));
            first
        };
        let thread = Some(thread::Builder::new().name("printer".to_owned()).spawn(run)?);
        Ok(Printer { sender: Some(sender), thread, waiting, lines })
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < ROOM
    }

    /// Prints what a process wrote; with labels, line by line.
    pub(crate) fn print(&mut self, rank: u32, error: bool, bytes: Vec<u8>) {
        let Some(lines) = &mut self.lines else {
            return self.write(rank, error, bytes);
        };
        let begun = lines.entry((rank, error)).or_default();
        begun.extend(bytes);
        let whole = begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let whole = if begun.len() - whole > LONGEST_LINE { begun.len() } else { whole };
        let rest = begun.split_off(whole);
        let ready = std::mem::replace(begun, rest);
        self.label(rank, error, &ready);
    }

    fn label(&mut self, rank: u32, error: bool, text: &[u8]) {
        let mut labelled = Vec::with_capacity(text.len() + 64);
        for line in text.split_inclusive(|byte| *byte == b'\n') {
            labelled.extend(format!("[{rank}] ").into_bytes());
            labelled.extend(line);
            if !line.ends_with(b"\n") {
                labelled.push(b'\n');
            }
        }
        if !labelled.is_empty() {
            self.write(rank, error, labelled);
        }
    }

    fn write(&mut self, rank: u32, error: bool, bytes: Vec<u8>) {
        self.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        if let Some(sender) = &self.sender {
            let _ = sender.send(Piece { rank, error, bytes });
        }
    }

    /// Prints what is left of a process that has ended.
    pub(crate) fn ended(&mut self, rank: u32) {
        for error in [false, true] {
            let left = self.lines.as_mut().and_then(|lines| lines.remove(&(rank, error)));
            if let Some(left) = left {
                self.label(rank, error, &left);
            }
        }
    }

    /// Waits until all is written; gives what could not be.
    pub(crate) fn finish(&mut self) -> Option<Unwritten> {
        self.sender = None;
        self.thread.take().and_then(|thread| thread.join().ok()).flatten()
    }
}

fn print(error: bool, bytes: &[u8]) -> Result<(), Unwritten> {
    let stream = if error { stderr() } else { stdout() };
    write_all(stream, bytes).map_err(|why| Unwritten::of(error, &why))
}

/// Writes all, whether or not the stream waits by itself: any process that shares it may change
/// that.
fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(to, bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let _ = poll(&mut [PollFd::from_borrowed_fd(to, PollFlags::OUT)], None);
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Closes another descriptor of a stream, by which file systems that write later (as over a
/// network) say whether all has come to its place.
fn close_another(stream: BorrowedFd<'_>) -> io::Result<()> {
    let another = stream.try_clone_to_owned()?;
    match nix::unistd::close(another) {
        Ok(()) | Err(nix::errno::Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
