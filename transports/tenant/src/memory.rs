//! Memory of this endpoint that the broker has mapped.

use crate::{
    control::Control,
    socket,
    wire::{MAX_PIECES, Piece, Pieces},
};
use petasos_fabric::Slice;
use petasos_shm::link::{self, File};
use rustix::fd::OwnedFd;
use std::collections::HashMap;

/// How much may be registered at a time, as the broker said.
#[derive(Clone, Copy, Default)]
pub(crate) struct Most {
    pub(crate) bytes: u64,
    pub(crate) files: u32,
}

/// The files that were registered with the broker.
#[derive(Default)]
pub(crate) struct Registered {
    files: HashMap<u64, File>,
    bytes: u64,
}

impl Registered {
    /// Where these slices lie for the broker, which is told of files that it does not know. `None`
    /// if some lie elsewhere, if there are too many, or if the broker takes no more memory.
    pub(crate) fn locate(
        &mut self,
        slices: &[Slice],
        most: Most,
        socket: &OwnedFd,
    ) -> Option<Pieces> {
        if slices.len() > MAX_PIECES {
            return None;
        }
        let mut pieces = Pieces::new();
        for slice in slices {
            let region = slice.region()?;
            let file = link::file_of(region)?;
            if !self.files.contains_key(&file.id) {
                let bytes =
                    self.bytes.checked_add(file.len as u64).filter(|all| *all <= most.bytes)?;
                let fd = link::descriptor_of(region)?.ok()?;
                let message = Control::File { id: file.id, len: file.len as u64 };
                if self.files.len() >= most.files as usize {
                    return None;
                }
                socket::send(socket, &message, Some(&fd)).ok()?;
                self.bytes = bytes;
                self.files.insert(file.id, file.clone());
            }
            let (offset, len) = (slice.offset() as u64, slice.len() as u64);
            pieces.push(Piece { file: file.id, offset, len });
        }
        Some(pieces)
    }

    /// Takes out a file in which no region lies any more.
    pub(crate) fn take_dead(&mut self) -> Option<u64> {
        let dead = self.files.values().find(|file| !file.is_alive()).map(|file| file.id)?;
        let file = self.files.remove(&dead)?;
        self.bytes -= file.len as u64;
        Some(dead)
    }
}
