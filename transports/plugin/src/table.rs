//! What crosses the border between a program and a plug-in: structures and functions of C.
//!
//! The program calls, the plug-in answers; nothing of the program is called by the plug-in. Memory
//! that is passed belongs to the program, and is used during the call alone. What a plug-in
//! allocates is behind the pointer to its endpoint, and is freed by [`Table::close`].
//!
//! `include/petasos_transport.h` says the same in C, and a test compares the two.
//!
//! # Versions
//!
//! [`Library::version`] changes when a function or a field means something else; a program takes
//! the versions that it knows, and no other. A function that is new is appended to [`Table`], and
//! [`Library::table_size`] says up to where a plug-in has them: what it does not have, a program
//! does without, and what a program does not know, it does not read. So plug-ins work with newer
//! and older programs of one version.

use std::ffi::c_void;

/// The symbol of the [`Library`] that a plug-in exports.
pub const SYMBOL: &str = "petasos_transports";
/// The first bytes of a [`Library`].
pub const MAGIC: [u8; 8] = *b"PETASOS\0";
/// The version that this crate knows.
pub const VERSION: u32 = 1;
/// In the place of a line's number: the listener.
pub const LISTENER: u32 = u32::MAX;
/// The longest text, in bytes, that a plug-in can return.
pub const MAX_TEXT: usize = 512;

/// What a plug-in has. The first three fields are the same in all versions.
#[repr(C)]
pub struct Library {
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// [`VERSION`].
    pub version: u32,
    /// The size of a [`Table`] here, in bytes.
    pub table_size: u32,
    /// How many tables, one for each scheme.
    pub count: u32,
    /// Zero.
    pub reserved: u32,
    /// The tables, `table_size` bytes from one to the next.
    pub tables: *const Table,
}

// SAFETY: it is never written, and what it points to neither.
unsafe impl Sync for Library {}

/// Text: UTF-8, without a zero at its end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    /// The bytes.
    pub at: *const u8,
    /// How many.
    pub len: usize,
}

/// Room for text, which the program provides.
#[repr(C)]
pub struct Room {
    /// Where it goes.
    pub at: *mut u8,
    /// How much fits, in bytes.
    pub capacity: usize,
    /// How much is there: written by the plug-in. What does not fit is left out.
    pub len: usize,
}

/// What a function returns: one of the constants of this type.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub i32);

impl Status {
    /// It is done.
    pub const OK: Status = Status(0);
    /// Not now.
    pub const LATER: Status = Status(1);
    /// The line is at its end. The text may say why.
    pub const CLOSED: Status = Status(2);
    /// Nothing listens there.
    pub const REFUSED: Status = Status(3);
    /// It is not possible. The text says why.
    pub const ERROR: Status = Status(4);
    /// A bug in the plug-in, as the text says. The endpoint is of no more use, and is closed.
    pub const PANICKED: Status = Status(5);
}

/// What [`Table::open`] writes.
#[repr(C)]
pub struct Opened {
    /// The endpoint, which is the first argument of the other functions. Not null.
    pub endpoint: *mut c_void,
    /// A descriptor that is readable while [`Table::poll`] would find something; -1 without one. It
    /// stays the plug-in's, and stays open until the endpoint is closed.
    pub fd: i32,
    /// The longest packet, in bytes. The same for all endpoints that talk to each other.
    pub max_packet: u32,
}

/// What [`Table::poll`] found.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// The line, or [`LISTENER`].
    pub line: u32,
    /// [`Ready::READABLE`], [`Ready::WRITABLE`] or both.
    pub what: u32,
}

impl Ready {
    /// A packet or the end of a line is there to be received, or a line to be accepted.
    pub const READABLE: u32 = 1;
    /// There may be room for a packet again, or the line has ended.
    pub const WRITABLE: u32 = 2;
}

/// The functions of a transport. Those of one endpoint are called by one thread at a time, in the
/// process that opened it; `open` by any, also at the same time. None may block, or unwind.
#[repr(C)]
pub struct Table {
    /// The scheme of its addresses: letters, digits and `-`.
    pub scheme: Text,
    /// What it is, in a few words.
    pub title: Text,
    /// An address that any number of endpoints can be opened with.
    pub any: Text,
    /// Opens an endpoint at an address: OK, or ERROR with a text.
    pub open: Option<unsafe extern "C" fn(Text, *mut Opened, *mut Room) -> Status>,
    /// Closes an endpoint, and frees it. The last argument is not 0 in the process that opened it,
    /// and 0 in a child with a copy of it: then nothing may be done that others would notice.
    pub close: Option<unsafe extern "C" fn(*mut c_void, u32)>,
    /// The address of the endpoint, complete: OK.
    pub address: Option<unsafe extern "C" fn(*mut c_void, *mut Room) -> Status>,
    /// Begins a line to the endpoint at an address, under this number: OK, REFUSED or ERROR.
    pub connect: Option<unsafe extern "C" fn(*mut c_void, u32, Text, *mut Room) -> Status>,
    /// Takes a line that was begun by another endpoint, under this number: OK or LATER.
    pub accept: Option<unsafe extern "C" fn(*mut c_void, u32, *mut Room) -> Status>,
    /// Sends a packet on a line of `connect`, all of it: OK, LATER or CLOSED.
    pub send: Option<unsafe extern "C" fn(*mut c_void, u32, *const u8, usize, *mut Room) -> Status>,
    /// Receives a packet from a line of `accept`, and writes its length: OK, LATER or CLOSED. From
    /// a line of `connect` comes nothing but its end.
    pub receive: Option<
        unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, *mut usize, *mut Room) -> Status,
    >,
    /// Ends a line. Its number may be used again.
    pub shut: Option<unsafe extern "C" fn(*mut c_void, u32)>,
    /// Writes what is ready, at most so many, and how many they are: OK. It is ready until that is
    /// taken: a call that finds it changes nothing.
    pub poll: Option<
        unsafe extern "C" fn(*mut c_void, *mut Ready, usize, *mut usize, *mut Room) -> Status,
    >,
    /// Called before the descriptor is waited for: OK, and after how many nanoseconds `poll` is to
    /// be called at the latest; or LATER: it is to be called at once.
    pub arm: Option<unsafe extern "C" fn(*mut c_void, *mut u64, *mut Room) -> Status>,
}

// SAFETY: it is never written, and what it points to neither.
unsafe impl Sync for Table {}

/// The size of the first tables, which have all of the functions above.
pub const FIRST_SIZE: usize = 6 * size_of::<usize>() + 10 * size_of::<usize>();
const _: () = assert!(size_of::<Table>() >= FIRST_SIZE);
