//! Exports that nothing can be changed in, and what `O_TRUNC` does.

use crate::harness::{bench, bench_of};
use petasos_forward::server::ServerConfig;
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps, XattrFlags, chmod,
        mknodat, open, renameat_with, utimensat,
    },
    io::Errno,
};
use std::{fs, os::unix::fs::MetadataExt};

/// An export that nothing can be changed in, mounted as any other: what changes something gives
/// `EROFS`, as on a disk that is mounted read-only.
#[test]
fn a_read_only_export_is_read_only() {
    let mut config = ServerConfig::default();
    config.read_only = true;
    let Some(bench) = bench_of("shm://*", config, |_| {}) else { return };
    fs::write(bench.export.join("f"), b"text").unwrap();
    fs::create_dir(bench.export.join("d")).unwrap();
    let (path, new) = (bench.path("f"), bench.path("new"));
    let open = |flags| open(&path, flags, Mode::RWXU).map(drop);
    let (read, write, both) = (OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR);
    let file = fs::File::open(&path).unwrap();
    let times = Timestamps {
        last_access: Timespec { tv_sec: 1, tv_nsec: 0 },
        last_modification: Timespec { tv_sec: 1, tv_nsec: 0 },
    };
    let none = RenameFlags::empty();
    let attr = XattrFlags::empty();
    for (what, refused) in [
        ("O_RDONLY|O_TRUNC", open(read | OFlags::TRUNC)),
        ("O_WRONLY", open(write)),
        ("O_WRONLY|O_TRUNC", open(write | OFlags::TRUNC)),
        ("O_RDWR|O_TRUNC", open(both | OFlags::TRUNC)),
        ("O_WRONLY|O_APPEND", open(write | OFlags::APPEND)),
        ("O_CREAT|O_TRUNC", open(write | OFlags::CREATE | OFlags::TRUNC)),
        ("create", rustix::fs::open(&new, write | OFlags::CREATE, Mode::RWXU).map(drop)),
        ("chmod", chmod(&path, Mode::RWXU)),
        ("fchmod", rustix::fs::fchmod(&file, Mode::RWXU)),
        ("chown", rustix::fs::chown(&path, None, Some(rustix::fs::Gid::ROOT))),
        ("utimensat", utimensat(CWD, &path, &times, AtFlags::empty())),
        ("mkdir", rustix::fs::mkdir(&new, Mode::RWXU)),
        ("mknod", mknodat(CWD, &new, FileType::Fifo, Mode::RWXU, 0)),
        ("symlink", rustix::fs::symlink("f", &new)),
        ("link", rustix::fs::link(&path, &new)),
        ("rename", renameat_with(CWD, &path, CWD, &new, none)),
        ("unlink", rustix::fs::unlink(&path)),
        ("rmdir", rustix::fs::rmdir(bench.path("d"))),
        ("setxattr", rustix::fs::setxattr(&path, "user.a", b"1", attr)),
        ("removexattr", rustix::fs::removexattr(&path, "user.a")),
    ] {
        assert_eq!(refused, Err(Errno::ROFS), "{what}");
    }
    assert_eq!(fs::read(&path).unwrap(), b"text");
    assert_eq!(fs::read_dir(&bench.export).unwrap().count(), 2);
}

/// As on Linux' own file systems, a file that is opened to be read can be cut by that.
#[test]
fn a_file_is_cut_by_who_only_reads_it() {
    let Some(bench) = bench() else { return };
    fs::write(bench.path("f"), b"text").unwrap();
    drop(open(bench.path("f"), OFlags::RDONLY | OFlags::TRUNC, Mode::empty()).unwrap());
    assert_eq!(fs::read(bench.export.join("f")).unwrap(), b"");
    assert_eq!(fs::metadata(bench.path("f")).unwrap().size(), 0);
}
