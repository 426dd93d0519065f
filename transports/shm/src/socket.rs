//! The sockets over which pairs are made: sequenced packets, with descriptors and credentials.

use crate::{control, name::Name};
use petasos_fabric::Home;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    fs::{FileType, Mode, fchmod, lstat, unlink},
    io::{Errno, IoSlice, IoSliceMut},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, bind,
        connect, listen, recvmsg, sendmsg, socket_with,
    },
    process::{Pid, PidfdFlags, Resource, getrlimit, pidfd_open},
};
use smallvec::SmallVec;
use std::{mem::MaybeUninit, os::fd::AsRawFd};

/// Descriptors in one message.
const MAX_FDS: usize = 3;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;

pub(crate) type Fds = SmallVec<[OwnedFd; MAX_FDS]>;

fn new() -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// A listening socket; one in the file system goes with it.
pub(crate) struct Listener {
    pub(crate) fd: OwnedFd,
    path: Option<String>,
    home: Home,
}

impl Listener {
    /// Listens; `open` lets other users reach a socket in the file system.
    pub(crate) fn bind(name: &Name, uid: u32, open: bool) -> Result<Listener, Errno> {
        let address = name.socket(uid)?;
        let fd = new()?;
        let path = match name {
            Name::Path(path) => Some(path.clone()),
            _ => None,
        };
        if path.is_some() {
            // The mode of the socket becomes that of the file, before it is visible.
            let all = Mode::from_raw_mode(0o666);
            fchmod(&fd, if open { all } else { Mode::RUSR | Mode::WUSR })?;
        }
        match bind(&fd, &address) {
            Err(Errno::ADDRINUSE)
                if path.as_deref().is_some_and(|p| remove_stale(p, name, uid)) =>
            {
                bind(&fd, &address)?;
            }
            result => result?,
        }
        listen(&fd, BACKLOG)?;
        Ok(Listener { fd, path, home: Home::current() })
    }
}

/// Removes a socket of this user's at which no process listens.
fn remove_stale(path: &str, name: &Name, uid: u32) -> bool {
    let ours = lstat(path).is_ok_and(|stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::Socket && stat.st_uid == uid
    });
    let refused = || matches!(dial(name, uid), Err(Errno::CONNREFUSED));
    ours && refused() && unlink(path).is_ok()
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path
            && self.home.is_current()
        {
            let _ = unlink(path.as_str());
        }
    }
}

/// Connects: at once, or not at all.
pub(crate) fn dial(name: &Name, uid: u32) -> Result<OwnedFd, Errno> {
    let fd = new()?;
    connect(&fd, &name.socket(uid)?)?;
    Ok(fd)
}

/// The user whose process listens at this name, if one does.
pub(crate) fn taken_by(name: &Name, uid: u32) -> Option<u32> {
    let fd = dial(name, uid).ok()?;
    credentials(&fd).ok().map(|credentials| credentials.uid)
}

/// The process at the other end, as the kernel says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credentials {
    /// Zero if it is in a process namespace that we cannot see.
    pub(crate) pid: i32,
    pub(crate) uid: u32,
}

pub(crate) fn credentials(fd: &OwnedFd) -> Result<Credentials, Errno> {
    let mut out = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the option's value is a `ucred`, for which there is room, and `len` says so.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut out).cast(),
            &mut len,
        )
    };
    match result {
        0 => Ok(Credentials { pid: out.pid, uid: out.uid }),
        _ => Err(last_error()),
    }
}

/// A handle of the process at the other end, which is never another's.
pub(crate) fn process(fd: &OwnedFd, pid: i32) -> Option<OwnedFd> {
    const SO_PEERPIDFD: libc::c_int = 77;
    let mut out: libc::c_int = -1;
    let mut len = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option's value is a descriptor, for which there is room, and `len` says so.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut out).cast(),
            &mut len,
        )
    };
    if result == 0 && out >= 0 {
        // SAFETY: the kernel has just made this descriptor for us.
        return Some(unsafe { OwnedFd::from_raw_fd(out) });
    }
    // Before Linux 6.5. The socket is still connected when this is asked, so that its process was
    // alive a moment ago; the caller looks at the socket once more.
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()
}

pub(crate) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}

/// Whether a process ended, or the other end of a socket was closed.
pub(crate) fn is_over(fd: &OwnedFd, what: PollFlags) -> bool {
    let mut fds = [PollFd::new(fd, what)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut fds, Some(&now)).is_ok_and(|count| count > 0)
        && fds[0].revents().intersects(what | PollFlags::HUP | PollFlags::ERR)
}

/// Whether the program that connected has ended: its process has, or was replaced by `exec`, which
/// closes the socket. One system call.
pub(crate) fn has_ended(socket: &OwnedFd, process: &OwnedFd) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(socket, PollFlags::RDHUP), PollFd::new(process, PollFlags::IN)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let over = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut fds, Some(&now))?;
    Ok(fds[0].revents().intersects(over) || !fds[1].revents().is_empty())
}

pub(crate) fn send(fd: &OwnedFd, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(fd, &[IoSlice::new(bytes)], &mut ancillary, flags).map(|_| ())
}

/// A message.
pub(crate) struct Received {
    /// None: the other end was closed.
    pub(crate) bytes: SmallVec<[u8; 256]>,
    pub(crate) fds: Fds,
    /// Descriptors came for which this process had no room.
    pub(crate) cut: bool,
}

/// The next message.
pub(crate) fn receive(fd: impl AsFd) -> Result<Received, Errno> {
    let mut bytes = [0; control::LEN + 1];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut buffers = [IoSliceMut::new(&mut bytes)];
    let message = match recvmsg(&fd, &mut buffers, &mut ancillary, flags) {
        // A process that closes with something unread resets us first, and once; what was sent
        // before, a refusal above all, comes after.
        Err(Errno::CONNRESET) => recvmsg(&fd, &mut buffers, &mut ancillary, flags)?,
        received => received?,
    };
    let cut = message.flags.contains(ReturnFlags::CTRUNC);
    let len = message.bytes;
    let mut fds = Fds::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(all) = message {
            fds.extend(all);
        }
    }
    Ok(Received { bytes: SmallVec::from_slice(&bytes[..len]), fds, cut })
}

/// Says that a process has as many descriptors open as it may; `whose` names it.
pub(crate) fn out_of_descriptors(whose: &str) -> String {
    let limit = getrlimit(Resource::Nofile).current;
    let limit = limit.map_or_else(|| "all".to_owned(), |limit| limit.to_string());
    format!("{whose} has {limit} descriptors open, which is its limit: raise it with `ulimit -n`")
}

/// What the system said, and what can be done about it.
pub(crate) fn reason(error: Errno, whose: &str) -> String {
    match error {
        Errno::MFILE => out_of_descriptors(whose),
        Errno::NFILE => format!("{error}: raise the sysctl fs.file-max"),
        error => error.to_string(),
    }
}
