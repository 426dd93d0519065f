//! The author's side of the border: functions of C around a [`Transport`].
//!
//! No panic leaves them. An endpoint that has panicked is not used any more: its functions say
//! `PANICKED`, with what the panic said.

use crate::{
    ConnectError, Readiness, Received, Sent, Transport,
    table::{Opened, Ready, Room, Status, Table, Text},
};
use std::{
    any::Any,
    ffi::c_void,
    os::fd::AsRawFd,
    panic::{AssertUnwindSafe, catch_unwind},
    slice,
};

/// Exports transports from a library: the types, each of which is a [`Transport`]. To be written
/// once, in a crate that is built as a `cdylib`.
///
/// ```
/// # mod hidden {
/// use petasos_plugin::{ConnectError, Medium, Readiness, Received, Sent, Transport};
/// use std::os::fd::BorrowedFd;
///
/// /// Reaches nothing.
/// struct Void;
///
/// impl Medium for Void {
///     fn address(&self) -> String {
///         "void://here".to_owned()
///     }
///     fn max_packet(&self) -> usize {
///         4096
///     }
///     fn fd(&self) -> Option<BorrowedFd<'_>> {
///         None
///     }
///     fn connect(&mut self, _: u32, to: &str) -> Result<(), ConnectError> {
///         Err(ConnectError::Refused(format!("{to}: nothing is in the void")))
///     }
///     fn accept(&mut self, _: u32) -> bool {
///         false
///     }
///     fn send(&mut self, _: u32, _: &[u8]) -> Sent {
///         Sent::Closed(String::new())
///     }
///     fn receive(&mut self, _: u32, _: &mut [u8]) -> Received {
///         Received::Later
///     }
///     fn shut(&mut self, _: u32) {}
///     fn poll(&mut self, _: &mut Readiness<'_>) -> Result<(), String> {
///         Ok(())
///     }
/// }
///
/// impl Transport for Void {
///     const SCHEME: &'static str = "void";
///     const TITLE: &'static str = "nothing at all";
///     const ANY: &'static str = "void://*";
///     fn open(_: &str) -> Result<Void, String> {
///         Ok(Void)
///     }
/// }
///
/// petasos_plugin::export!(Void);
/// # }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! export {
    ($($transport:ty),+ $(,)?) => {
        #[doc(hidden)]
        #[allow(unsafe_code, non_upper_case_globals, missing_docs)]
        // SAFETY: the name is this interface's own, and a library exports it once.
        #[unsafe(no_mangle)]
        pub static petasos_transports: $crate::table::Library = {
            static TABLES: &[$crate::table::Table] = &[$($crate::table_of::<$transport>()),+];
            $crate::table::Library {
                magic: $crate::table::MAGIC,
                version: $crate::table::VERSION,
                table_size: ::core::mem::size_of::<$crate::table::Table>() as u32,
                count: TABLES.len() as u32,
                reserved: 0,
                tables: TABLES.as_ptr(),
            }
        };
    };
}

/// The table of a transport: for [`export!`](crate::export).
#[must_use]
pub const fn table_of<T: Transport>() -> Table {
    Table {
        scheme: text(T::SCHEME),
        title: text(T::TITLE),
        any: text(T::ANY),
        open: Some(open::<T>),
        close: Some(close::<T>),
        address: Some(address::<T>),
        connect: Some(connect::<T>),
        accept: Some(accept::<T>),
        send: Some(send::<T>),
        receive: Some(receive::<T>),
        shut: Some(shut::<T>),
        poll: Some(poll::<T>),
        arm: Some(arm::<T>),
    }
}

const fn text(text: &'static str) -> Text {
    Text { at: text.as_ptr(), len: text.len() }
}

/// An endpoint, and what its panic said, if there was one.
struct Exported<T> {
    medium: T,
    panicked: Option<String>,
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("with something that is no text"))
}

/// Takes a panic apart, whose own end may panic in turn.
fn caught(panic: Box<dyn Any + Send>) -> String {
    let text = words(&*panic);
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(another);
    }
    text
}

/// # Safety
/// `room` is null, or the program's, for this call.
unsafe fn say(room: *mut Room, text: &str) {
    // SAFETY: by the caller. The memory behind it is apart from the structure, and is as long as it
    // says.
    unsafe {
        let Some(room) = room.as_mut() else { return };
        let mut len = text.len().min(room.capacity);
        while !text.is_char_boundary(len) {
            len -= 1;
        }
        std::ptr::copy_nonoverlapping(text.as_ptr(), room.at, len);
        room.len = len;
    }
}

/// # Safety
/// The text is the program's, and valid for `'a`.
unsafe fn read<'a>(text: Text) -> &'a str {
    // SAFETY: by the caller.
    let bytes = unsafe { slice::from_raw_parts(text.at, text.len) };
    // Addresses are ASCII, which was checked when they were made; what is not UTF-8 is none.
    std::str::from_utf8(bytes).unwrap_or_default()
}

/// Calls a method of the endpoint. What it returns has the text with it.
///
/// # Safety
/// `endpoint` is one that `open::<T>` made, not closed yet, and used by this thread alone. `why` is
/// null, or the program's, for this call.
unsafe fn call<T: Transport>(
    endpoint: *mut c_void,
    why: *mut Room,
    work: impl FnOnce(&mut T) -> (Status, String),
) -> Status {
    // SAFETY: by the caller.
    let exported = unsafe { &mut *endpoint.cast::<Exported<T>>() };
    let (status, text) = match &exported.panicked {
        Some(text) => (Status::PANICKED, text.clone()),
        None => {
            catch_unwind(AssertUnwindSafe(|| work(&mut exported.medium))).unwrap_or_else(|panic| {
                let text = caught(panic);
                exported.panicked = Some(text.clone());
                (Status::PANICKED, text)
            })
        }
    };
    // SAFETY: by the caller.
    unsafe { say(why, &text) };
    status
}

const fn plain(status: Status) -> (Status, String) {
    (status, String::new())
}

unsafe extern "C" fn open<T: Transport>(at: Text, opened: *mut Opened, why: *mut Room) -> Status {
    // SAFETY: the program's text, for this call.
    let at = unsafe { read(at) };
    let (status, text) = match catch_unwind(AssertUnwindSafe(|| {
        let medium = T::open(at)?;
        let fd = medium.fd().map_or(-1, |fd| fd.as_raw_fd());
        let max_packet = u32::try_from(medium.max_packet()).unwrap_or(u32::MAX);
        Ok::<_, String>((medium, fd, max_packet))
    })) {
        Ok(Ok((medium, fd, max_packet))) => {
            let endpoint = Box::into_raw(Box::new(Exported { medium, panicked: None })).cast();
            // SAFETY: the program's room for just this.
            unsafe { opened.write(Opened { endpoint, fd, max_packet }) };
            plain(Status::OK)
        }
        Ok(Err(text)) => (Status::ERROR, text),
        Err(panic) => (Status::PANICKED, caught(panic)),
    };
    // SAFETY: the program's room for text.
    unsafe { say(why, &text) };
    status
}

unsafe extern "C" fn close<T: Transport>(endpoint: *mut c_void, home: u32) {
    // SAFETY: what `open` made, which is not used any more.
    let exported = unsafe { Box::from_raw(endpoint.cast::<Exported<T>>()) };
    let ended = catch_unwind(AssertUnwindSafe(move || {
        let mut exported = exported;
        if home != 0 && exported.panicked.is_none() {
            exported.medium.end();
        }
    }));
    if let Err(panic) = ended {
        caught(panic);
    }
}

unsafe extern "C" fn address<T: Transport>(endpoint: *mut c_void, into: *mut Room) -> Status {
    // SAFETY: the program keeps to what the table says of this function's arguments.
    unsafe { call::<T>(endpoint, into, |medium| (Status::OK, medium.address())) }
}

unsafe extern "C" fn connect<T: Transport>(
    endpoint: *mut c_void,
    line: u32,
    to: Text,
    why: *mut Room,
) -> Status {
    // SAFETY: the program keeps to what the table says of this function's arguments.
    unsafe {
        let to = read(to);
        call::<T>(endpoint, why, |medium| match medium.connect(line, to) {
            Ok(()) => plain(Status::OK),
            Err(ConnectError::Refused(text)) => (Status::REFUSED, text),
            Err(ConnectError::Malformed(text)) => (Status::ERROR, text),
        })
    }
}

unsafe extern "C" fn accept<T: Transport>(
    endpoint: *mut c_void,
    line: u32,
    why: *mut Room,
) -> Status {
    // SAFETY: the program keeps to what the table says of this function's arguments.
    unsafe {
        call::<T>(endpoint, why, |medium| match medium.accept(line) {
            true => plain(Status::OK),
            false => plain(Status::LATER),
        })
    }
}

unsafe extern "C" fn send<T: Transport>(
    endpoint: *mut c_void,
    line: u32,
    packet: *const u8,
    len: usize,
    why: *mut Room,
) -> Status {
    // SAFETY: the program keeps to what the table says of this function's arguments: the packet is
    // its own copy, which nothing writes during this call.
    unsafe {
        let packet = slice::from_raw_parts(packet, len);
        call::<T>(endpoint, why, |medium| match medium.send(line, packet) {
            Sent::All => plain(Status::OK),
            Sent::Later => plain(Status::LATER),
            Sent::Closed(text) => (Status::CLOSED, text),
        })
    }
}

unsafe extern "C" fn receive<T: Transport>(
    endpoint: *mut c_void,
    line: u32,
    into: *mut u8,
    capacity: usize,
    len: *mut usize,
    why: *mut Room,
) -> Status {
    // SAFETY: the program keeps to what the table says of this function's arguments: the buffer is
    // initialised, and nothing else uses it during this call.
    unsafe {
        let into = slice::from_raw_parts_mut(into, capacity);
        call::<T>(endpoint, why, |medium| match medium.receive(line, into) {
            Received::Packet(received) => {
                *len = received;
                plain(Status::OK)
            }
            Received::Later => plain(Status::LATER),
            Received::Closed(text) => (Status::CLOSED, text),
            Received::Lent { .. } | Received::Fetched => {
                (Status::CLOSED, "the border has no payloads that stay where they are".to_owned())
            }
        })
    }
}

unsafe extern "C" fn shut<T: Transport>(endpoint: *mut c_void, line: u32) {
    let shut = |medium: &mut T| {
        medium.shut(line);
        plain(Status::OK)
    };
    // SAFETY: the program keeps to what the table says of this function's arguments.
    unsafe { call::<T>(endpoint, std::ptr::null_mut(), shut) };
}

unsafe extern "C" fn poll<T: Transport>(
    endpoint: *mut c_void,
    ready: *mut Ready,
    capacity: usize,
    count: *mut usize,
    why: *mut Room,
) -> Status {
    // SAFETY: the program keeps to what the table says of this function's arguments: the entries
    // are initialised, and nothing else uses them during this call.
    unsafe {
        let mut ready = Readiness::new(slice::from_raw_parts_mut(ready, capacity));
        call::<T>(endpoint, why, |medium| match medium.poll(&mut ready) {
            Ok(()) => {
                *count = ready.count();
                plain(Status::OK)
            }
            Err(text) => (Status::ERROR, text),
        })
    }
}

unsafe extern "C" fn arm<T: Transport>(
    endpoint: *mut c_void,
    within: *mut u64,
    why: *mut Room,
) -> Status {
    // SAFETY: the program keeps to what the table says of this function's arguments.
    unsafe {
        call::<T>(endpoint, why, |medium| match medium.arm() {
            Some(longest) => {
                *within = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
                plain(Status::OK)
            }
            None => plain(Status::LATER),
        })
    }
}
