//! Closes descriptors that came from tenants.
//!
//! To close a file is to tell its file system so, which may be a program of the tenant's; to close a
//! connection may be to wait until its peer has taken what was sent. So what a tenant sent, and what
//! may still lie in its socket, is closed in a thread of that tenant's own.

use rustix::{
    fd::OwnedFd,
    net::{Shutdown, shutdown},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    thread,
};

/// Descriptors of one tenant that may wait, until no more of its processes are let in. Beside these
/// there are those of its endpoints: each is one no more at its first message that is none.
const MOST: usize = 256;
/// Bytes of the stack of a thread that does nothing but this.
const STACK: usize = 64 << 10;

#[derive(Default)]
pub(super) struct Closer {
    thread: Option<Sender<OwnedFd>>,
    waiting: Arc<AtomicUsize>,
}

impl Closer {
    /// Closes a descriptor at some time.
    pub(super) fn close(&mut self, fd: OwnedFd) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        if self.thread.is_none() {
            let (sender, receiver) = channel::<OwnedFd>();
            let waiting = Arc::clone(&self.waiting);
            let close = move || {
                for fd in receiver {
                    drop(fd);
                    waiting.fetch_sub(1, Ordering::Relaxed);
                }
            };
            let thread = thread::Builder::new()
                .name("broker-close".to_owned())
                .stack_size(STACK)
                .spawn(close);
            self.thread = thread.ok().map(|_| sender);
        }
        let lost = match &self.thread {
            Some(thread) => thread.send(fd).err().map(|error| error.0),
            None => Some(fd),
        };
        // Rather a descriptor that is lost, and counted, than a broker that waits.
        lost.into_iter().for_each(std::mem::forget);
    }

    /// The same for a socket, whose other side hears the end at once.
    pub(super) fn close_socket(&mut self, socket: OwnedFd) {
        let _ = shutdown(&socket, Shutdown::Both);
        self.close(socket);
    }

    /// Whether more wait than should.
    pub(super) fn is_behind(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > MOST
    }
}
