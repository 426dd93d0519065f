//! One endpoint of a tenant, as the broker has it: its socket, its ring, its memory.

use crate::engine::PortId;
use petasos_fabric::{Region, Slice};
use petasos_shm::link::{self, Broken, Link};
use petasos_tenant::{
    control::Control,
    socket::{self},
    wire::{Answer, Encoded, Piece},
};
use rustix::fd::OwnedFd;
use std::{collections::HashMap, time::Instant};

pub(super) struct Port {
    pub(super) id: PortId,
    pub(super) tenant: usize,
    pub(super) socket: OwnedFd,
    pub(super) link: Link,
    files: HashMap<u64, Region>,
    /// When something last came; the ring is looked at in every pass until some time after it.
    pub(super) busy: Instant,
    /// Passes in which nothing came.
    pub(super) idle: u32,
    pub(super) asleep: bool,
    /// Whether its socket said that it has ended.
    pub(super) ended: bool,
}

impl Port {
    pub(super) fn new(id: PortId, tenant: usize, socket: OwnedFd, link: Link) -> Port {
        let files = HashMap::new();
        let busy = Instant::now();
        Port { id, tenant, socket, link, files, busy, idle: 0, asleep: false, ended: false }
    }

    /// Puts a message into the ring; false if there is no room.
    pub(super) fn send(&mut self, answer: &Answer<'_>) -> Result<bool, Broken> {
        let Encoded { head, rest } = answer.encode();
        self.put(&head, rest)
    }

    fn put(&mut self, head: &[u8], rest: &[u8]) -> Result<bool, Broken> {
        Ok(self.link.send(&[head, rest])?
            || (self.link.starve()? && self.link.send(&[head, rest])?))
    }

    /// Wakes the tenant, if it sleeps or waits for room. Never blocks: where the socket has no room
    /// doorbells are in it.
    pub(super) fn wake(&mut self) {
        let room = self.link.take_room();
        if self.link.take_sleeper() || room {
            let _ = socket::send(&self.socket, &Control::Doorbell, None);
        }
    }

    /// Maps a file of the tenant's.
    pub(super) fn register(&mut self, file: u64, fd: &OwnedFd, len: u64) -> Result<(), String> {
        let len = usize::try_from(len).map_err(|error| error.to_string())?;
        let region = link::adopt(fd, len).map_err(|error| error.to_string())?;
        self.files.insert(file, region);
        Ok(())
    }

    pub(super) fn has_file(&self, file: u64) -> bool {
        self.files.contains_key(&file)
    }

    pub(super) fn forget(&mut self, file: u64) {
        self.files.remove(&file);
    }

    /// These pieces as memory; `None` if there is no such memory any more.
    fn slices(&self, pieces: &[Piece]) -> Option<Vec<Slice>> {
        let slice = |piece: &Piece| {
            let (offset, len) = (usize::try_from(piece.offset), usize::try_from(piece.len));
            self.files.get(&piece.file)?.slice(offset.ok()?, len.ok()?)
        };
        pieces.iter().map(slice).collect()
    }

    /// Reads these pieces, one after the other.
    pub(super) fn read(&self, pieces: &[Piece], into: &mut Vec<u8>) -> Option<()> {
        into.clear();
        for slice in self.slices(pieces)? {
            slice.append_to(0, slice.len(), into);
        }
        Some(())
    }
}

/// Copies from memory of one port to that of another, which may be the same.
pub(super) fn copy(from: &Port, source: &[Piece], to: &Port, target: &[Piece]) -> Option<()> {
    let (source, target) = (from.slices(source)?, to.slices(target)?);
    let mut targets = target.into_iter();
    let mut room = targets.next();
    for mut left in source {
        while !left.is_empty() {
            let Some(here) = room.take() else { return Some(()) };
            let copied = left.copy_to(&here);
            left = left.part(copied, left.len() - copied)?;
            room = match here.len() - copied {
                0 => targets.next(),
                rest => here.part(copied, rest),
            };
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use petasos_tenant::socket::new;

    #[test]
    fn pieces_of_any_lengths_are_copied_in_order() {
        let port = |fill: u8| {
            let (fd, _) = Link::create().unwrap();
            let mut port = Port::new(PortId(1), 0, new().unwrap(), Link::adopt(&fd).unwrap());
            let memory = link::alloc(4096).unwrap();
            memory.write(0, &(0..4096).map(|at| at as u8 ^ fill).collect::<Vec<_>>());
            let fd = link::descriptor_of(&memory).unwrap().unwrap();
            port.register(5, &fd, 4096).unwrap();
            (port, memory)
        };
        let ((one, _), (two, memory)) = (port(0x55), port(0));
        let piece = |offset, len| Piece { file: 5, offset, len };
        let source = [piece(100, 10), piece(0, 0), piece(50, 30), piece(200, 1)];
        let target = [piece(1, 5), piece(1000, 25), piece(0, 0), piece(2000, 11)];
        copy(&one, &source, &two, &target).unwrap();
        let (mut sent, mut came) = (Vec::new(), Vec::new());
        one.read(&source, &mut sent).unwrap();
        two.read(&target, &mut came).unwrap();
        assert_eq!((sent.len(), &sent), (41, &came));
        assert_eq!(memory.to_vec()[0], 0, "nothing else was written");
        assert_eq!(memory.to_vec()[2011], 2011_u32 as u8);
        // Memory that is not there.
        assert!(copy(&one, &[Piece { file: 6, ..source[0] }], &two, &target).is_none());
        assert!(copy(&one, &[piece(4090, 7)], &two, &target).is_none());
        let (fd, _) = Link::create().unwrap();
        assert!(Port::new(PortId(1), 0, fd, Link::create().unwrap().1).slices(&source).is_none());
    }
}
