//! What all storages do alike, as far as they say that they can.

use super::*;
use petasos_forward::protocol::{
    Allocation, Extent, Kind, RenameMode, SetTime, Timestamp, XattrMode,
};
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

/// Runs all checks, each in a directory of its own, so that they do not meet.
pub(super) fn all(storage: &dyn Storage) {
    read_and_write(storage);
    refusals(storage);
    directories(storage);
    renames(storage);
    pages(storage);
    staging(storage);
    puts_are_whole(storage);
    let can = storage.abilities();
    if can.random_write {
        random_writes(storage);
    }
    if can.holes {
        holes(storage);
    }
    if can.links {
        links(storage);
    }
    if can.attributes {
        attributes(storage);
    }
    if can.xattrs {
        xattrs(storage);
    }
    assert!(!storage.describe().is_empty());
    assert!(storage.stat_fs().expect("room").name_max >= 255);
}

fn dir(storage: &dyn Storage, name: &str) {
    let attr = storage.make_dir(&path(name), &mode(0o755)).expect(name);
    assert_eq!(attr.kind, Kind::Directory);
}

fn read_and_write(storage: &dyn Storage) {
    dir(storage, "rw");
    let file = storage.open(&path("rw/a"), NEW, &mode(0o640)).unwrap();
    let pieces = [IoSlice::new(b"hello"), IoSlice::new(b""), IoSlice::new(b", world")];
    assert_eq!(file.write_at(0, &pieces).unwrap(), 12);
    assert_eq!(file.attr().unwrap().size, 12);
    let mut into = [0; 5];
    assert_eq!(file.read_at(7, &mut into).unwrap(), 5);
    assert_eq!(&into, b"world");
    assert_eq!(file.read_at(10, &mut into).unwrap(), 2);
    assert_eq!(file.read_at(12, &mut into).unwrap(), 0);
    assert_eq!(file.read_at(1 << 40, &mut into).unwrap(), 0);
    file.sync(false).unwrap();
    drop(file);
    assert_eq!(get(storage, "rw/a").unwrap(), b"hello, world");

    let (cut, exclusive) = (OpenFlags::TRUNCATE, OpenFlags::EXCLUSIVE);
    refused(storage.open(&path("rw/a"), NEW.with(exclusive), &mode(0)), Errno::EXIST);
    let file = storage.open(&path("rw/a"), WRITE.with(cut), &mode(0)).unwrap();
    file.write_at(0, &[IoSlice::new(b"new")]).unwrap();
    file.sync(true).unwrap();
    drop(file);
    assert_eq!(get(storage, "rw/a").unwrap(), b"new");
    let file = storage.open(&path("rw/a"), READ, &mode(0)).unwrap();
    assert!(file.write_at(0, &[IoSlice::new(b"x")]).is_err(), "it was opened to be read");
    for flags in [OpenFlags(0), READ.with(cut), READ.with(OpenFlags::APPEND), OpenFlags(1 << 20)] {
        refused(storage.open(&path("rw/a"), flags, &mode(0)), Errno::INVAL);
    }
    // Large enough for several parts of an upload.
    let data: Vec<u8> = (0..20_000_000_u32).map(|at| (at >> 3) as u8).collect();
    let file = storage.open(&path("rw/large"), NEW, &mode(0o600)).unwrap();
    assert_eq!(file.write_at(0, &[IoSlice::new(&data)]).unwrap(), data.len() as u64);
    file.sync(false).unwrap();
    drop(file);
    assert!(get(storage, "rw/large").unwrap() == data);
}

fn random_writes(storage: &dyn Storage) {
    dir(storage, "random");
    put(storage, "random/a", b"0123456789");
    assert_eq!(write(storage, "random/a", 4, b"xy").unwrap(), 6);
    assert_eq!(write(storage, "random/a", 12, b"z").unwrap(), 13);
    assert_eq!(get(storage, "random/a").unwrap(), b"0123xy6789\0\0z");
    let append = WRITE.with(OpenFlags::APPEND);
    let first = storage.open(&path("random/a"), append, &mode(0)).unwrap();
    let second = storage.open(&path("random/a"), append, &mode(0)).unwrap();
    assert_eq!(first.write_at(0, &[IoSlice::new(b"AB")]).unwrap(), 15);
    assert_eq!(second.write_at(1, &[IoSlice::new(b"C"), IoSlice::new(b"D")]).unwrap(), 17);
    assert_eq!(first.write_at(2, &[IoSlice::new(b"E")]).unwrap(), 18);
    first.sync(false).unwrap();
    second.sync(false).unwrap();
    drop((first, second));
    assert_eq!(get(storage, "random/a").unwrap(), b"0123xy6789\0\0zABCDE");
    for (size, wanted) in [(4, &b"0123"[..]), (6, b"0123\0\0"), (0, b"")] {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        assert_eq!(storage.set_attr(&path("random/a"), &set, true).unwrap().size, size);
        assert_eq!(get(storage, "random/a").unwrap(), wanted);
    }
    let file = storage.open(&path("random/a"), BOTH, &mode(0)).unwrap();
    let set = SetAttr { size: Some(3), ..SetAttr::default() };
    assert_eq!(file.set_attr(&set).unwrap().size, 3);
    refused(file.write_at(u64::MAX, &[IoSlice::new(b"x")]), Errno::FBIG);
    let set = SetAttr { size: Some(u64::MAX), ..SetAttr::default() };
    refused(file.set_attr(&set), Errno::FBIG);
}

fn refusals(storage: &dyn Storage) {
    dir(storage, "no");
    dir(storage, "no/dir");
    put(storage, "no/dir/file", b"x");
    let open = |at: &str, flags| storage.open(&path(at), flags, &mode(0o600)).map(drop);
    refused(open("no/none", READ), Errno::NOENT);
    refused(open("no/none/file", NEW), Errno::NOENT);
    refused(open("no/dir/file/x", READ), Errno::NOTDIR);
    refused(open("no/dir/file/x", NEW), Errno::NOTDIR);
    refused(open("no/dir", READ), Errno::ISDIR);
    refused(open("no/dir", NEW), Errno::ISDIR);
    refused(open("", READ), Errno::ISDIR);
    refused(storage.open_dir(&path("no/dir/file")).map(drop), Errno::NOTDIR);
    refused(storage.open_dir(&path("no/none")).map(drop), Errno::NOENT);
    refused(storage.stat(&path("no/none"), true), Errno::NOENT);
    refused(storage.stat(&path("no/dir/file/x"), true), Errno::NOTDIR);
    refused(storage.make_dir(&path("no/dir"), &mode(0o755)), Errno::EXIST);
    refused(storage.make_dir(&path("no/dir/file"), &mode(0o755)), Errno::EXIST);
    refused(storage.make_dir(&path("no/none/x"), &mode(0o755)), Errno::NOENT);
    refused(storage.make_dir(&path(""), &mode(0o755)), Errno::EXIST);
    refused(storage.remove(&path("no/dir"), true), Errno::NOTEMPTY);
    refused(storage.remove(&path("no/dir"), false), Errno::ISDIR);
    refused(storage.remove(&path("no/dir/file"), true), Errno::NOTDIR);
    refused(storage.remove(&path("no/none"), false), Errno::NOENT);
    refused(storage.remove(&path("no/none"), true), Errno::NOENT);
    refused(storage.remove(&path(""), true), Errno::BUSY);
    refused(storage.put(&path("no/dir"), b"x", &finish(1)), Errno::ISDIR);
    refused(storage.put(&path(""), b"x", &finish(1)), Errno::ISDIR);
    refused(storage.put(&path("no/none/x"), b"x", &finish(1)), Errno::NOENT);
    refused(storage.put(&path("no/dir/file/x"), b"x", &finish(1)), Errno::NOTDIR);
    refused(storage.put(&path("no/dir/new"), b"xx", &finish(1)), Errno::INVAL);
    let keep = Finish { replace: false, ..finish(1) };
    refused(storage.put(&path("no/dir/file"), b"y", &keep), Errno::EXIST);
    assert_eq!(get(storage, "no/dir/file").unwrap(), b"x");
    assert_eq!(names(storage, "no/dir", 10), ["file"]);
}

fn directories(storage: &dyn Storage) {
    dir(storage, "dirs");
    dir(storage, "dirs/a");
    dir(storage, "dirs/a/b");
    put(storage, "dirs/a/f", b"1");
    assert_eq!(names(storage, "dirs/a", 1), ["b", "f"]);
    assert_eq!(names(storage, "dirs/a/b", 1), [""; 0]);
    let attr = storage.stat(&path("dirs/a/f"), false).unwrap();
    assert_eq!((attr.kind, attr.size, attr.links), (Kind::File, 1, 1));
    storage.remove(&path("dirs/a/b"), true).unwrap();
    refused(storage.stat(&path("dirs/a/b"), true), Errno::NOENT);
    storage.remove(&path("dirs/a/f"), false).unwrap();
    assert_eq!(storage.stat(&path("dirs/a"), true).unwrap().kind, Kind::Directory, "empty by now");
    storage.remove(&path("dirs/a"), true).unwrap();
    assert_eq!(names(storage, "dirs", 10), [""; 0]);
    assert_eq!(storage.stat(&path(""), true).unwrap().kind, Kind::Directory);
    assert!(names(storage, "", 10).contains(&"dirs".into()));
}

fn renames(storage: &dyn Storage) {
    let rename = |from: &str, to: &str, mode| storage.rename(&path(from), &path(to), mode);
    dir(storage, "mv");
    dir(storage, "mv/d");
    put(storage, "mv/a", b"a");
    put(storage, "mv/b", b"b");
    refused(rename("mv/a", "mv/b", RenameMode::Keep), Errno::EXIST);
    rename("mv/a", "mv/b", RenameMode::Replace).unwrap();
    refused(rename("mv/a", "mv/b", RenameMode::Replace), Errno::NOENT);
    assert_eq!(get(storage, "mv/b").unwrap(), b"a");
    rename("mv/b", "mv/d/c", RenameMode::Keep).unwrap();
    assert_eq!(get(storage, "mv/d/c").unwrap(), b"a");
    rename("mv/d/c", "mv/d/c", RenameMode::Replace).unwrap();
    assert_eq!(get(storage, "mv/d/c").unwrap(), b"a", "its own name is no change");
    put(storage, "mv/e", b"e");
    refused(rename("mv/e", "mv/d", RenameMode::Replace), Errno::ISDIR);
    refused(rename("mv/d", "mv/e", RenameMode::Replace), Errno::NOTDIR);
    refused(rename("mv/e", "mv/none/e", RenameMode::Replace), Errno::NOENT);
    refused(rename("mv/d", "mv/d/e", RenameMode::Replace), Errno::INVAL);
    refused(rename("", "mv/x", RenameMode::Replace), Errno::BUSY);
    dir(storage, "mv/full");
    put(storage, "mv/full/x", b"x");
    refused(rename("mv/d", "mv/full", RenameMode::Replace), Errno::NOTEMPTY);
    rename("mv/d", "mv/g", RenameMode::Replace).unwrap();
    assert_eq!(get(storage, "mv/g/c").unwrap(), b"a");
    refused(storage.stat(&path("mv/d"), false), Errno::NOENT);
    match rename("mv/e", "mv/g", RenameMode::Exchange) {
        Ok(()) => {
            assert_eq!(get(storage, "mv/e/c").unwrap(), b"a");
            assert_eq!(get(storage, "mv/g").unwrap(), b"e");
        }
        Err(error) => assert_eq!(error.errno(), Errno::OPNOTSUPP),
    }
}

/// What is there all the time comes exactly once, while others come and go.
fn pages(storage: &dyn Storage) {
    const STAY: usize = 1300;
    dir(storage, "pages");
    for at in 0..STAY {
        put(storage, &format!("pages/stays-{at:05}"), b"");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in (0..).take_while(|_| !stop.load(Ordering::Relaxed)) {
                put(storage, &format!("pages/comes-{:03}", at % 300), b"");
                let _ = storage.remove(&path(&format!("pages/comes-{:03}", (at * 7) % 300)), false);
            }
        });
        let listed: Vec<_> = [100, 999, 5000].map(|most| names(storage, "pages", most)).into();
        stop.store(true, Ordering::Relaxed);
        for listed in listed {
            let distinct: BTreeSet<_> = listed.iter().collect();
            assert_eq!(distinct.len(), listed.len(), "a name comes once");
            assert_eq!(listed.iter().filter(|name| name.starts_with("stays-")).count(), STAY);
        }
    });
}

fn staging(storage: &dyn Storage) {
    dir(storage, "stage");
    let (key, other) = ([7; 16], [8; 16]);
    let file = storage.stage(&key).unwrap();
    file.write_at(0, &[IoSlice::new(b"first")]).unwrap();
    refused(storage.stage(&key).map(drop), Errno::BUSY);
    drop(file);
    let file = storage.stage(&key).unwrap();
    let mut into = [0; 9];
    assert_eq!(file.read_at(0, &mut into).unwrap(), 5, "what was written is there again");
    assert_eq!(file.extents(0, 9).unwrap(), [Extent { offset: 0, len: 5 }]);
    file.write_at(5, &[IoSlice::new(b" second")]).unwrap();
    refused(storage.publish(&key, &path("stage/a"), &finish(11)), Errno::INVAL);
    assert_eq!(names(storage, "stage", 9), [""; 0]);
    let attr = storage.publish(&key, &path("stage/a"), &finish(14)).unwrap();
    drop(file);
    assert_eq!((attr.kind, attr.size), (Kind::File, 14));
    assert_eq!(get(storage, "stage/a").unwrap(), b"first second\0\0");
    refused(storage.publish(&key, &path("stage/b"), &finish(14)), Errno::NOENT);

    let file = storage.stage(&key).unwrap();
    assert_eq!(file.attr().unwrap().size, 0, "a key begins anew after it was published");
    file.write_at(0, &[IoSlice::new(b"new")]).unwrap();
    drop(file);
    let keep = Finish { replace: false, ..finish(3) };
    refused(storage.publish(&key, &path("stage/a"), &keep), Errno::EXIST);
    refused(storage.publish(&key, &path("stage"), &finish(3)), Errno::ISDIR);
    refused(storage.publish(&key, &path("stage/none/x"), &finish(3)), Errno::NOENT);
    let durable = Finish { durable: true, ..finish(3) };
    storage.publish(&key, &path("stage/a"), &durable).unwrap();
    assert_eq!(get(storage, "stage/a").unwrap(), b"new");

    storage.stage(&key).unwrap().write_at(0, &[IoSlice::new(b"x")]).unwrap();
    storage.discard(&key).unwrap();
    storage.discard(&key).unwrap();
    refused(storage.publish(&key, &path("stage/b"), &finish(1)), Errno::NOENT);
    let open = storage.stage(&key).unwrap();
    drop(storage.stage(&other).unwrap());
    assert_eq!(storage.sweep(Duration::from_secs(3600)).unwrap(), 0);
    assert_eq!(storage.sweep(Duration::ZERO).unwrap(), 1, "but for what is open");
    open.write_at(0, &[IoSlice::new(b"here")]).unwrap();
    storage.publish(&key, &path("stage/b"), &finish(4)).unwrap();
    assert_eq!(names(storage, "stage", 9), ["a", "b"]);
    assert_eq!(get(storage, "stage/b").unwrap(), b"here");
}

/// A concurrent reader sees one of the versions.
fn puts_are_whole(storage: &dyn Storage) {
    dir(storage, "whole");
    let version = |at: usize| vec![at as u8; 1000 + 37 * at];
    let versions: Vec<_> = (0..200).map(version).collect();
    put(storage, "whole/file", &versions[0]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !stop.load(Ordering::Relaxed) || seen == 0 {
                let data = get(storage, "whole/file").expect("it is always there");
                assert!(data == versions[data[0] as usize], "a version of {}", data[0]);
                seen += 1;
            }
        });
        for (at, version) in versions.iter().enumerate().skip(1) {
            match at % 3 {
                0 => {
                    let staged = storage.stage(&[9; 16]).unwrap();
                    staged.write_at(0, &[IoSlice::new(version)]).unwrap();
                    let finish = finish(version.len());
                    storage.publish(&[9; 16], &path("whole/file"), &finish).unwrap();
                }
                _ => put(storage, "whole/file", version),
            }
        }
        stop.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
}

fn holes(storage: &dyn Storage) {
    const MIB: u64 = 1 << 20;
    dir(storage, "holes");
    let file = storage.open(&path("holes/a"), NEW, &mode(0o600)).unwrap();
    file.write_at(MIB, &[IoSlice::new(&[1; 4096])]).unwrap();
    file.write_at(3 * MIB, &[IoSlice::new(&[2; 4096])]).unwrap();
    file.set_attr(&SetAttr { size: Some(8 * MIB), ..SetAttr::default() }).unwrap();
    let extent = |offset, len| Extent { offset, len };
    assert_eq!(file.extents(0, 9).unwrap(), [extent(MIB, 4096), extent(3 * MIB, 4096)]);
    assert_eq!(file.extents(0, 1).unwrap(), [extent(MIB, 4096)]);
    assert_eq!(file.extents(MIB + 4096, 9).unwrap(), [extent(3 * MIB, 4096)]);
    assert_eq!(file.extents(4 * MIB, 9).unwrap(), []);
    assert_eq!(file.extents(9 * MIB, 9).unwrap(), []);
    assert!(file.attr().unwrap().blocks < 1000);
    file.allocate(Allocation::Punch, extent(MIB, 4096)).unwrap();
    assert_eq!(file.extents(0, 9).unwrap(), [extent(3 * MIB, 4096)]);
    file.allocate(Allocation::ReserveOnly, extent(8 * MIB, MIB)).unwrap();
    assert_eq!(file.attr().unwrap().size, 8 * MIB);
    file.allocate(Allocation::Reserve, extent(8 * MIB, MIB)).unwrap();
    assert_eq!(file.attr().unwrap().size, 9 * MIB);
    refused(file.allocate(Allocation::Reserve, extent(0, 0)), Errno::INVAL);
}

fn links(storage: &dyn Storage) {
    dir(storage, "ln");
    dir(storage, "ln/d");
    put(storage, "ln/d/a", b"a");
    assert_eq!(storage.hard_link(&path("ln/d/a"), &path("ln/b")).unwrap().links, 2);
    refused(storage.hard_link(&path("ln/d/a"), &path("ln/b")), Errno::EXIST);
    refused(storage.hard_link(&path("ln/d"), &path("ln/e")), Errno::PERM);
    storage.remove(&path("ln/d/a"), false).unwrap();
    assert_eq!(get(storage, "ln/b").unwrap(), b"a");
    let link = |at: &str, says: &str| storage.make_symlink(&path(at), says.as_bytes()).unwrap();
    assert_eq!(link("ln/s", "../ln/b").kind, Kind::Symlink);
    link("ln/t", "d/../s");
    link("ln/to", "d");
    link("ln/dangling", "d/new");
    link("ln/round", "round");
    assert_eq!(get(storage, "ln/t").unwrap(), b"a");
    assert_eq!(storage.read_link(&path("ln/t")).unwrap(), b"d/../s");
    refused(storage.read_link(&path("ln/b")), Errno::INVAL);
    assert_eq!(storage.stat(&path("ln/t"), true).unwrap().kind, Kind::File);
    assert_eq!(storage.stat(&path("ln/t"), false).unwrap().kind, Kind::Symlink);
    refused(storage.stat(&path("ln/round"), true), Errno::LOOP);
    refused(storage.stat(&path("ln/round/x"), false), Errno::LOOP);
    refused(storage.stat(&path("ln/t/x"), false), Errno::NOTDIR);
    refused(storage.open(&path("ln/t"), READ.with(OpenFlags::NO_FOLLOW), &mode(0)), Errno::LOOP);
    refused(storage.open(&path("ln/dangling"), READ, &mode(0)), Errno::NOENT);
    let exclusive = NEW.with(OpenFlags::EXCLUSIVE);
    refused(storage.open(&path("ln/dangling"), exclusive, &mode(0o600)), Errno::EXIST);
    storage.open(&path("ln/dangling"), NEW, &mode(0o600)).unwrap();
    assert_eq!(names(storage, "ln/to", 9), ["new"]);
    storage.rename(&path("ln/to/new"), &path("ln/to/old"), RenameMode::Replace).unwrap();
    put(storage, "ln/to/x", b"x");
    storage.remove(&path("ln/to/x"), false).unwrap();
    put(storage, "ln/t", b"a file takes the place of the link");
    assert_eq!(storage.stat(&path("ln/t"), false).unwrap().kind, Kind::File);
    assert_eq!(get(storage, "ln/b").unwrap(), b"a");
    refused(storage.remove(&path("ln/to"), true), Errno::NOTDIR);
    storage.remove(&path("ln/to"), false).unwrap();
    assert_eq!(names(storage, "ln/d", 9), ["old"]);
}

fn attributes(storage: &dyn Storage) {
    dir(storage, "attr");
    put(storage, "attr/a", b"abc");
    let at = |seconds, nanos| SetTime::At(Timestamp { seconds, nanos });
    let set = SetAttr {
        mode: Some(0o4751),
        atime: at(-5, 999_999_999),
        mtime: at(1_000_000_000, 7),
        ..SetAttr::default()
    };
    let attr = storage.set_attr(&path("attr/a"), &set, true).unwrap();
    assert_eq!(attr, storage.stat(&path("attr/a"), true).unwrap());
    assert_eq!((attr.mode, attr.size), (0o4751, 3));
    assert_eq!(attr.mtime, Timestamp { seconds: 1_000_000_000, nanos: 7 });
    assert_eq!(attr.atime, Timestamp { seconds: -5, nanos: 999_999_999 });
    let now = SetAttr { mtime: SetTime::Now, ..SetAttr::default() };
    let later = storage.set_attr(&path("attr/a"), &now, true).unwrap();
    assert!(later.mtime > attr.mtime && later.atime == attr.atime && later.mode == attr.mode);
    for wrong in [
        SetAttr { mode: Some(0o10000), ..SetAttr::default() },
        SetAttr { mtime: at(0, 1_000_000_000), ..SetAttr::default() },
        SetAttr { uid: Some(u32::MAX), ..SetAttr::default() },
    ] {
        refused(storage.set_attr(&path("attr/a"), &wrong, true), Errno::INVAL);
    }
    for wanted in [0, 0o7, 0o666, 0o777, 0o1777, 0o2755, 0o6711] {
        let at = format!("attr/f{wanted:o}");
        let file = storage.open(&path(&at), NEW, &mode(wanted)).unwrap();
        assert_eq!(file.attr().unwrap().mode, wanted);
        let at = path(&format!("attr/d{wanted:o}"));
        assert_eq!(storage.make_dir(&at, &mode(wanted)).unwrap().mode, wanted);
        let mut finish = Finish { set, ..finish(1) };
        finish.set.mode = Some(wanted);
        let at = path(&format!("attr/p{wanted:o}"));
        let attr = storage.put(&at, b"x", &finish).unwrap();
        assert_eq!((attr.mode, attr.mtime.seconds), (wanted, 1_000_000_000));
        assert_eq!(attr, storage.stat(&at, true).unwrap());
    }
    let node = storage.make_node(&path("attr/fifo"), Kind::Fifo, &mode(0o662)).unwrap();
    assert_eq!((node.kind, node.mode), (Kind::Fifo, 0o662));
    let device = storage.make_node(&path("attr/device"), Kind::CharDevice, &mode(0o666));
    refused(device, Errno::PERM);
}

fn xattrs(storage: &dyn Storage) {
    dir(storage, "xattr");
    let at = path("xattr/a");
    let file = storage.open(&at, NEW, &mode(0o600)).unwrap();
    let (any, create, replace) = (XattrMode::Any, XattrMode::Create, XattrMode::Replace);
    if let Err(error) = storage.set_xattr(&at, b"user.a", b"1", any) {
        assert_eq!(error.errno(), Errno::OPNOTSUPP);
        eprintln!("not checked: the file system of the temporary directory has no attributes");
        return;
    }
    refused(file.set_xattr(b"user.a", b"2", create), Errno::EXIST);
    file.set_xattr(b"user.a", b"2", replace).unwrap();
    refused(file.set_xattr(b"user.b", b"2", replace), Errno::NODATA);
    file.set_xattr(b"user.b", b"", create).unwrap();
    assert_eq!(storage.get_xattr(&at, b"user.a").unwrap(), b"2");
    assert_eq!(file.get_xattr(b"user.b").unwrap(), b"");
    let mut names = storage.list_xattr(&at).unwrap();
    names.sort();
    assert_eq!(names, [b"user.a", b"user.b"]);
    storage.remove_xattr(&at, b"user.a").unwrap();
    refused(file.remove_xattr(b"user.a"), Errno::NODATA);
    refused(file.get_xattr(b"user.a"), Errno::NODATA);
    assert_eq!(file.list_xattr().unwrap(), [b"user.b"]);
    refused(storage.get_xattr(&at, b"security.capability"), Errno::NODATA);
    refused(storage.get_xattr(&at, b"trusted.x"), Errno::OPNOTSUPP);
    refused(storage.set_xattr(&at, b"security.capability", b"x", any), Errno::PERM);
    refused(storage.set_xattr(&at, b"system.posix_acl_access", b"x", any), Errno::OPNOTSUPP);
    refused(storage.set_xattr(&at, b"user.big", &vec![0; 65537], any), Errno::TOOBIG);
}
