//! What the processes write, on this process's standard output and error: by a thread, so that a
//! slow reader does not hold up the daemon.

use super::wake::{Wake, Waker};
use std::{
    collections::BTreeMap,
    io::{self, Write},
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

/// The printing thread, and what it has to do.
#[derive(Debug)]
pub(crate) struct Printer {
    sender: Option<Sender<(bool, Vec<u8>)>>,
    thread: Option<JoinHandle<()>>,
    waiting: Arc<AtomicUsize>,
    /// With labels: the beginnings of lines, by rank and stream.
    lines: Option<BTreeMap<(u32, bool), Vec<u8>>>,
}

impl Printer {
    pub(crate) fn start(labels: bool, waker: Waker) -> io::Result<Printer> {
        let (sender, receiver) = channel::<(bool, Vec<u8>)>();
        let waiting = Arc::new(AtomicUsize::new(0));
        let left = waiting.clone();
        let print = move || {
            let mut unread = false;
            for (error, bytes) in receiver {
                let written = match error {
                    true => io::stderr().write_all(&bytes),
                    false => {
                        let mut out = io::stdout().lock();
                        out.write_all(&bytes).and_then(|()| out.flush())
                    }
                };
                left.fetch_sub(bytes.len(), Ordering::Relaxed);
                waker.tell(Wake::Printed);
                let closed = written.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe);
                if closed && !error && !std::mem::replace(&mut unread, true) {
                    waker.tell(Wake::Unread);
                }
            }
        };
        let thread = Some(thread::Builder::new().name("printer".to_owned()).spawn(print)?);
        let lines = labels.then(BTreeMap::new);
        Ok(Printer { sender: Some(sender), thread, waiting, lines })
    }

    pub(crate) fn has_room(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) < ROOM
    }

    /// Prints what a process wrote; with labels, line by line.
    pub(crate) fn print(&mut self, rank: u32, error: bool, bytes: Vec<u8>) {
        let Some(lines) = &mut self.lines else { return self.write(error, bytes) };
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
            self.write(error, labelled);
        }
    }

    fn write(&mut self, error: bool, bytes: Vec<u8>) {
        self.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
        if let Some(sender) = &self.sender {
            let _ = sender.send((error, bytes));
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

    /// Waits until all is written.
    pub(crate) fn finish(&mut self) {
        self.sender = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
