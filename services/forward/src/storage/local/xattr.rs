//! Extended attributes: those of users alone. What the system keeps in others (capabilities, access
//! lists, labels) is the server's own business.

use super::resolve::proc_path;
use crate::{FsError, FsResult, protocol::XattrMode};
use rustix::{
    buffer::spare_capacity,
    fd::BorrowedFd,
    fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr},
    io::Errno,
};

/// The longest value, and the longest list of names, in bytes: Linux's own limit.
const MOST: usize = 65536;

/// What all names begin with.
const USER: &[u8] = b"user.";

pub(super) fn get(fd: BorrowedFd<'_>, name: &[u8]) -> FsResult<Vec<u8>> {
    match name {
        _ if name.starts_with(USER) => {}
        // Asked for by each write, by the kernel of a client that has the export mounted.
        _ if name.starts_with(b"security.") => return Err(Errno::NODATA.into()),
        _ => return Err(others(Errno::OPNOTSUPP)),
    }
    let mut value = Vec::with_capacity(MOST);
    getxattr(proc_path(fd), name, spare_capacity(&mut value))?;
    value.shrink_to_fit();
    Ok(value)
}

pub(super) fn list(fd: BorrowedFd<'_>) -> FsResult<Vec<Vec<u8>>> {
    let mut names = Vec::with_capacity(MOST);
    match listxattr(proc_path(fd), spare_capacity(&mut names)) {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        result => result?,
    };
    let names = names.split(|byte| *byte == 0).filter(|name| name.starts_with(USER));
    Ok(names.map(Vec::from).collect())
}

pub(super) fn set(fd: BorrowedFd<'_>, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
    if !name.starts_with(USER) {
        return Err(refused(name));
    }
    if value.len() > MOST {
        return Err(FsError::new(
            Errno::TOOBIG,
            format!("{} bytes, the most are {MOST}", value.len()),
        ));
    }
    let flags = match mode {
        XattrMode::Any => XattrFlags::empty(),
        XattrMode::Create => XattrFlags::CREATE,
        XattrMode::Replace => XattrFlags::REPLACE,
    };
    Ok(setxattr(proc_path(fd), name, value, flags)?)
}

pub(super) fn remove(fd: BorrowedFd<'_>, name: &[u8]) -> FsResult<()> {
    match name.starts_with(USER) {
        true => Ok(removexattr(proc_path(fd), name)?),
        false => Err(refused(name)),
    }
}

/// Programs that copy files take `EOPNOTSUPP` for access lists, and go on.
fn refused(name: &[u8]) -> FsError {
    others(if name.starts_with(b"system.") { Errno::OPNOTSUPP } else { Errno::PERM })
}

fn others(errno: Errno) -> FsError {
    FsError::new(errno, "only attributes named user.* are served")
}
