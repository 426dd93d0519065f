//! The types that travel.

use petasos::Wire;
use serde::Serialize;

/// A BLAKE3 hash.
pub type Hash = [u8; 32];

/// Names what is being staged: made by the client of what it sends, so that it finds it again.
pub type StageKey = [u8; 16];

/// What a client sends first.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Hello {
    /// [`super::VERSION`] of the client.
    pub version: u32,
}

/// What shows that the server has offered a session to this client a short time ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub struct Ticket {
    /// Until when it is good, by the server's clock: milliseconds since it began.
    pub until_ms: u64,
    /// What only the server can make.
    pub proof: [u8; 16],
}

/// The answer to it.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct Welcome {
    /// Number of the session that is offered, which cannot be guessed.
    pub session: u64,
    /// To be shown when it begins.
    pub ticket: Ticket,
    /// Whether nothing can be changed.
    pub read_only: bool,
    /// The most bytes of data in one call; more is lent.
    pub inline: u64,
    /// The most bytes that one `read_into` or `write_from` should lend.
    pub window: u64,
    /// For how many milliseconds its locks are those of a client that sends nothing; 0 for ever.
    pub lease_ms: u64,
    /// Calls of one session that are served at a time; more wait.
    pub calls: u32,
    /// What the server can do with files.
    pub abilities: Abilities,
}

/// What a storage can do beyond reading, and writing whole files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire, Serialize)]
pub struct Abilities {
    /// Writing in the middle of files that are there.
    pub random_write: bool,
    /// Symbolic and hard links.
    pub links: bool,
    /// Holes in files.
    pub holes: bool,
    /// Modes, owners and times.
    pub attributes: bool,
    /// Extended attributes.
    pub xattrs: bool,
}

/// What a call is about.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub enum Node {
    /// What has this path.
    Path(Vec<u8>),
    /// A file that the session has open.
    File(u64),
}

/// What something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Wire, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// An ordinary file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// A point in time: seconds since 1970, which may be negative, and nanoseconds after that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Wire, Serialize)]
pub struct Timestamp {
    /// Seconds.
    pub seconds: i64,
    /// Less than 1,000,000,000.
    pub nanos: u32,
}

/// Attributes of a file or directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire, Serialize)]
pub struct Attr {
    /// What it is.
    pub kind: Kind,
    /// Permissions: the lowest twelve bits.
    pub mode: u32,
    /// Names that it has.
    pub links: u32,
    /// Owner, as the server numbers users.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Room that it takes, in units of 512 bytes.
    pub blocks: u64,
    /// Number within the export.
    pub ino: u64,
    /// Last read.
    pub atime: Timestamp,
    /// Contents last changed.
    pub mtime: Timestamp,
    /// Attributes last changed.
    pub ctime: Timestamp,
}

/// What becomes of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub enum SetTime {
    /// It stays.
    #[default]
    Keep,
    /// The server's present.
    Now,
    /// This.
    At(Timestamp),
}

/// Attributes to be changed; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub struct SetAttr {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner: the server must have the right.
    pub uid: Option<u32>,
    /// Group: the server must have the right.
    pub gid: Option<u32>,
    /// Length: cut off, or a hole at the end.
    pub size: Option<u64>,
    /// Last read.
    pub atime: SetTime,
    /// Contents last changed.
    pub mtime: SetTime,
}

/// How something new begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub struct Creation {
    /// Permissions: exactly these, no mask of the server's is taken off.
    pub mode: u32,
    /// Owner and group, where the server has the right to set them; else the server's own.
    pub owner: Option<(u32, u32)>,
}

/// How a file is opened: bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// To be read.
    pub const READ: OpenFlags = OpenFlags(1);
    /// To be written.
    pub const WRITE: OpenFlags = OpenFlags(2);
    /// Made if it is not there.
    pub const CREATE: OpenFlags = OpenFlags(4);
    /// With `CREATE`: fails if it is there.
    pub const EXCLUSIVE: OpenFlags = OpenFlags(8);
    /// Cut to nothing.
    pub const TRUNCATE: OpenFlags = OpenFlags(16);
    /// Each write goes to the end, wherever that is then.
    pub const APPEND: OpenFlags = OpenFlags(32);
    /// Fails if the last name is a symbolic link.
    pub const NO_FOLLOW: OpenFlags = OpenFlags(64);

    /// Both.
    #[must_use]
    pub const fn with(self, other: OpenFlags) -> OpenFlags {
        OpenFlags(self.0 | other.0)
    }

    /// Whether all bits of the other are set.
    #[must_use]
    pub const fn has(self, other: OpenFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether there are only bits that mean something.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.0 < 128
    }
}

/// Something in a directory.
#[derive(Clone, Debug, PartialEq, Eq, Wire)]
pub struct DirEntry {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is; of a symbolic link the link's own.
    pub attr: Attr,
}

/// A part of a directory, without `.` and `..`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Wire)]
pub struct Page {
    /// As many as fit.
    pub entries: Vec<DirEntry>,
    /// Whether there may be more.
    pub more: bool,
}

/// What a rename does with what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub enum RenameMode {
    /// Replaces it.
    #[default]
    Replace,
    /// Fails.
    Keep,
    /// They change places.
    Exchange,
}

/// What setting an extended attribute expects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub enum XattrMode {
    /// Nothing.
    #[default]
    Any,
    /// That there is none.
    Create,
    /// That there is one.
    Replace,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub struct Extent {
    /// Where it begins.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
}

/// What is done with room on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub enum Allocation {
    /// Reserved; a file that is shorter grows.
    Reserve,
    /// Reserved; the length stays.
    ReserveOnly,
    /// A hole; the length stays.
    Punch,
    /// Zeroes; a file that is shorter grows.
    Zero,
    /// Zeroes; the length stays.
    ZeroOnly,
}

/// A lock on a part of a file, as of `fcntl`: among the clients of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Wire)]
pub struct Lock {
    /// Whose it is within the session. Locks of one owner are not in each other's way.
    pub owner: u64,
    /// The process, for programs that ask which one is in the way.
    pub pid: u32,
    /// Whether others may not even read.
    pub exclusive: bool,
    /// Where it begins.
    pub start: u64,
    /// Where it ends, this byte not included; `u64::MAX` for the end of the file, wherever that is.
    pub end: u64,
}

/// What is to be true of a file that is complete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire)]
pub struct Finish {
    /// Its length, which must be right or, with a hole at the end, becomes so.
    pub size: u64,
    /// Its attributes (but for the length).
    pub set: SetAttr,
    /// BLAKE3 of its contents: the server reads them again and compares.
    pub hash: Option<Hash>,
    /// Whether it is on the disk before the answer.
    pub durable: bool,
    /// Whether a file may be replaced that is there.
    pub replace: bool,
}

/// How full a file system is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire, Serialize)]
pub struct StatFs {
    /// Bytes of a block.
    pub block: u64,
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks for this user.
    pub available: u64,
    /// Files that there can be.
    pub files: u64,
    /// Files that can still be made.
    pub files_free: u64,
    /// The longest name.
    pub name_max: u64,
}

/// What the server does.
#[derive(Clone, Debug, PartialEq, Eq, Wire, Serialize)]
pub struct Status {
    /// What is exported.
    pub export: String,
    /// Whether nothing can be changed.
    pub read_only: bool,
    /// Milliseconds since the start.
    pub uptime_ms: u64,
    /// Memory for data on the way, in bytes: now, at most so far, and the limit.
    pub memory: [u64; 3],
    /// Data that came within calls which wait for their turn, in bytes: now, and at most so far. It
    /// counts beside `memory`, and is bounded by the same limit and 256 KiB for each client.
    pub early: [u64; 2],
    /// Work that waits for a thread.
    pub queued: u64,
    /// Threads that work on files.
    pub threads: u32,
    /// Since the start.
    pub total: Counters,
    /// Sessions that ended without a goodbye: the client died, or was lost.
    pub lost: u64,
    /// The clients that are connected.
    pub sessions: Vec<SessionStatus>,
}

/// A client of the server's.
#[derive(Clone, Debug, PartialEq, Eq, Wire, Serialize)]
pub struct SessionStatus {
    /// Its name for people.
    pub name: String,
    /// Where it is.
    pub peer: String,
    /// Milliseconds since it came.
    pub age_ms: u64,
    /// Open files.
    pub files: u64,
    /// Locks.
    pub locks: u64,
    /// Calls under way.
    pub calls: u64,
    /// What it did.
    pub counters: Counters,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Wire, Serialize)]
pub struct Counters {
    /// Calls, of any kind.
    pub calls: u64,
    /// Calls that failed.
    pub failed: u64,
    /// Bytes read from files.
    pub read: u64,
    /// Bytes written to files.
    pub written: u64,
    /// Requests that were served together with a neighbour in the file.
    pub gathered: u64,
}
