//! The inodes that the kernel knows: numbers on one side, names on the other.
//!
//! A node is kept as long as the kernel holds it (it counts lookups, and forgets so many at a
//! time), or something below it. Its path is not kept but put together from the names up to the
//! root: so that renaming a directory is one step, however much lies below.
//!
//! The number of a node is the server's where that is free, so that it stays the same from one
//! mount to the next, and two names of one file are one node.

use crate::{
    RelPath,
    protocol::{Attr, Kind},
};
use rustix::io::Errno;
use std::{
    collections::HashMap,
    hash::Hash,
    rc::Rc,
    time::{Duration, Instant},
};

/// The number of the root, in every FUSE file system.
pub(super) const ROOT: u64 = 1;

/// Numbers from here on are given where the server's cannot be used.
const OWN: u64 = 1 << 63;

#[derive(Debug)]
pub(super) struct Table {
    nodes: HashMap<u64, Node>,
    /// Our number by the server's.
    numbers: HashMap<u64, u64>,
    base: RelPath,
    next: u64,
}

#[derive(Debug)]
struct Node {
    attr: Attr,
    /// How long the kernel takes it to be: by the last answer, and what was written here since.
    shown: u64,
    /// When the answer to a change that was made here in this directory brought its attributes, if
    /// the kernel has not got them yet.
    recent: Option<Instant>,
    /// Told apart from an earlier file that had the same number.
    generation: u64,
    /// The last name is gone, and the server may give the number to another file.
    gone: bool,
    lookups: u64,
    /// Directory and name; what was found last is last. A directory has one.
    names: Vec<(u64, Rc<[u8]>)>,
    children: HashMap<Rc<[u8]>, u64>,
}

impl Node {
    fn new(attr: Attr) -> Node {
        let (names, children) = (Vec::new(), HashMap::new());
        let shown = attr.size;
        let (generation, lookups, gone, recent) = (0, 0, false, None);
        Node { attr, shown, recent, generation, gone, lookups, names, children }
    }
}

impl Table {
    /// `base` is what of the export is mounted, `root` what it is.
    pub(super) fn new(base: RelPath, root: Attr) -> Table {
        let nodes = HashMap::from([(ROOT, Node::new(root))]);
        Table { nodes, numbers: HashMap::from([(root.ino, ROOT)]), base, next: OWN }
    }

    /// How many nodes there are.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// What the server said last about a node.
    pub(super) fn attr(&self, ino: u64) -> Option<&Attr> {
        self.nodes.get(&ino).map(|node| &node.attr)
    }

    /// The node that has this number at the server.
    pub(super) fn known(&self, server: u64) -> Option<u64> {
        self.numbers.get(&server).copied()
    }

    /// The number that something has, or would have if it became known.
    pub(super) fn number(&self, server: u64) -> u64 {
        self.known(server).unwrap_or(server)
    }

    /// Notes what the server says about a node. `ESTALE` if it is about another file: another
    /// client has put that into its place.
    pub(super) fn update(&mut self, ino: u64, attr: &Attr) -> Result<(), Errno> {
        let node = self.nodes.get_mut(&ino).ok_or(Errno::STALE)?;
        if node.attr.ino != attr.ino && ino != ROOT {
            return Err(Errno::STALE);
        }
        node.attr = *attr;
        node.recent = None;
        Ok(())
    }

    /// A name was given or taken here in a directory, and the server said what that is since, if it
    /// did. The kernel makes one change in a directory after the other, so this is of the last one.
    pub(super) fn changed_in(&mut self, directory: u64, attr: Option<&Attr>) {
        let Some(node) = self.nodes.get_mut(&directory) else { return };
        node.recent = None;
        // Another mount may have put another one into its place.
        if let Some(attr) = attr.filter(|attr| attr.ino == node.attr.ino) {
            node.attr = *attr;
            node.recent = Some(Instant::now());
        }
    }

    /// The attributes that came with the last change in a directory, and for how much longer of
    /// `holds` they hold. Once: the kernel keeps them.
    pub(super) fn take_recent(&mut self, ino: u64, holds: Duration) -> Option<(Attr, Duration)> {
        let node = self.nodes.get_mut(&ino)?;
        let left = holds.checked_sub(node.recent.take()?.elapsed())?;
        (!left.is_zero()).then_some((node.attr, left))
    }

    /// The attributes that came with the last change in a directory are old by now.
    pub(super) fn drop_recent(&mut self, ino: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.recent = None;
        }
    }

    /// The kernel learns this length of a node.
    pub(super) fn set_shown(&mut self, ino: u64, size: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.shown = size;
        }
    }

    /// Something that ends there was written to a node here.
    pub(super) fn grow(&mut self, ino: u64, end: u64) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.shown = node.shown.max(end);
        }
    }

    /// Whether the kernel takes a node for as long as it is.
    pub(super) fn is_shown(&self, ino: u64, size: u64) -> bool {
        self.nodes.get(&ino).is_some_and(|node| node.shown == size)
    }

    /// Directories in which a node has a name.
    pub(super) fn parents(&self, ino: u64) -> Vec<u64> {
        let names = self.nodes.get(&ino).map_or(&[][..], |node| &node.names);
        names.iter().map(|(parent, _)| *parent).collect()
    }

    /// Where a node is, relative to the export. `ESTALE` if it has no name any more.
    pub(super) fn path(&self, ino: u64) -> Result<RelPath, Errno> {
        let below = self.below(ino)?;
        if below.is_empty() {
            return Ok(self.base.clone());
        }
        let path = [self.base.as_bytes(), b"/", &below].concat();
        RelPath::parse(&path).map_err(|error| crate::FsError::from(error).errno())
    }

    /// The same relative to the root of the mount.
    pub(super) fn below(&self, ino: u64) -> Result<Vec<u8>, Errno> {
        let mut names = Vec::new();
        let (mut at, mut len) = (ino, 0);
        while at != ROOT {
            let node = self.nodes.get(&at).ok_or(Errno::STALE)?;
            let (parent, name) = node.names.last().ok_or(Errno::STALE)?;
            len += name.len() + 1;
            // Also the end of a circle, which moves by others may make of names found before.
            if len > RelPath::MAX {
                return Err(Errno::NAMETOOLONG);
            }
            names.push(name);
            at = *parent;
        }
        let mut path = Vec::with_capacity(len);
        for name in names.into_iter().rev() {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        Ok(path)
    }

    /// The kernel learns of a name, and of what has it: gives that node's number and generation,
    /// and counts one lookup.
    pub(super) fn found(&mut self, parent: u64, name: &[u8], attr: &Attr) -> (u64, u64) {
        let ino = match self.numbers.get(&attr.ino) {
            Some(ino) => *ino,
            None => {
                let ino = self.free_number(attr.ino);
                self.numbers.insert(attr.ino, ino);
                self.nodes.insert(ino, Node::new(*attr));
                ino
            }
        };
        let node = self.nodes.get_mut(&ino).expect("numbers lead to nodes");
        if std::mem::take(&mut node.gone) {
            node.generation += 1;
        }
        node.attr = *attr;
        node.recent = None;
        node.shown = attr.size;
        node.lookups += 1;
        let generation = node.generation;
        self.attach(ino, parent, name);
        (ino, generation)
    }

    fn free_number(&mut self, server: u64) -> u64 {
        if server > ROOT && server < OWN && !self.nodes.contains_key(&server) {
            return server;
        }
        self.next += 1;
        self.next
    }

    /// The kernel gives up `lookups` of a node. True if the node is gone with that.
    pub(super) fn forget(&mut self, ino: u64, lookups: u64) -> bool {
        let Some(node) = self.nodes.get_mut(&ino) else { return false };
        node.lookups = node.lookups.saturating_sub(lookups);
        self.sweep(ino);
        !self.nodes.contains_key(&ino)
    }

    /// A name turned out to lead nowhere: another client removed it.
    pub(super) fn missing(&mut self, parent: u64, name: &[u8]) {
        if let Some(child) = self.detach(parent, name) {
            self.sweep(child);
        }
    }

    /// A name was removed here.
    pub(super) fn removed(&mut self, parent: u64, name: &[u8]) {
        let Some(child) = self.detach(parent, name) else { return };
        if let Some(node) = self.nodes.get_mut(&child) {
            node.attr.links = node.attr.links.saturating_sub(1);
            let last = node.attr.kind == Kind::Directory || node.attr.links == 0;
            node.gone = node.names.is_empty() && last;
        }
        self.sweep(child);
    }

    /// Something got another name here, in place of what had that.
    pub(super) fn renamed(&mut self, from: (u64, &[u8]), to: (u64, &[u8])) {
        let (moved, there) = (self.child(from), self.child(to));
        // Two names of one file: then the system does nothing.
        if moved.is_some() && moved == there {
            return;
        }
        self.removed(to.0, to.1);
        if let Some(moved) = self.detach(from.0, from.1) {
            self.attach(moved, to.0, to.1);
        }
    }

    /// Two names changed places here.
    pub(super) fn exchanged(&mut self, one: (u64, &[u8]), other: (u64, &[u8])) {
        let (first, second) = (self.detach(one.0, one.1), self.detach(other.0, other.1));
        if let Some(first) = first {
            self.attach(first, other.0, other.1);
        }
        if let Some(second) = second {
            self.attach(second, one.0, one.1);
        }
    }

    pub(super) fn child(&self, (parent, name): (u64, &[u8])) -> Option<u64> {
        self.nodes.get(&parent)?.children.get(name).copied()
    }

    fn attach(&mut self, ino: u64, parent: u64, name: &[u8]) {
        if self.child((parent, name)) != Some(ino) {
            self.missing(parent, name);
        }
        let node = self.nodes.get_mut(&ino).expect("what is attached is there");
        let at = node.names.iter().position(|(p, n)| *p == parent && **n == *name);
        let named = match at {
            Some(at) => node.names.remove(at),
            None => (parent, Rc::from(name)),
        };
        let others = match node.attr.kind {
            Kind::Directory => std::mem::take(&mut node.names),
            _ => Vec::new(),
        };
        let name = Rc::clone(&named.1);
        node.names.push(named);
        if let Some(directory) = self.nodes.get_mut(&parent) {
            directory.children.insert(name, ino);
        }
        for (parent, name) in others {
            if let Some(directory) = self.nodes.get_mut(&parent) {
                directory.children.remove(&name);
            }
            self.sweep(parent);
        }
    }

    fn detach(&mut self, parent: u64, name: &[u8]) -> Option<u64> {
        let children = &mut self.nodes.get_mut(&parent)?.children;
        let child = children.remove(name)?;
        shrink(children);
        if let Some(node) = self.nodes.get_mut(&child) {
            node.names.retain(|(p, n)| *p != parent || **n != *name);
        }
        Some(child)
    }

    /// Lets go of a node that is not needed, and then of the directories above that held on for it.
    fn sweep(&mut self, ino: u64) {
        let mut unneeded = vec![ino];
        while let Some(ino) = unneeded.pop() {
            let Some(node) = self.nodes.get(&ino) else { continue };
            if ino == ROOT || node.lookups > 0 || !node.children.is_empty() {
                continue;
            }
            let node = self.nodes.remove(&ino).expect("it was there");
            self.numbers.remove(&node.attr.ino);
            shrink(&mut self.nodes);
            shrink(&mut self.numbers);
            for (parent, name) in node.names {
                if let Some(directory) = self.nodes.get_mut(&parent) {
                    directory.children.remove(&name);
                    shrink(&mut directory.children);
                    unneeded.push(parent);
                }
            }
        }
    }
}

/// Gives memory back of a map that was much larger once: maps keep all that they ever had.
pub(super) fn shrink<K: Eq + Hash, V>(map: &mut HashMap<K, V>) {
    const SMALL: usize = 1024;
    if map.capacity() > SMALL && map.len() < map.capacity() / 8 {
        map.shrink_to(map.len() * 2);
    }
}

#[cfg(test)]
mod tests;
