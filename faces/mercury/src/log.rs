//! What the library says, and where: `HG_Set_log_level` and its kin. Default: errors, on stderr.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    io::Write,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
};

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Level {
    None = 0,
    Fatal = 1,
    Error = 2,
    Warning = 3,
    Info = 4,
    Debug = 5,
}

const NAMES: [(&str, Level); 6] = [
    ("none", Level::None),
    ("fatal", Level::Fatal),
    ("error", Level::Error),
    ("warning", Level::Warning),
    ("info", Level::Info),
    ("debug", Level::Debug),
];

/// The level with this name.
pub(crate) fn level(name: &str) -> Option<Level> {
    NAMES.iter().find(|(known, _)| name.eq_ignore_ascii_case(known)).map(|(_, level)| *level)
}

/// `int (*)(FILE *, const char *, ...)`.
pub(crate) type LogFn = unsafe extern "C" fn(*mut c_void, *const c_char, ...) -> c_int;

/// Not read from the environment yet.
const UNSET: u8 = u8::MAX;
static LEVEL: AtomicU8 = AtomicU8::new(UNSET);
/// A `LogFn`, or 0.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);
/// For each level a `FILE *`, or 0.
static STREAMS: [AtomicUsize; 6] = [const { AtomicUsize::new(0) }; 6];
/// Parts of the library that are not heard, as `HG_Set_log_subsys` names them with a `~`.
static SILENT: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn current() -> u8 {
    match LEVEL.load(Ordering::Relaxed) {
        UNSET => {
            let named = std::env::var("HG_LOG_LEVEL").ok();
            let found = named.as_deref().and_then(level).unwrap_or(Level::Error) as u8;
            if let Ok(parts) = std::env::var("HG_LOG_SUBSYS") {
                set_parts(&parts);
            }
            LEVEL.store(found, Ordering::Relaxed);
            found
        }
        level => level,
    }
}

/// From now on, what matters less is not said.
pub(crate) fn set_level(level: Level) {
    current();
    LEVEL.store(level as u8, Ordering::Relaxed);
}

/// `part,~part`: with a `~`, that part says nothing.
pub(crate) fn set_parts(list: &str) {
    let silent = list.split(',').filter_map(|part| part.trim().strip_prefix('~'));
    *SILENT.lock().unwrap_or_else(PoisonError::into_inner) = silent.map(str::to_owned).collect();
}

/// Where all is said from now on; `None`: on the streams.
pub(crate) fn set_function(function: Option<LogFn>) {
    FUNCTION.store(function.map_or(0, |function| function as usize), Ordering::Relaxed);
}

/// The stream of a level; null: stderr.
pub(crate) fn set_stream(level: Level, stream: *mut c_void) {
    STREAMS[level as usize].store(stream.expose_provenance(), Ordering::Relaxed);
}

unsafe extern "C" {
    fn fprintf(stream: *mut c_void, format: *const c_char, ...) -> c_int;
}

/// Says a line of a part of the library, if that matters enough.
pub(crate) fn say(level: Level, part: &str, text: impl FnOnce() -> String) {
    if level as u8 > current() {
        return;
    }
    if SILENT.lock().unwrap_or_else(PoisonError::into_inner).iter().any(|silent| silent == part) {
        return;
    }
    let name = NAMES[level as usize].0;
    let line = format!("# mercury->{part}: [{name}] {}\n", text());
    let stream = STREAMS[level as usize].load(Ordering::Relaxed);
    let function = FUNCTION.load(Ordering::Relaxed);
    if function == 0 && stream == 0 {
        // Where it cannot be said it is not: a panic would end the program.
        let _ = std::io::stderr().write_all(line.as_bytes());
        return;
    }
    let Ok(line) = CString::new(line.replace('\0', " ")) else { return };
    let stream: *mut c_void = std::ptr::with_exposed_provenance_mut(stream);
    let format: &CStr = c"%s";
    if function == 0 {
        // SAFETY: the program gave the stream for this, and keeps it open; the format takes one
        // string, which lives until the call returns.
        unsafe { fprintf(stream, format.as_ptr(), line.as_ptr()) };
        return;
    }
    // SAFETY: only `set_function` stores there, from a function of this type.
    let function: LogFn = unsafe { std::mem::transmute::<usize, LogFn>(function) };
    // SAFETY: the program's function takes what `fprintf` takes.
    unsafe { function(stream, format.as_ptr(), line.as_ptr()) };
}

/// An error, with the code that the program gets.
pub(crate) fn refuse<C>(code: C, part: &str, text: impl FnOnce() -> String) -> C {
    say(Level::Error, part, text);
    code
}

/// The name of a code.
pub(crate) fn name(code: c_uint) -> &'static CStr {
    crate::abi::NAMES.get(code as usize).copied().unwrap_or(c"Unknown error")
}
