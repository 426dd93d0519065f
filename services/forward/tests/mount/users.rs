//! What others may do: permissions are checked as on a disk, with the owners that the server has.

use crate::harness::bench_over;
use petasos_testing::{again_as_nobody, role};
use rustix::{
    fs::{
        AtFlags, CWD, Mode, OFlags, Timespec, Timestamps, chmod, chown, mkdir, open, rename, stat,
    },
    fs::{Gid, Uid, ftruncate, symlink, unlink, utimensat},
    io::{Errno, write},
};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

const PLACE: &str = "PETASOS_TEST_PLACE";
const NOBODY: u32 = 65534;

type Row = (&'static str, Result<(), Errno>, fn(&Path) -> Result<(), Errno>);

fn mode(bits: u32) -> Mode {
    Mode::from_raw_mode(bits)
}

/// What the other user tries. The directory is root's and open to all; see `prepare`.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("reads what is not for this user", Err(Errno::ACCESS), |d| open(d.join("secret"), OFlags::RDONLY, mode(0)).map(drop)),
    ("writes what it may only read", Err(Errno::ACCESS), |d| open(d.join("public"), OFlags::WRONLY, mode(0)).map(drop)),
    ("reads what it may read", Ok(()), |d| open(d.join("public"), OFlags::RDONLY, mode(0)).map(drop)),
    ("cuts what it may only read", Err(Errno::ACCESS), |d| {
        open(d.join("public"), OFlags::WRONLY | OFlags::TRUNC, mode(0)).map(drop)
    }),
    ("makes a file where it may not", Err(Errno::ACCESS), |d| {
        open(d.join("closed/f"), OFlags::CREATE | OFlags::WRONLY, mode(0o644)).map(drop)
    }),
    ("looks into a closed directory", Err(Errno::ACCESS), |d| stat(d.join("dark/f")).map(drop)),
    ("removes from a closed directory", Err(Errno::ACCESS), |d| unlink(d.join("closed/there"))),
    ("makes a directory where it may not", Err(Errno::ACCESS), |d| mkdir(d.join("closed/d"), mode(0o755))),
    ("changes another's mode", Err(Errno::PERM), |d| chmod(d.join("public"), mode(0o777))),
    ("takes another's file", Err(Errno::PERM), |d| chown(d.join("public"), Some(Uid::from_raw(NOBODY)), None)),
    ("sets another's times", Err(Errno::PERM), |d| {
        let time = Timespec { tv_sec: 1, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, d.join("public"), &times, AtFlags::empty())
    }),
    ("removes another's file from a sticky directory", Err(Errno::PERM), |d| unlink(d.join("sticky/root"))),
    ("renames another's file in a sticky directory", Err(Errno::PERM), |d| {
        rename(d.join("sticky/root"), d.join("sticky/mine"))
    }),
    ("its own in a sticky directory", Ok(()), |d| {
        let file = open(d.join("sticky/own"), OFlags::CREATE | OFlags::WRONLY, mode(0o640))?;
        write(&file, b"text")?;
        let s = stat(d.join("sticky/own"))?;
        assert_eq!((s.st_uid, s.st_gid, s.st_mode & 0o777), (NOBODY, NOBODY, 0o640));
        rename(d.join("sticky/own"), d.join("sticky/other"))?;
        unlink(d.join("sticky/other"))
    }),
    ("its own directories and links", Ok(()), |d| {
        mkdir(d.join("open/d"), mode(0o700))?;
        symlink("d", d.join("open/l"))?;
        let l = rustix::fs::lstat(d.join("open/l"))?;
        assert_eq!((stat(d.join("open/d"))?.st_uid, l.st_uid), (NOBODY, NOBODY));
        chmod(d.join("open/d"), mode(0o750))
    }),
    ("gives its own away", Err(Errno::PERM), |d| {
        open(d.join("open/g"), OFlags::CREATE | OFlags::WRONLY, mode(0o644))?;
        chown(d.join("open/g"), Some(Uid::ROOT), Some(Gid::ROOT))
    }),
    ("a file that it may not read, once it is open", Ok(()), |d| {
        let file = open(d.join("open/h"), OFlags::CREATE | OFlags::RDWR, mode(0o000))?;
        write(&file, b"text")?;
        ftruncate(&file, 2)?;
        assert_eq!(open(d.join("open/h"), OFlags::RDONLY, mode(0)).map(drop), Err(Errno::ACCESS));
        assert_eq!(rustix::io::pread(&file, &mut [0; 8], 0)?, 2);
        Ok(())
    }),
    ("what it changes gives no process its owner's rights", Ok(()), |d| {
        for name in ["program", "program2"] {
            assert_eq!(stat(d.join(name))?.st_mode & 0o7777, 0o4777);
        }
        write(open(d.join("program"), OFlags::WRONLY, mode(0))?, b"x")?;
        drop(open(d.join("program2"), OFlags::WRONLY | OFlags::TRUNC, mode(0))?);
        for name in ["program", "program2"] {
            assert_eq!(stat(d.join(name))?.st_mode & 0o7777, 0o777, "{name}");
        }
        Ok(())
    }),
];

fn prepare(d: &Path) {
    let make = |name: &str, bits| {
        fs::write(d.join(name), b"text").unwrap();
        fs::set_permissions(d.join(name), fs::Permissions::from_mode(bits)).unwrap();
    };
    let make_dir = |name: &str, bits| {
        fs::create_dir(d.join(name)).unwrap();
        fs::set_permissions(d.join(name), fs::Permissions::from_mode(bits)).unwrap();
    };
    fs::set_permissions(d, fs::Permissions::from_mode(0o755)).unwrap();
    for (name, bits) in [("closed", 0o755), ("dark", 0o700), ("sticky", 0o1777), ("open", 0o777)] {
        make_dir(name, bits);
    }
    for (name, bits) in [("secret", 0o600), ("public", 0o644), ("closed/there", 0o666)] {
        make(name, bits);
    }
    for (name, bits) in [("sticky/root", 0o666), ("program", 0o4777), ("program2", 0o4777)] {
        make(name, bits);
    }
}

fn try_all(d: &Path) {
    let mut wrong = Vec::new();
    for (what, gives, run) in ROWS {
        let gave = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(d)));
        if gave.as_ref().ok() != Some(gives) {
            wrong.push(format!("{what}: {gave:?}, not {gives:?}"));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn another_user() {
    if role().is_some() {
        return try_all(&PathBuf::from(std::env::var_os(PLACE).unwrap()));
    }
    let Some(bench) = bench_over("shm://*", |options| options.allow_other = true) else { return };
    let top = bench.at.parent().unwrap();
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    let plain = bench.outside("plain");
    fs::create_dir(&plain).unwrap();
    for place in [&plain, &bench.at] {
        prepare(place);
        let Some(starter) = again_as_nobody("users::another_user", "other") else { return };
        let mut other = starter.env(PLACE, place.to_str().unwrap()).start();
        assert!(other.wait(Duration::from_secs(60)).success(), "in {}", place.display());
    }
}

#[test]
fn not_for_others() {
    if role().is_some() {
        let place = PathBuf::from(std::env::var_os(PLACE).unwrap());
        assert_eq!(stat(place).map(drop), Err(Errno::ACCESS));
        return;
    }
    let Some(bench) = bench_over("shm://*", |_| {}) else { return };
    let top = bench.at.parent().unwrap();
    fs::set_permissions(top, fs::Permissions::from_mode(0o755)).unwrap();
    let Some(starter) = again_as_nobody("users::not_for_others", "other") else { return };
    let mut other = starter.env(PLACE, bench.at.to_str().unwrap()).start();
    assert!(other.wait(Duration::from_secs(60)).success());
}
