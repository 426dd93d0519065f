//! What the local file system does besides.

use super::*;
use petasos_forward::protocol::{Kind, SetTime, Timestamp};
use std::{
    ffi::OsStr,
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
    },
    process::Command,
    time::Duration,
};

#[test]
fn the_suite() {
    let (_dir, local) = local();
    suite::all(&local);
    assert_eq!(names(&local, "", 99).iter().filter(|name| name.starts_with('.')).count(), 0);
}

#[test]
fn nothing_is_made_by_reading() {
    let (dir, local) = local();
    assert!(names(&local, "", 9).is_empty());
    assert_eq!(local.sweep(Duration::ZERO).unwrap(), 0);
    assert_eq!(fs::read_dir(dir.path().join("export")).unwrap().count(), 0);
    assert!(Local::open(&dir.path().join("none")).is_err());
}

#[test]
fn odd_names() {
    let (dir, local) = local();
    let long = vec![b'l'; 255];
    for name in [&b"a\nb"[..], b"\xff\xfe", b"-rf", b"...", b" ", b"*?\"'\\$(x)", b"\x7f", &long] {
        let at = RelPath::parse(name).unwrap();
        local.put(&at, name, &finish(name.len())).unwrap();
        let seen = fs::read(dir.path().join("export").join(OsStr::from_bytes(name))).unwrap();
        assert_eq!(seen, name);
        let page = local.open_dir(&RelPath::root()).unwrap().next(9).unwrap();
        assert_eq!(page.entries.len(), 1);
        assert_eq!(page.entries[0].name, name);
        assert_eq!(page.entries[0].attr, local.stat(&at, false).unwrap());
        local.remove(&at, false).unwrap();
    }
    let deep = path(&["d"; 2000].join("/"));
    refused(local.stat(&deep, true), Errno::NOENT);
    let long = "x/".repeat(2046) + "xyz";
    local.make_symlink(&path("s"), long.as_bytes()).unwrap();
    refused(local.stat(&path("s/and/more"), true), Errno::NAMETOOLONG);
}

/// Nothing but ordinary files is opened: a FIFO would wait for its other end.
#[test]
fn special_files_are_not_opened() {
    let (dir, local) = local();
    local.make_node(&path("fifo"), Kind::Fifo, &mode(0o666)).unwrap();
    local.make_node(&path("socket"), Kind::Socket, &mode(0o666)).unwrap();
    symlink("fifo", dir.path().join("export/link")).unwrap();
    for at in ["fifo", "socket", "link"] {
        for flags in [READ, WRITE, BOTH, NEW, WRITE.with(OpenFlags::TRUNCATE)] {
            refused(local.open(&path(at), flags, &mode(0)), Errno::NXIO);
        }
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        refused(local.set_attr(&path(at), &cut, true), Errno::NXIO);
        refused(local.open_dir(&path(at)).map(drop), Errno::NOTDIR);
    }
    let set = SetAttr { mode: Some(0o640), mtime: SetTime::Now, ..SetAttr::default() };
    assert_eq!(local.set_attr(&path("fifo"), &set, true).unwrap().mode, 0o640);
}

#[test]
fn reading_without_waiting() {
    let (_dir, local) = local();
    put(&local, "a", b"in memory");
    let file = local.open(&path("a"), READ, &mode(0)).unwrap();
    let mut into = [0; 20];
    if let Some(read) = file.read_at_once(0, &mut into) {
        assert_eq!((read.unwrap(), &into[..9]), (9, &b"in memory"[..]));
    }
}

/// Many pieces of memory at once: more than one system call takes.
#[test]
fn many_pieces() {
    let (_dir, local) = local();
    let data: Vec<u8> = (0..5000).map(|at| at as u8).collect();
    let pieces: Vec<_> = data.chunks(2).map(IoSlice::new).collect();
    let file = local.open(&path("a"), NEW, &mode(0o600)).unwrap();
    assert_eq!(file.write_at(10, &pieces).unwrap(), 5010);
    let file = local.open(&path("a"), NEW.with(OpenFlags::APPEND), &mode(0o600)).unwrap();
    assert_eq!(file.write_at(0, &pieces).unwrap(), 10010);
    assert_eq!(file.write_at(0, &[]).unwrap(), 10010);
    assert_eq!(get(&local, "a").unwrap(), [&[0; 10][..], &data, &data].concat());
}

/// A second server of the same directory has the same staged files, but not at the same time.
#[test]
fn two_servers() {
    let (dir, one) = local();
    let two = Local::open(&dir.path().join("export")).unwrap();
    let file = one.stage(&[1; 16]).unwrap();
    file.write_at(0, &[IoSlice::new(b"one")]).unwrap();
    refused(two.stage(&[1; 16]).map(drop), Errno::BUSY);
    refused(two.discard(&[1; 16]), Errno::BUSY);
    refused(two.publish(&[1; 16], &path("x"), &finish(3)), Errno::BUSY);
    assert_eq!(two.sweep(Duration::ZERO).unwrap(), 0);
    drop((file, one));
    two.publish(&[1; 16], &path("x"), &finish(3)).unwrap();
    assert_eq!(get(&two, "x").unwrap(), b"one");
    let stage = dir.path().join("export/.petasos/stage");
    assert_eq!(fs::read_dir(&stage).unwrap().count(), 0);
    assert_eq!(fs::metadata(&stage).unwrap().mode() & 0o777, 0o700);
}

/// The directory of the server must not be prepared by others.
#[test]
fn a_stage_that_others_can_enter() {
    let (dir, local) = local();
    let own = dir.path().join("export/.petasos");
    fs::create_dir(&own).unwrap();
    fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
    refused(local.stage(&[0; 16]).map(drop), Errno::PERM);
    fs::remove_dir(&own).unwrap();
    symlink(dir.path(), &own).unwrap();
    assert!(local.stage(&[0; 16]).is_err());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

/// The stage was removed while the server was running.
#[test]
fn a_stage_that_was_removed() {
    let (dir, local) = local();
    for _ in 0..2 {
        put(&local, "a", b"old");
        put(&local, "a", b"new");
        local.stage(&[0; 16]).unwrap().write_at(0, &[IoSlice::new(b"x")]).unwrap();
        fs::remove_dir_all(dir.path().join("export/.petasos")).unwrap();
        put(&local, "a", b"newer");
        fs::remove_dir_all(dir.path().join("export/.petasos")).unwrap();
        assert_eq!(local.stage(&[0; 16]).unwrap().attr().unwrap().size, 0);
        local.publish(&[0; 16], &path("b"), &finish(0)).unwrap();
    }
}

#[test]
fn files_in_a_directory_of_a_group() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("not checked: needs root");
    }
    let (_dir, local) = local();
    let team = Creation { mode: 0o2770, owner: Some((1234, 4321)) };
    let attr = local.make_dir(&path("team"), &team).unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode), (1234, 4321, 0o2770));
    put(&local, "team/a", b"");
    put(&local, "team/a", b"again");
    local.stage(&[2; 16]).unwrap();
    local.publish(&[2; 16], &path("team/b"), &finish(0)).unwrap();
    local.open(&path("team/c"), NEW, &mode(0o600)).unwrap();
    let below = local.make_dir(&path("team/d"), &mode(0o750)).unwrap();
    assert_eq!((below.gid, below.mode), (4321, 0o2750), "as the one it is in");
    for name in ["team/a", "team/b", "team/c"] {
        assert_eq!(local.stat(&path(name), false).unwrap().gid, 4321, "{name}");
    }
    let mut given = finish(1);
    given.set = SetAttr { mode: Some(0o6755), uid: Some(7), gid: Some(8), ..given.set };
    for name in ["team/a", "team/new"] {
        let attr = local.put(&path(name), b"x", &given).unwrap();
        assert_eq!((attr.uid, attr.gid, attr.mode), (7, 8, 0o6755));
    }
    let owned = Creation { mode: 0o4711, owner: Some((7, 8)) };
    let attr = local.open(&path("mine"), NEW, &owned).unwrap().attr().unwrap();
    assert_eq!((attr.uid, attr.gid, attr.mode), (7, 8, 0o4711));
}

/// The same as a user without rights: this test starts itself anew as one.
#[test]
fn without_privileges() {
    const AGAIN: &str = "PETASOS_TEST_UNPRIVILEGED";
    if let Some(dir) = std::env::var_os(AGAIN) {
        return unprivileged(Local::open(dir.as_ref()).unwrap());
    }
    let dir = tempfile::tempdir().unwrap();
    if rustix::process::geteuid().is_root() {
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let export = dir.path().join("export");
        fs::create_dir(&export).unwrap();
        std::os::unix::fs::chown(&export, Some(65534), Some(65534)).unwrap();
        petasos_testing::copy_program(&std::env::current_exe().unwrap(), &dir.path().join("test"));
        let done = Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"])
            .arg(dir.path().join("test"))
            .args(["--exact", "local::without_privileges"])
            .env(AGAIN, &export)
            .current_dir(&export)
            .output();
        match done {
            Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout)),
            Err(error) => eprintln!("not checked: setpriv: {error}"),
        }
    } else {
        unprivileged(Local::open(dir.path()).unwrap());
    }
}

fn unprivileged(local: Local) {
    assert!(!rustix::process::geteuid().is_root());
    suite::all(&local);
    let mut given = finish(1);
    given.set = SetAttr { mode: Some(0o6755), uid: Some(0), gid: Some(0), ..given.set };
    let own = rustix::process::geteuid().as_raw();
    for _ in 0..2 {
        let attr = local.put(&path("theirs"), b"x", &given).unwrap();
        assert_eq!((attr.uid, attr.mode), (own, 0o755), "no rights of ours for a file of others'");
    }
    let theirs = Creation { mode: 0o4755, owner: Some((0, 0)) };
    let attr = local.open(&path("made"), NEW, &theirs).unwrap().attr().unwrap();
    assert_eq!((attr.uid, attr.mode), (own, 0o755));
    let set = SetAttr { uid: Some(0), ..SetAttr::default() };
    refused(local.set_attr(&path("made"), &set, true), Errno::PERM);
    local.make_dir(&path("closed"), &mode(0)).unwrap();
    refused(local.stat(&path("closed/x"), true), Errno::ACCESS);
    refused(local.put(&path("closed/x"), b"x", &finish(1)), Errno::ACCESS);
    let time = SetTime::At(Timestamp { seconds: 1, nanos: 0 });
    let set = SetAttr { mtime: time, ..SetAttr::default() };
    assert_eq!(local.set_attr(&path("closed"), &set, true).unwrap().mtime.seconds, 1);
}
