//! Sockets at which the broker listens.

use petasos_tenant::socket;
use rustix::{
    fd::OwnedFd,
    fs::{FileType, Mode, chmod, fchmod, lstat, unlink},
    io::Errno,
    net::{
        SocketAddrUnix, SocketFlags, UCred, accept_with, bind, listen, sockopt::socket_peercred,
    },
};
use std::path::{Path, PathBuf};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

/// A listening socket, whose name goes with it.
pub(super) struct Listener {
    pub(super) fd: OwnedFd,
    path: PathBuf,
    /// Which file that is: another broker may have its own there by then.
    file: (u64, u64),
}

impl Listener {
    /// Listens at a path; `all` users of the system may connect, or this one alone.
    pub(super) fn bind(path: &Path, all: bool) -> Result<Listener, Errno> {
        let (fd, address) = (socket::new()?, SocketAddrUnix::new(path)?);
        // The mode of the socket becomes that of the file, before it is visible.
        let mode = if all { Mode::from_raw_mode(0o666) } else { Mode::RUSR | Mode::WUSR };
        fchmod(&fd, mode)?;
        match bind(&fd, &address) {
            Err(Errno::ADDRINUSE) if is_stale(path) => {
                unlink(path)?;
                bind(&fd, &address)?;
            }
            bound => bound?,
        }
        if all {
            // The system left out what the umask of this process says.
            chmod(path, mode)?;
        }
        listen(&fd, BACKLOG)?;
        let is = lstat(path)?;
        Ok(Listener { fd, path: path.to_owned(), file: (is.st_dev, is.st_ino) })
    }

    /// The next connection, if there is one, and the credentials of its process.
    pub(super) fn accept(&self) -> Option<(OwnedFd, UCred)> {
        loop {
            match accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(fd) => {
                    let peer = socket_peercred(&fd).ok()?;
                    return Some((fd, peer));
                }
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(_) => return None,
            }
        }
    }
}

/// Whether a socket is there at which nothing listens any more.
fn is_stale(path: &Path) -> bool {
    let socket =
        |stat: &rustix::fs::Stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket;
    lstat(path).is_ok_and(|stat| socket(&stat))
        && path.to_str().is_some_and(|path| socket::dial(path).err() == Some(Errno::CONNREFUSED))
}

impl Drop for Listener {
    fn drop(&mut self) {
        if lstat(&self.path).is_ok_and(|is| (is.st_dev, is.st_ino) == self.file) {
            let _ = unlink(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_may_connect_whatever_the_umask() {
        let directory = tempfile::tempdir().unwrap();
        let mode = |name: &str, all| {
            let path = directory.path().join(name);
            let _listener = Listener::bind(&path, all).unwrap();
            lstat(&path).unwrap().st_mode & 0o777
        };
        // Others of this process make files meanwhile: it is put back, and is a usual one.
        let before = rustix::process::umask(Mode::from_raw_mode(0o022));
        let modes = (mode("all", true), mode("one", false));
        rustix::process::umask(before);
        assert_eq!(modes, (0o666, 0o600));
    }
}
