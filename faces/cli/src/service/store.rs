//! A store of files, behind `petasos quickstart`: the server moves the data, block by block, while
//! earlier blocks go to the disk.

use super::place::Root;
use crate::scratch;
use petasos::{BlockStream, BulkHandle, Context, RemoteBulk, Wire, fabric::Region, service};
use std::{
    cell::{Cell, RefCell},
    fs,
    future::pending,
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};

/// Bytes that are moved at once: in a cache, so that copying them on costs little.
const BLOCK: usize = 512 << 10;

/// Blocks on the way while one is written or read.
const DEPTH: usize = 4;

/// Something in the store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Wire)]
pub struct Entry {
    /// Its path within the store.
    pub path: Vec<u8>,
    /// Its permissions. Zero for links, which have none.
    pub mode: u32,
    /// What it is.
    pub kind: Kind,
}

/// What something in the store is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Wire)]
pub enum Kind {
    /// A directory.
    Directory,
    /// A file of so many bytes.
    File(u64),
    /// A symbolic link, and what it says.
    Link(Vec<u8>),
}

/// Where a complete file belongs.
#[derive(Clone, Debug, Wire)]
pub struct Place {
    /// Its path within the store.
    pub path: Vec<u8>,
    /// Its permissions.
    pub mode: u32,
    /// Its length, which must have come.
    pub len: u64,
}

/// Keeps files.
#[service(name = "petasos.Store")]
pub trait Store {
    /// Has the store for the caller alone, empty, until the caller gives this call up or is gone;
    /// then it is emptied. Answered only with a refusal.
    async fn hold(&self) -> Result<(), String>;
    /// Makes a directory, or a symbolic link.
    async fn make(&self, entry: Entry) -> Result<(), String>;
    /// Writes a piece of file number `file`, which the server pulls out of the caller's memory.
    /// With a place, the file is complete then, and appears there.
    async fn write(
        &self,
        context: Context,
        file: u64,
        offset: u64,
        data: BulkHandle,
        place: Option<Place>,
    ) -> Result<(), String>;
    /// Reads from `offset` on, as much as the caller's memory holds, to which the server pushes.
    async fn read(
        &self,
        context: Context,
        path: Vec<u8>,
        offset: u64,
        into: BulkHandle,
    ) -> Result<(), String>;
    /// Sets permissions: of directories, once all is in them.
    async fn set_mode(&self, path: Vec<u8>, mode: u32) -> Result<(), String>;
    /// All that there is, in order.
    async fn list(&self) -> Result<Vec<Entry>, String>;
}

/// The implementation.
pub struct Stored {
    path: PathBuf,
    /// What is under way when the store is emptied goes on in directories that have no name any more.
    directories: RefCell<Arc<Directories>>,
    held: Cell<bool>,
}

/// A directory of complete files, and one of files under way.
struct Directories {
    tree: Root,
    parts: Root,
}

/// Empties the store at the end.
struct Holding<'a>(&'a Stored);

impl Drop for Holding<'_> {
    fn drop(&mut self) {
        // Where this fails the next one is told so.
        let _ = self.0.empty();
        self.0.held.set(false);
    }
}

const TREE: &str = "tree";
const PARTS: &str = "parts";

impl Stored {
    /// Keeps files in two directories that it makes in `path`.
    pub fn new(path: &Path) -> io::Result<Stored> {
        let directories = RefCell::new(Arc::new(Directories::make(path)?));
        Ok(Stored { path: path.to_owned(), directories, held: Cell::new(false) })
    }

    fn empty(&self) -> io::Result<()> {
        [TREE, PARTS].iter().for_each(|name| scratch::remove(&self.path.join(name)));
        *self.directories.borrow_mut() = Arc::new(Directories::make(&self.path)?);
        Ok(())
    }

    fn now(&self) -> Arc<Directories> {
        self.directories.borrow().clone()
    }
}

impl Directories {
    fn make(path: &Path) -> io::Result<Directories> {
        let make = |name| {
            let path = path.join(name);
            fs::create_dir(&path)?;
            Root::open(&path)
        };
        Ok(Directories { tree: make(TREE)?, parts: make(PARTS)? })
    }

    fn finish(&self, part: &str, file: &fs::File, place: &Place) -> io::Result<()> {
        let len = file.metadata()?.len();
        if len != place.len {
            return Err(io::Error::other(format!("{len} bytes came of {}", place.len)));
        }
        file.set_permissions(fs::Permissions::from_mode(place.mode & 0o7777))?;
        self.tree.adopt(&self.parts, part.as_bytes(), &place.path)
    }
}

/// Words for the caller: which file, and what the system said.
fn say(path: &[u8], error: impl std::fmt::Display) -> String {
    format!("{}: {error}", String::from_utf8_lossy(path))
}

async fn store(
    mut blocks: BlockStream,
    file: &fs::File,
    offset: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut buffer = vec![0; BLOCK];
    while let Some(block) = blocks.next().await {
        let block = block?;
        let bytes = &mut buffer[..block.len()];
        block.read(0, bytes);
        file.write_all_at(bytes, offset + block.offset)?;
    }
    Ok(())
}

async fn load(
    remote: &RemoteBulk,
    file: &fs::File,
    offset: u64,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut sink = remote.sink(DEPTH);
    let mut spare: Option<Region> = None;
    let mut at = 0;
    while at < remote.len() {
        let len = (remote.len() - at).min(BLOCK as u64) as usize;
        let memory = spare.take().and_then(|region| region.into_exclusive().ok());
        let mut memory = match memory {
            Some(memory) => memory,
            None => Region::zeroed(BLOCK).into_exclusive().map_err(|_| "memory in use")?,
        };
        file.read_exact_at(&mut memory[..len], offset + at)?;
        let block = memory.into_region().slice(0, len).ok_or("a block holds a block")?;
        spare = sink.push(at, block).await?.map(|done| done.region().clone());
        at += len as u64;
    }
    Ok(sink.finish().await?)
}

impl Store for Stored {
    async fn hold(&self) -> Result<(), String> {
        if self.held.replace(true) {
            return Err("another client has its files here".to_owned());
        }
        let _holding = Holding(self);
        self.empty().map_err(|error| format!("making room for files: {error}"))?;
        pending().await
    }

    async fn make(&self, entry: Entry) -> Result<(), String> {
        let made = match &entry.kind {
            Kind::Directory => self.now().tree.make_directory(&entry.path),
            Kind::Link(to) => self.now().tree.make_link(&entry.path, to),
            Kind::File(_) => Err(io::Error::other("files are written, not made")),
        };
        made.map_err(|error| say(&entry.path, error))
    }

    async fn write(
        &self,
        context: Context,
        file: u64,
        offset: u64,
        data: BulkHandle,
        place: Option<Place>,
    ) -> Result<(), String> {
        let part = format!("{file:016x}");
        let failed = |error: &dyn std::fmt::Display| match &place {
            Some(place) => say(&place.path, error),
            None => format!("at byte {offset}: {error}"),
        };
        let directories = self.now();
        let open = directories.parts.open_to_write(part.as_bytes()).map_err(|e| failed(&e))?;
        let remote = context.engine().open(&data).map_err(|e| failed(&e))?;
        if offset.checked_add(remote.len()).is_none_or(|end| end > i64::MAX as u64) {
            return Err(failed(&"no file is that long"));
        }
        store(remote.blocks(BLOCK, DEPTH), &open, offset).await.map_err(|e| failed(&e))?;
        match &place {
            Some(place) => directories.finish(&part, &open, place).map_err(|e| failed(&e)),
            None => Ok(()),
        }
    }

    async fn read(
        &self,
        context: Context,
        path: Vec<u8>,
        offset: u64,
        into: BulkHandle,
    ) -> Result<(), String> {
        let file = self.now().tree.open_to_read(&path).map_err(|e| say(&path, e))?;
        let remote = context.engine().open(&into).map_err(|e| say(&path, e))?;
        load(&remote, &file, offset).await.map_err(|e| say(&path, e))
    }

    async fn set_mode(&self, path: Vec<u8>, mode: u32) -> Result<(), String> {
        self.now().tree.set_mode(&path, mode).map_err(|error| say(&path, error))
    }

    async fn list(&self) -> Result<Vec<Entry>, String> {
        let (mut found, _) =
            crate::tree::walk(&self.path.join(TREE)).map_err(|error| error.to_string())?;
        found.sort();
        Ok(found)
    }
}

impl Entry {
    /// Its path, to be used below a directory.
    pub fn path(&self) -> &Path {
        Path::new(std::ffi::OsStr::from_bytes(&self.path))
    }
}
