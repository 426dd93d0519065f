//! What client and server say to each other: one interface, and the types that travel.
//!
//! A caller names its session in each call. Nodes are named by a path, or by the number of a file
//! that the session has open. Small data travels within the calls; large data is lent, and the
//! server moves it, block by block.
//!
//! Calls that give or take a name tell what its directory is then, in a session whose client wants
//! to know: `None` in others, and where the directory could not be looked at.

mod types;

pub use types::*;

use crate::FsResult;
use bytes::Bytes;
use petasos::{BulkHandle, Context, service};

/// Number of this protocol. Both sides must have the same.
pub const VERSION: u32 = 4;

/// Serves files. Paths are bytes, relative to the root of the export.
#[service(name = "petasos.Forward")]
pub trait Forward {
    /// Offers a session, for ten seconds. The server keeps nothing of it.
    async fn hello(&self, context: Context, hello: Hello) -> FsResult<Welcome>;
    /// Begins the session that was offered, and keeps it: is not answered before it ends. When the
    /// caller dies or gives this call up, the session ends. `name` is for people that read the
    /// status; at most 256 bytes of it count. With `directories` the client wants to know what
    /// directories are in which it gives or takes names.
    async fn hold(
        &self,
        context: Context,
        session: u64,
        ticket: Ticket,
        name: String,
        directories: bool,
    ) -> FsResult<()>;
    /// Says that the client is there, as any call of its session does: see `Welcome::lease_ms`.
    async fn renew(&self, session: u64) -> FsResult<()>;
    /// Ends the session.
    async fn goodbye(&self, session: u64) -> FsResult<()>;
    /// What the server does, and for which clients.
    async fn status(&self) -> Status;

    /// What something is.
    async fn stat(&self, session: u64, node: Node, follow: bool) -> FsResult<Attr>;
    /// Changes attributes, its length among them.
    async fn set_attr(
        &self,
        session: u64,
        node: Node,
        set: SetAttr,
        follow: bool,
    ) -> FsResult<Attr>;
    /// Opens a directory and gives the first page; without a number where that was all.
    async fn open_dir(&self, session: u64, path: Vec<u8>) -> FsResult<(u64, Page)>;
    /// The next page of an open directory.
    async fn read_dir(&self, session: u64, dir: u64) -> FsResult<Page>;
    /// Makes a directory.
    async fn make_dir(
        &self,
        session: u64,
        path: Vec<u8>,
        creation: Creation,
    ) -> FsResult<(Attr, Option<Attr>)>;
    /// Makes a symbolic link that says `target`.
    async fn make_symlink(
        &self,
        session: u64,
        path: Vec<u8>,
        target: Vec<u8>,
    ) -> FsResult<(Attr, Option<Attr>)>;
    /// Makes a file that is no ordinary one: a FIFO or a socket.
    async fn make_node(
        &self,
        session: u64,
        path: Vec<u8>,
        kind: Kind,
        creation: Creation,
    ) -> FsResult<(Attr, Option<Attr>)>;
    /// What a symbolic link says.
    async fn read_link(&self, session: u64, path: Vec<u8>) -> FsResult<Vec<u8>>;
    /// Gives a file another name beside the one it has.
    async fn hard_link(
        &self,
        session: u64,
        from: Vec<u8>,
        to: Vec<u8>,
    ) -> FsResult<(Attr, Option<Attr>)>;
    /// Gives something another name. Tells of the directory that it was in, and of that which it is
    /// in.
    async fn rename(
        &self,
        session: u64,
        from: Vec<u8>,
        to: Vec<u8>,
        mode: RenameMode,
    ) -> FsResult<(Option<Attr>, Option<Attr>)>;
    /// Removes a file, or an empty directory.
    async fn remove(&self, session: u64, path: Vec<u8>, directory: bool) -> FsResult<Option<Attr>>;
    /// How full the file system is.
    async fn stat_fs(&self, session: u64) -> FsResult<StatFs>;
    /// An extended attribute.
    async fn get_xattr(&self, session: u64, node: Node, name: Vec<u8>) -> FsResult<Bytes>;
    /// The names of all extended attributes.
    async fn list_xattr(&self, session: u64, node: Node) -> FsResult<Vec<Vec<u8>>>;
    /// Sets an extended attribute.
    async fn set_xattr(
        &self,
        session: u64,
        node: Node,
        name: Vec<u8>,
        value: Bytes,
        mode: XattrMode,
    ) -> FsResult<()>;
    /// Removes an extended attribute.
    async fn remove_xattr(&self, session: u64, node: Node, name: Vec<u8>) -> FsResult<()>;

    /// Opens a file; gives its number in this session. Tells of the directory only with `CREATE`.
    async fn open(
        &self,
        session: u64,
        path: Vec<u8>,
        flags: OpenFlags,
        creation: Creation,
    ) -> FsResult<(u64, Attr, Option<Attr>)>;
    /// Opens a file once more that the session has open, whatever its name is by now; gives another
    /// number. `CREATE` and `EXCLUSIVE` mean nothing here.
    async fn reopen(&self, session: u64, file: u64, flags: OpenFlags) -> FsResult<(u64, Attr)>;
    /// Closes a file or a directory; its locks are free then.
    async fn close(&self, session: u64, file: u64) -> FsResult<()>;
    /// Reads up to `len` bytes, at most `Welcome::inline`; fewer at the end of the file only.
    async fn read(&self, session: u64, file: u64, offset: u64, len: u64) -> FsResult<Bytes>;
    /// Reads into the caller's memory as much as that holds; gives how much there was.
    async fn read_into(
        &self,
        context: Context,
        session: u64,
        file: u64,
        offset: u64,
        into: BulkHandle,
    ) -> FsResult<u64>;
    /// Writes all of `data`; gives where it ended, which with `APPEND` only the server knows.
    async fn write(&self, session: u64, file: u64, offset: u64, data: Bytes) -> FsResult<u64>;
    /// Writes all of the caller's memory.
    async fn write_from(
        &self,
        context: Context,
        session: u64,
        file: u64,
        offset: u64,
        data: BulkHandle,
    ) -> FsResult<u64>;
    /// Puts what was written onto the disk.
    async fn sync(&self, session: u64, file: u64, data_only: bool) -> FsResult<()>;
    /// Reserves room, or makes a hole.
    async fn allocate(
        &self,
        session: u64,
        file: u64,
        how: Allocation,
        range: Extent,
    ) -> FsResult<()>;
    /// Where there is data, from `offset` on: in order, at most 1,024 pieces. What lies between
    /// them, and after the last of fewer, are holes.
    async fn extents(&self, session: u64, file: u64, offset: u64) -> FsResult<Vec<Extent>>;
    /// BLAKE3 of each `block` bytes (the last may be shorter) of a part of a file.
    async fn hashes(
        &self,
        session: u64,
        file: u64,
        range: Extent,
        block: u64,
    ) -> FsResult<Vec<Hash>>;
    /// Locks a part of a file, or says which lock is in the way. `wait`: for as long as the call's
    /// deadline allows.
    async fn lock(&self, session: u64, file: u64, lock: Lock, wait: bool) -> FsResult<()>;
    /// Frees a part of a file.
    async fn unlock(&self, session: u64, file: u64, lock: Lock) -> FsResult<()>;
    /// The first lock that would be in the way of this one.
    async fn test_lock(&self, session: u64, file: u64, lock: Lock) -> FsResult<Option<Lock>>;

    /// A whole small file at once: `data` gets the name `path` when it is complete, in one step.
    async fn put(&self, session: u64, path: Vec<u8>, data: Bytes, finish: Finish)
    -> FsResult<Attr>;
    /// A whole small file at once, if it is no longer than `most`; else only what it is.
    async fn get(&self, session: u64, path: Vec<u8>, most: u64) -> FsResult<(Attr, Option<Bytes>)>;
    /// Begins, or goes on with, a file that is to replace `path` when it is complete. A client that
    /// names the same `key` again, also in a later session, finds what was written before: see
    /// `extents`. Only one session at a time has a key.
    async fn stage(&self, session: u64, key: StageKey, path: Vec<u8>) -> FsResult<(u64, Attr)>;
    /// Completes a staged file: it gets the name `path`, and is closed.
    async fn publish(
        &self,
        session: u64,
        file: u64,
        path: Vec<u8>,
        finish: Finish,
    ) -> FsResult<Attr>;
    /// Throws a staged file away.
    async fn discard(&self, session: u64, file: u64) -> FsResult<()>;
}
