//! What threads tell the daemon's loop, which sleeps in `poll`.

use crate::{controller::Unwritten, inventory::Inventory, launch::NotPlaced};
use petasos_pmix::Node;
use std::{
    io::{Read, Write},
    net::TcpStream,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::mpsc::{Receiver, Sender, channel},
};

/// What happened elsewhere.
#[derive(Debug)]
pub(crate) enum Wake {
    /// A connection to a daemon was made, and this one has proved its identity.
    Dialled(Node, Result<TcpStream, String>),
    /// Whether the system of a node that is silent has answered.
    Asked(Node, bool),
    /// A signal came.
    Signal(i32),
    /// What this node has now.
    Inventory(Box<Inventory>),
    /// The files of the job are on all nodes, or cannot be.
    Placed(Result<(), NotPlaced>),
    /// Output was written.
    Printed,
    /// Output could not be written.
    Unwritten(Unwritten),
}

/// A thread's end.
#[derive(Debug)]
pub(crate) struct Waker {
    sender: Sender<Wake>,
    doorbell: UnixStream,
}

impl Waker {
    pub(crate) fn tell(&self, what: Wake) {
        if self.sender.send(what).is_ok() {
            // A full pipe rings as well.
            let _ = (&self.doorbell).write(&[1]);
        }
    }

    pub(crate) fn another(&self) -> std::io::Result<Waker> {
        Ok(Waker { sender: self.sender.clone(), doorbell: self.doorbell.try_clone()? })
    }
}

/// The loop's end.
#[derive(Debug)]
pub(crate) struct Wakes {
    receiver: Receiver<Wake>,
    doorbell: UnixStream,
}

impl Wakes {
    pub(crate) fn make() -> std::io::Result<(Waker, Wakes)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let (sender, receiver) = channel();
        Ok((Waker { sender, doorbell: theirs }, Wakes { receiver, doorbell: ours }))
    }

    /// All that was told.
    pub(crate) fn take(&mut self) -> Vec<Wake> {
        let mut rings = [0; 256];
        while self.doorbell.read(&mut rings).is_ok_and(|read| read == rings.len()) {}
        self.receiver.try_iter().collect()
    }
}

impl AsFd for Wakes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}
