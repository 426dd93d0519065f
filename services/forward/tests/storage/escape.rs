//! Nothing outside the export is read or changed, whatever links say and however fast they change,
//! and none gets into the server's own directory.

use super::*;
use petasos_forward::protocol::{Kind, RenameMode, XattrMode};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use std::{
    fs,
    os::unix::fs::{MetadataExt, symlink},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

const SECRET: &[u8] = b"of others";

/// What is beside the export, and must stay as it is.
fn outside(root: &Path) {
    fs::create_dir_all(root.join("outside/empty")).unwrap();
    for name in ["secret", "victim"] {
        fs::write(root.join("outside").join(name), SECRET).unwrap();
    }
}

fn untouched(root: &Path) {
    let mut names: Vec<_> = fs::read_dir(root.join("outside")).unwrap().collect();
    names.sort_by_key(|entry| entry.as_ref().unwrap().file_name());
    let names: Vec<_> = names.into_iter().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["empty", "secret", "victim"]);
    assert_eq!(fs::read_dir(root.join("outside/empty")).unwrap().count(), 0);
    for name in ["secret", "victim"] {
        let at = root.join("outside").join(name);
        assert_eq!(fs::read(&at).unwrap(), SECRET);
        let attr = fs::metadata(&at).unwrap();
        assert_eq!((attr.mode() & 0o7777, attr.nlink()), (0o644, 1));
        assert!(attr.mtime() > 1000, "times were not set");
    }
}

const STEAL: SetAttr = SetAttr {
    mode: Some(0o777),
    uid: None,
    gid: None,
    size: Some(0),
    atime: petasos_forward::protocol::SetTime::Keep,
    mtime: petasos_forward::protocol::SetTime::At(petasos_forward::protocol::Timestamp {
        seconds: 1,
        nanos: 0,
    }),
};

/// All that a client can try with what is at the end of this path, and below it.
fn try_all(local: &Local, at: &str, errno: Errno) {
    let (file, new) = (path(&format!("{at}/secret")), path(&format!("{at}/new")));
    let (own, at) = (path("own"), path(at));
    for open in [READ, WRITE.with(OpenFlags::TRUNCATE), NEW] {
        refused(local.open(&file, open, &mode(0o600)), errno);
        refused(local.open(&at, open, &mode(0o600)), errno);
    }
    let exclusive = NEW.with(OpenFlags::EXCLUSIVE);
    refused(local.open(&new, exclusive, &mode(0o600)), errno);
    refused(local.open_dir(&at).map(drop), errno);
    refused(local.stat(&at, true), errno);
    refused(local.stat(&file, false), errno);
    refused(local.set_attr(&at, &STEAL, true), errno);
    refused(local.set_attr(&file, &STEAL, false), errno);
    refused(local.make_dir(&new, &mode(0o700)), errno);
    refused(local.make_symlink(&new, b"x"), errno);
    refused(local.make_node(&new, Kind::Fifo, &mode(0o600)), errno);
    refused(local.read_link(&file), errno);
    refused(local.hard_link(&file, &path("linked")), errno);
    refused(local.hard_link(&own, &new), errno);
    for mode in [RenameMode::Replace, RenameMode::Keep, RenameMode::Exchange] {
        refused(local.rename(&file, &path("moved"), mode), errno);
        refused(local.rename(&own, &file, mode), errno);
    }
    refused(local.remove(&file, false), errno);
    refused(local.remove(&path(&format!("{}/empty", at.as_path().display())), true), errno);
    refused(local.get_xattr(&file, b"user.x"), errno);
    refused(local.set_xattr(&file, b"user.x", b"", XattrMode::Any), errno);
    refused(local.list_xattr(&file), errno);
    refused(local.put(&file, b"x", &finish(1)), errno);
    local.stage(&[1; 16]).unwrap();
    refused(local.publish(&[1; 16], &file, &finish(0)), errno);
}

#[test]
fn links_that_lead_out() {
    let (dir, local) = local();
    outside(dir.path());
    let export = dir.path().join("export");
    put(&local, "own", b"own");
    fs::create_dir(export.join("d")).unwrap();
    let absolute = dir.path().join("outside");
    for (at, target) in [
        ("absolute", absolute.to_str().unwrap()),
        ("up", "../outside"),
        ("winding", "d/./../../outside"),
        ("d/deep", "../../outside"),
        ("back", "../export/../outside"),
        ("root", "/"),
        ("process", "/proc/self/root"),
    ] {
        symlink(target, export.join(at)).unwrap();
        try_all(&local, at, Errno::XDEV);
        symlink(at, export.join("again")).unwrap();
        try_all(&local, "again", Errno::XDEV);
        fs::remove_file(export.join("again")).unwrap();
        assert_eq!(local.stat(&path(at), false).unwrap().kind, Kind::Symlink);
        assert_eq!(local.read_link(&path(at)).unwrap(), target.as_bytes());
    }
    // Even the way out and in again is one that leads out.
    symlink("../export/own", export.join("in")).unwrap();
    refused(local.open(&path("in"), READ, &mode(0)), Errno::XDEV);
    untouched(dir.path());
}

#[test]
fn links_to_what_is_the_servers() {
    let (dir, local) = local();
    let export = dir.path().join("export");
    put(&local, "own", b"own");
    fs::create_dir(export.join("d")).unwrap();
    let staged = local.stage(&[0xab; 16]).unwrap();
    staged.write_at(0, &[IoSlice::new(SECRET)]).unwrap();
    let stage = export.join(".petasos/stage");
    fs::write(stage.join("secret"), SECRET).unwrap();
    fs::create_dir(stage.join("empty")).unwrap();
    symlink(".", export.join("here")).unwrap();
    symlink("..", export.join("d/above")).unwrap();
    for (at, target) in [
        ("plain", ".petasos/stage"),
        ("d/deep", "../.petasos/stage"),
        ("through", "here/.petasos/stage"),
        ("around", "d/above/here/./.petasos/../.petasos/stage"),
    ] {
        symlink(target, export.join(at)).unwrap();
        try_all(&local, at, Errno::ACCESS);
    }
    symlink(".petasos/stage/abababababababababababababababab", export.join("key")).unwrap();
    refused(local.open(&path("key"), READ, &mode(0)), Errno::ACCESS);
    refused(local.stat(&path("key"), true), Errno::ACCESS);
    for at in ["here/.petasos", "d/above/.petasos"] {
        let at = path(at);
        refused(local.stat(&at, false), Errno::ACCESS);
        refused(local.open_dir(&at).map(drop), Errno::ACCESS);
        refused(local.rename(&at, &path("mine"), RenameMode::Replace), Errno::ACCESS);
        refused(local.rename(&path("d"), &at, RenameMode::Exchange), Errno::ACCESS);
        refused(local.remove(&at, true), Errno::ACCESS);
        refused(local.put(&at, b"", &finish(0)), Errno::ACCESS);
        refused(local.make_symlink(&at, b"d"), Errno::ACCESS);
        refused(local.get_xattr(&at, b"user.x"), Errno::ACCESS);
    }
    for at in ["", "here", "d/above"] {
        assert!(!names(&local, at, 9).contains(&".petasos".into()));
        assert!(names(&local, at, 9).contains(&"own".into()));
    }
    // Elsewhere the name means nothing.
    put(&local, "d/.petasos", b"mine");
    assert_eq!(get(&local, "d/above/d/.petasos").unwrap(), b"mine");
    assert_eq!(fs::read(stage.join("secret")).unwrap(), SECRET);
    assert_eq!(staged.attr().unwrap().size, SECRET.len() as u64);
}

/// A process replaces a directory of the export by a link that leads out, and back, as fast as it
/// can, and moves a directory out and in again, while a client works in both.
#[test]
fn links_that_change() {
    const ROUNDS: usize = 20_000;
    let (dir, local) = local();
    let root = dir.path();
    outside(root);
    put(&local, "own", b"own");
    for inside in ["export/swap", "export/inner/empty", "export/moving", "elsewhere"] {
        fs::create_dir_all(root.join(inside)).unwrap();
    }
    symlink("../outside", root.join("export/other")).unwrap();
    // To the server's own, by way of what changes.
    symlink("swap/../.petasos/stage", root.join("export/stage")).unwrap();
    fs::write(root.join("export/swap/secret"), b"inside").unwrap();
    let stop = AtomicBool::new(false);
    let (mut done, mut refusals) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = |name: &str| root.join("export").join(name);
            while !stop.load(Ordering::Relaxed) {
                let exchange = RenameFlags::EXCHANGE;
                renameat_with(CWD, at("swap"), CWD, at("other"), exchange).unwrap();
                // It may have got contents, and may be a link by now; it is moved as it is.
                let _ = fs::rename(at("moving"), root.join("elsewhere/moving"));
                let _ = fs::rename(root.join("elsewhere/moving"), at("moving"));
            }
        });
        let mut count = |result: FsResult<()>| match result {
            Ok(()) => done += 1,
            Err(_) => refusals += 1,
        };
        for round in 0..ROUNDS {
            match get(&local, "swap/secret") {
                Ok(data) => assert_ne!(data, SECRET, "read outside"),
                Err(error) => assert_ne!(error.errno(), Errno::IO),
            }
            let (secret, new) = (path("swap/secret"), path("swap/new"));
            count(match round % 12 {
                0 => local.open(&new, NEW, &mode(0o600)).map(drop),
                1 => local.rename(&new, &secret, RenameMode::Replace),
                2 => local.remove(&path("swap/victim"), false),
                3 => local.remove(&path("swap/empty"), true),
                4 => local.put(&secret, b"inside", &finish(6)).map(drop),
                5 => local.make_dir(&path("swap/empty/x"), &mode(0o700)).map(drop),
                6 => local.set_attr(&path("swap/victim"), &STEAL, true).map(drop),
                7 => local.hard_link(&path("swap/victim"), &path("own-link")).map(drop),
                8 => local.make_dir(&path("swap/made"), &mode(0o777)).map(drop),
                9 => local.rename(&path("own"), &path("swap/own"), RenameMode::Exchange),
                10 => local.open(&secret, WRITE.with(OpenFlags::TRUNCATE), &mode(0)).map(drop),
                _ => local.remove(&path("swap/made"), true),
            });
            // A file that takes the place of another costs more than all of the rest.
            if round % 4 == 0 {
                count(local.put(&path("moving/file"), b"x", &finish(1)).map(drop));
            }
            if let Ok(names) = local.open_dir(&path("swap")).and_then(|mut dir| dir.next(99)) {
                assert!(names.entries.iter().all(|entry| entry.name != b"victim"));
            }
            assert!(local.open_dir(&path("stage")).is_err(), "the server's own");
        }
        stop.store(true, Ordering::Relaxed);
    });
    untouched(root);
    assert!(done > 0 && refusals > 0, "{done} done, {refusals} refused");
}

/// A file changes places with a FIFO as fast as it can: opening it never waits, and never opens the
/// FIFO.
#[test]
fn files_that_change() {
    let (dir, local) = local();
    put(&local, "file", b"data");
    local.make_node(&path("fifo"), Kind::Fifo, &mode(0o600)).unwrap();
    let stop = AtomicBool::new(false);
    let (mut files, mut refusals) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let at = |name: &str| dir.path().join("export").join(name);
            while !stop.load(Ordering::Relaxed) {
                renameat_with(CWD, at("file"), CWD, at("fifo"), RenameFlags::EXCHANGE).unwrap();
            }
        });
        for round in 0..10_000 {
            let flags = [READ, WRITE, NEW][round % 3];
            match local.open(&path("file"), flags, &mode(0o600)) {
                Ok(file) => {
                    assert_eq!(file.attr().unwrap().kind, Kind::File);
                    files += 1;
                }
                Err(error) => {
                    assert_eq!(error.errno(), Errno::NXIO, "{error}");
                    refusals += 1;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(files > 0 && refusals > 0, "{files} opened, {refusals} refused");
}
