//! `mercury_poll.h` and `mercury_event.h`: epoll and eventfd.

use super::result;
use std::{
    ffi::{c_int, c_uint},
    ptr,
};

const IN: u32 = 1;
const OUT: u32 = 1 << 1;
const ERR: u32 = 1 << 2;
const HUP: u32 = 1 << 3;
const INTR: u32 = 1 << 4;

/// Pairs of its flags and epoll's.
const FLAGS: [(u32, c_int); 4] =
    [(IN, libc::EPOLLIN), (OUT, libc::EPOLLOUT), (ERR, libc::EPOLLERR), (HUP, libc::EPOLLHUP)];

#[repr(C)]
struct Event {
    events: u32,
    data: u64,
}

struct PollSet(c_int);

#[unsafe(no_mangle)]
extern "C" fn hg_poll_create() -> *mut PollSet {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    if fd < 0 { ptr::null_mut() } else { Box::into_raw(Box::new(PollSet(fd))) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_poll_destroy(set: *mut PollSet) -> c_int {
    if set.is_null() {
        return 0;
    }
    // SAFETY: the function above made it, and the program gives it back.
    unsafe { result(libc::close(Box::from_raw(set).0) == 0) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_poll_get_fd(set: *const PollSet) -> c_int {
    // SAFETY: null, or one that the program has.
    unsafe { set.as_ref() }.map_or(-1, |set| set.0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_poll_add(set: *mut PollSet, fd: c_int, event: *mut Event) -> c_int {
    // SAFETY: null, or what the program has.
    let (Some(set), Some(event)) = (unsafe { set.as_ref() }, unsafe { event.as_ref() }) else {
        return -1;
    };
    let wanted = FLAGS.iter().filter(|(flag, _)| event.events & flag != 0);
    let events = wanted.fold(0, |all, (_, flag)| all | *flag as u32);
    let mut event = libc::epoll_event { events, u64: event.data };
    // SAFETY: the event is a place of this function's.
    result(unsafe { libc::epoll_ctl(set.0, libc::EPOLL_CTL_ADD, fd, &raw mut event) } == 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_poll_remove(set: *mut PollSet, fd: c_int) -> c_int {
    // SAFETY: null, or one that the program has.
    let Some(set) = (unsafe { set.as_ref() }) else { return -1 };
    // SAFETY: for this operation there is no event.
    result(unsafe { libc::epoll_ctl(set.0, libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) } == 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_poll_wait(
    set: *mut PollSet,
    timeout: c_uint,
    most: c_uint,
    events: *mut Event,
    count: *mut c_uint,
) -> c_int {
    const ROOM: usize = 64;
    // SAFETY: null, or one that the program has.
    let Some(set) = (unsafe { set.as_ref() }) else { return -1 };
    if events.is_null() || most == 0 {
        return -1;
    }
    let mut found = [libc::epoll_event { events: 0, u64: 0 }; ROOM];
    let most = (most as usize).min(ROOM) as c_int;
    let timeout = c_int::try_from(timeout).unwrap_or(c_int::MAX);
    // SAFETY: there is room for as many events as are asked for.
    let got = unsafe { libc::epoll_wait(set.0, found.as_mut_ptr(), most, timeout) };
    let interrupted =
        got < 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR);
    let number = if interrupted { 1 } else { got };
    if number < 0 {
        return -1;
    }
    for (nth, event) in found.iter().take(number as usize).enumerate() {
        let (flags, data) = (event.events, event.u64);
        let mut out =
            FLAGS.iter().fold(
                0,
                |all, (flag, theirs)| {
                    if flags & *theirs as u32 != 0 { all | flag } else { all }
                },
            );
        if interrupted {
            out = INTR;
        }
        // SAFETY: the program has as many places as it says.
        unsafe { events.add(nth).write(Event { events: out, data }) };
    }
    if !count.is_null() {
        // SAFETY: a place.
        unsafe { count.write(number as c_uint) };
    }
    0
}

#[unsafe(no_mangle)]
extern "C" fn hg_event_create() -> c_int {
    // SAFETY: no memory is involved.
    unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hg_event_destroy(fd: c_int) -> c_int {
    // SAFETY: the program closes a descriptor of its own.
    result(unsafe { libc::close(fd) } == 0)
}
