//! A local tree as it is sent: threads look into directories and read small files ahead of the
//! engine, which takes what is ready.
//!
//! A directory is always ready before anything in it.

use super::{
    Cause, Options, Problem, Progress,
    disk::Rate,
    index::{Decision, Index},
    local::{self, Root},
};
use crate::{
    RelPath,
    protocol::{Attr, Hash, Kind},
};
use bytes::Bytes;
use rustix::{
    fs::{AtFlags, Dir, OFlags, fstat, openat, readlinkat, statat},
    io::Errno,
};
use std::{
    collections::{HashMap, VecDeque},
    ffi::{CString, OsStr},
    future::poll_fn,
    io, mem,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
    task::{Poll, Waker},
    thread,
};

/// Files that one thread takes at a time.
const CHUNK: usize = 32;

/// Bytes that are ready before threads wait for the engine, and things.
const READY_BYTES: usize = 8 << 20;
const READY_ITEMS: usize = 4096;

/// What is handed over at once.
const BATCH_BYTES: usize = 256 << 10;

/// Files that were found ahead of those that are read.
const AHEAD: usize = 100_000;

/// One tree, or one file, that is to be sent.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) root: Root,
    /// Below the root: the name, or nothing, when what is in the root itself is sent.
    pub(super) from: RelPath,
    /// What that is at the server.
    pub(super) to: RelPath,
}

impl Tree {
    /// What something at the server is called here.
    fn target(&self, path: &RelPath) -> Result<RelPath, crate::PathError> {
        let below = &path.as_bytes()[self.from.as_bytes().len()..];
        RelPath::parse(&[self.to.as_bytes(), b"/", below].concat())
    }

    /// The path within the tree, as patterns and reports know it.
    pub(super) fn within<'a>(&self, path: &'a RelPath) -> &'a [u8] {
        let below = &path.as_bytes()[self.from.as_bytes().len()..];
        below.strip_prefix(b"/").unwrap_or(below)
    }
}

/// Something that is ready to be sent.
pub(super) struct Item {
    pub(super) tree: Arc<Tree>,
    pub(super) path: RelPath,
    pub(super) to: RelPath,
    pub(super) what: ItemKind,
}

pub(super) enum ItemKind {
    /// `there`: at the server already.
    Directory {
        attr: Attr,
        there: bool,
    },
    Small {
        attr: Attr,
        data: Bytes,
        hash: Option<Hash>,
    },
    /// To be read in pieces. `compare`: it may be the same already.
    Large {
        attr: Attr,
        compare: bool,
    },
    /// Only its attributes differ.
    Attributes {
        attr: Attr,
    },
    Symlink {
        attr: Attr,
        target: Vec<u8>,
    },
    Fifo {
        attr: Attr,
    },
    HardLink {
        first: RelPath,
    },
    /// Would be sent.
    Would,
    LeftOut(&'static str),
    /// It is there, of so many bytes.
    Same(u64),
    Problem(Cause),
}

/// What the threads need to know.
pub(super) struct Plan {
    pub(super) options: Options,
    /// The longest file that is read as a whole.
    pub(super) small: u64,
    /// What is at the server, where that matters.
    pub(super) index: Option<Arc<Index>>,
    /// Nothing is read.
    pub(super) dry: bool,
    pub(super) progress: Arc<Progress>,
    pub(super) rate: Option<Arc<Rate>>,
}

/// The threads, and what they found.
pub(super) struct Source {
    shared: Arc<Shared>,
    taken: VecDeque<Item>,
}

struct Shared {
    plan: Plan,
    state: Mutex<State>,
    /// Something to do, or the end.
    work: Condvar,
    /// Room for what is ready.
    room: Condvar,
    /// The first names of files that have several.
    names: Mutex<HashMap<(u64, u64), RelPath>>,
}

#[derive(Default)]
struct State {
    directories: VecDeque<(Arc<Tree>, RelPath)>,
    files: VecDeque<Chunk>,
    waiting_files: usize,
    working: usize,
    ready: VecDeque<Item>,
    ready_bytes: usize,
    waker: Option<Waker>,
    closed: bool,
}

/// Files of one directory.
struct Chunk {
    tree: Arc<Tree>,
    directory: RelPath,
    names: Vec<(CString, Attr)>,
}

enum Work {
    Look(Arc<Tree>, RelPath),
    Read(Chunk),
}

impl Source {
    /// Begins to look at these trees.
    pub(super) fn start(trees: Vec<Tree>, plan: Plan, threads: usize) -> io::Result<Source> {
        let shared = Arc::new(Shared {
            plan,
            state: Mutex::default(),
            work: Condvar::new(),
            room: Condvar::new(),
            names: Mutex::default(),
        });
        let trees: Vec<_> = trees.into_iter().map(Arc::new).collect();
        let source = Source { shared: Arc::clone(&shared), taken: VecDeque::new() };
        shared.lock().working = 1;
        let first = Arc::clone(&shared);
        let begin = move || {
            trees.iter().for_each(|tree| first.top(tree));
            first.done();
            first.work();
        };
        thread::Builder::new().name("reading".to_owned()).spawn(begin)?;
        for _ in 1..threads {
            let shared = Arc::clone(&shared);
            thread::Builder::new().name("reading".to_owned()).spawn(move || shared.work())?;
        }
        Ok(source)
    }

    /// The next thing to be sent; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<Item> {
        if let Some(item) = self.taken.pop_front() {
            return Some(item);
        }
        let (shared, taken) = (&self.shared, &mut self.taken);
        poll_fn(|context| {
            let mut state = shared.lock();
            if state.ready.is_empty() {
                if state.working == 0 && state.files.is_empty() && state.directories.is_empty() {
                    return Poll::Ready(None);
                }
                state.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            mem::swap(taken, &mut state.ready);
            state.ready_bytes = 0;
            drop(state);
            shared.room.notify_all();
            Poll::Ready(taken.pop_front())
        })
        .await
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
        self.shared.room.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self) {
        while let Some(work) = self.next() {
            match work {
                Work::Look(tree, path) => self.look(&tree, &path),
                Work::Read(chunk) => self.read(chunk),
            }
            self.done();
        }
    }

    /// A piece of work is done; it may have been the last.
    fn done(&self) {
        let mut state = self.lock();
        state.working -= 1;
        if state.directories.is_empty() {
            self.plan.progress.all_found.store(state.working == 0, Relaxed);
        }
        if state.working == 0 && state.files.is_empty() && state.directories.is_empty() {
            self.work.notify_all();
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Directories first, so that it is soon known how much there is.
    fn next(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            let look = state.waiting_files < AHEAD || state.files.is_empty();
            if look && let Some((tree, path)) = state.directories.pop_front() {
                state.working += 1;
                return Some(Work::Look(tree, path));
            }
            if let Some(chunk) = state.files.pop_front() {
                state.waiting_files -= chunk.names.len();
                state.working += 1;
                return Some(Work::Read(chunk));
            }
            if state.working == 0 {
                return None;
            }
            state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Hands over what is ready, when there is room.
    fn ready(&self, items: &mut Vec<Item>, bytes: usize) {
        if items.is_empty() {
            return;
        }
        let mut state = self.lock();
        while !state.closed
            && !state.ready.is_empty()
            && (state.ready_bytes + bytes > READY_BYTES || state.ready.len() > READY_ITEMS)
        {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.ready.extend(items.drain(..));
        state.ready_bytes += bytes;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// What the user named.
    fn top(&self, tree: &Arc<Tree>) {
        let found = match tree.from.split() {
            None => tree.root.directory(&tree.from).and_then(|fd| fstat(&fd)).map(|s| (None, s)),
            Some((parent, name)) => tree.root.directory(&parent).and_then(|fd| {
                let stat = statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
                Ok((Some((parent, name.to_owned())), stat))
            }),
        };
        let mut items = Vec::new();
        let (place, attr) = match found {
            Ok((place, stat)) => (place, local::attr(&stat)),
            Err(error) => {
                let cause = Cause::Local { doing: "reading its attributes", error };
                self.problem(tree, &tree.from, cause, &mut items);
                return self.ready(&mut items, 0);
            }
        };
        match place {
            Some((parent, name)) if attr.kind != Kind::Directory => {
                let name = CString::new(name.as_bytes()).expect("a path has no zero byte");
                if attr.kind == Kind::File {
                    self.plan.progress.found(attr.size);
                }
                let names = vec![(name, attr)];
                self.read(Chunk { tree: Arc::clone(tree), directory: parent, names });
            }
            _ => {
                let there = self.there(tree, &tree.from, &attr);
                let what = ItemKind::Directory { attr, there };
                items.push(item(tree, &tree.from, tree.to.clone(), what));
                self.ready(&mut items, 0);
                let mut state = self.lock();
                state.directories.push_back((Arc::clone(tree), tree.from.clone()));
                self.work.notify_one();
            }
        }
    }

    /// Whether a directory is at the server already.
    fn there(&self, tree: &Tree, path: &RelPath, attr: &Attr) -> bool {
        let decided = self.plan.index.as_ref().map(|index| index.decide(tree.within(path), attr));
        matches!(decided, Some(Decision::Same | Decision::Attributes))
    }

    fn problem(&self, tree: &Arc<Tree>, path: &RelPath, cause: Cause, items: &mut Vec<Item>) {
        if let Some(index) = &self.plan.index {
            index.incomplete();
        }
        items.push(item(tree, path, RelPath::root(), ItemKind::Problem(cause)));
    }

    /// Looks into a directory.
    fn look(&self, tree: &Arc<Tree>, path: &RelPath) {
        let mut items = Vec::new();
        let (mut chunks, mut below) = (Vec::new(), Vec::new());
        let mut names = Vec::new();
        let looked = tree.root.directory(path).and_then(|fd| {
            for entry in Dir::read_from(&fd)? {
                let entry = entry?;
                let name = entry.file_name();
                if matches!(name.to_bytes(), b"." | b"..") {
                    continue;
                }
                let path = match path.join(name.to_bytes()) {
                    Ok(path) => path,
                    Err(error) => {
                        let path = [path.as_bytes(), b"/", name.to_bytes()].concat();
                        let what = ItemKind::Problem(error.into());
                        let mut item = item(tree, &tree.from, RelPath::root(), what);
                        // A name that is none here: say it as it is.
                        item.path = RelPath::parse(&path).unwrap_or_else(|_| tree.from.clone());
                        items.push(item);
                        continue;
                    }
                };
                let attr = match statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) => local::attr(&stat),
                    // Gone meanwhile: as if it had never been there.
                    Err(Errno::NOENT) => continue,
                    Err(error) => {
                        let cause = Cause::Local { doing: "reading its attributes", error };
                        self.problem(tree, &path, cause, &mut items);
                        continue;
                    }
                };
                let directory = attr.kind == Kind::Directory;
                if self.plan.options.excludes(tree.within(&path), directory) {
                    continue;
                }
                match (tree.target(&path), directory) {
                    (Err(error), _) => self.problem(tree, &path, error.into(), &mut items),
                    (Ok(to), true) => {
                        let there = self.there(tree, &path, &attr);
                        items.push(item(tree, &path, to, ItemKind::Directory { attr, there }));
                        below.push((Arc::clone(tree), path));
                    }
                    (Ok(_), false) => {
                        if attr.kind == Kind::File {
                            self.plan.progress.found(attr.size);
                        }
                        names.push((name.to_owned(), attr));
                        if names.len() == CHUNK {
                            chunks.push(mem::take(&mut names));
                        }
                    }
                }
            }
            Ok(())
        });
        if let Err(error) = looked {
            let cause = Cause::Local { doing: "looking into it", error };
            self.problem(tree, path, cause, &mut items);
        }
        if !names.is_empty() {
            chunks.push(names);
        }
        self.ready(&mut items, 0);
        let mut state = self.lock();
        state.directories.extend(below);
        for names in chunks {
            state.waiting_files += names.len();
            state.files.push_back(Chunk { tree: Arc::clone(tree), directory: path.clone(), names });
        }
        drop(state);
        self.work.notify_all();
    }

    /// Reads what is small.
    fn read(&self, chunk: Chunk) {
        let Chunk { tree, directory, names } = chunk;
        let (mut items, mut bytes) = (Vec::new(), 0);
        let fd = match tree.root.directory(&directory) {
            Ok(fd) => fd,
            Err(error) => {
                let cause = Cause::Local { doing: "looking into it", error };
                self.problem(&tree, &directory, cause, &mut items);
                return self.ready(&mut items, 0);
            }
        };
        for (name, attr) in names {
            // Both were checked when it was found, but for the one that the user named.
            let path = directory.join(name.to_bytes());
            let target = path.clone().and_then(|path| tree.target(&path));
            let (path, to) = match (path, target) {
                (Ok(path), Ok(to)) => (path, to),
                (_, Err(error)) | (Err(error), _) => {
                    self.problem(&tree, &directory, error.into(), &mut items);
                    continue;
                }
            };
            let what = self.one(&tree, fd.as_fd(), &name, &path, attr);
            bytes += match &what {
                ItemKind::Small { data, .. } => data.len(),
                _ => 0,
            };
            items.push(item(&tree, &path, to, what));
            if bytes >= BATCH_BYTES {
                self.ready(&mut items, bytes);
                bytes = 0;
            }
            if self.lock().closed {
                return;
            }
        }
        self.ready(&mut items, bytes);
    }

    fn one(
        &self,
        tree: &Tree,
        fd: BorrowedFd<'_>,
        name: &CString,
        path: &RelPath,
        attr: Attr,
    ) -> ItemKind {
        let Plan { options, small, index, dry, .. } = &self.plan;
        let unwanted = match attr.kind {
            Kind::Fifo if !options.fifos => Some("a FIFO"),
            Kind::Socket => Some("a socket"),
            Kind::CharDevice | Kind::BlockDevice => Some("a device"),
            _ => None,
        };
        if let Some(what) = unwanted {
            return ItemKind::LeftOut(what);
        }
        // Names beside the first one are only ever linked.
        let first = match (attr.kind, attr.links) {
            (Kind::File, 2..) => self.first_name(fd, name, path),
            _ => None,
        };
        let decided = index.as_ref().map_or(Decision::Send, |i| i.decide(tree.within(path), &attr));
        if let (Some(first), false) = (first, *dry) {
            return ItemKind::HardLink { first };
        }
        match decided {
            Decision::Same => return ItemKind::Same(attr.size),
            _ if *dry && decided != Decision::Compare => return ItemKind::Would,
            Decision::Attributes => return ItemKind::Attributes { attr },
            Decision::Compare => return ItemKind::Large { attr, compare: true },
            Decision::Send => {}
        }
        match attr.kind {
            Kind::Symlink => match readlinkat(fd, &**name, Vec::new()) {
                Ok(target) => ItemKind::Symlink { attr, target: target.into_bytes() },
                Err(error) => ItemKind::Problem(Cause::Local { doing: "reading the link", error }),
            },
            Kind::Fifo => ItemKind::Fifo { attr },
            _ => {
                if attr.size > *small {
                    return ItemKind::Large { attr, compare: false };
                }
                self.small(fd, name).unwrap_or_else(ItemKind::Problem)
            }
        }
    }

    /// The first name of this file, if it is not this one.
    fn first_name(&self, fd: BorrowedFd<'_>, name: &CString, path: &RelPath) -> Option<RelPath> {
        let stat = statat(fd, &**name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let first = names.entry((stat.st_dev, stat.st_ino)).or_insert_with(|| path.clone());
        (first != path).then(|| first.clone())
    }

    fn small(&self, fd: BorrowedFd<'_>, name: &CString) -> Result<ItemKind, Cause> {
        let reading = Cause::local("reading");
        let file = open(fd, OsStr::from_bytes(name.to_bytes())).map_err(Cause::local("opening"))?;
        let attr = local::attr(&fstat(&file).map_err(&reading)?);
        if attr.kind != Kind::File {
            return Err(Cause::Changed);
        }
        let holes = local::has_holes(&attr)
            && local::data(&file, attr.size).map_err(&reading)?.iter().map(|e| e.len).sum::<u64>()
                < attr.size;
        if attr.size > self.plan.small || holes {
            return Ok(ItemKind::Large { attr, compare: false });
        }
        if let Some(rate) = &self.plan.rate {
            rate.pay(attr.size);
        }
        let mut data = vec![0; attr.size as usize];
        let mut filled = 0;
        while filled < data.len() {
            match rustix::io::pread(&file, &mut data[filled..], filled as u64) {
                Ok(0) => return Err(Cause::Changed),
                Ok(read) => filled += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(reading(error)),
            }
        }
        unchanged(&attr, &local::attr(&fstat(&file).map_err(&reading)?))?;
        let hash = self.plan.options.checksum.then(|| *blake3::hash(&data).as_bytes());
        Ok(ItemKind::Small { attr, data: Bytes::from(data), hash })
    }
}

/// Opens a file to be read, and nothing that would wait or act.
fn open(fd: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    openat(fd, name, flags, rustix::fs::Mode::empty())
}

/// Whether a file is the one it was before.
pub(super) fn unchanged(before: &Attr, after: &Attr) -> Result<(), Cause> {
    match (before.size, before.mtime) == (after.size, after.mtime) {
        true => Ok(()),
        false => Err(Cause::Changed),
    }
}

fn item(tree: &Arc<Tree>, path: &RelPath, to: RelPath, what: ItemKind) -> Item {
    Item { tree: Arc::clone(tree), path: path.clone(), to, what }
}

/// For reports.
impl Item {
    pub(super) fn problem(&self, cause: Cause) -> Problem {
        Problem { path: self.tree.root.describe(&self.path), cause }
    }
}
