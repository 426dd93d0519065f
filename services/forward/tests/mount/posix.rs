//! What POSIX says of files, as a table: each row is done in the mount and, to see that the table
//! is right, beside it on the disk.

use crate::harness::bench;
use rustix::{
    fs::{
        AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, Timespec,
        Timestamps, XattrFlags, chmod, fallocate, fchmod, fsync, ftruncate, getxattr, link,
        listxattr, lstat, mkdir, mknodat, open, openat, readlink, removexattr, rename,
        renameat_with, rmdir, seek, setxattr, stat, statvfs, symlink, unlink, utimensat,
    },
    io::{Errno, pread, pwrite, write},
};
use std::{fs, os::fd::OwnedFd, path::Path};

type Done = Result<(), Errno>;

struct Row {
    what: &'static str,
    gives: Done,
    run: fn(&Path) -> Done,
}

const fn row(what: &'static str, gives: Done, run: fn(&Path) -> Done) -> Row {
    Row { what, gives, run }
}

const RW: Mode = Mode::from_raw_mode(0o644);
const ALL: Mode = Mode::from_raw_mode(0o777);

fn make(path: impl AsRef<Path>) -> Done {
    open(path.as_ref(), OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, RW).map(drop)
}

fn rw(path: impl AsRef<Path>) -> Result<OwnedFd, Errno> {
    open(path.as_ref(), OFlags::RDWR, RW)
}

fn put(path: impl AsRef<Path>, text: &str) -> Done {
    let file = open(path.as_ref(), OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY, RW)?;
    write(&file, text.as_bytes()).map(drop)
}

fn text(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap()
}

fn rename_with(d: &Path, from: &str, to: &str, flags: RenameFlags) -> Done {
    renameat_with(CWD, d.join(from), CWD, d.join(to), flags)
}

/// Refusals, each with its number.
#[rustfmt::skip]
const REFUSED: &[Row] = &[
    row("open: nothing there", Err(Errno::NOENT), |d| rw(d.join("no")).map(drop)),
    row("open: below nothing", Err(Errno::NOENT), |d| make(d.join("no/f"))),
    row("open: below a file", Err(Errno::NOTDIR), |d| { make(d.join("f"))?; make(d.join("f/g")) }),
    row("open: exclusively what is there", Err(Errno::EXIST), |d| { make(d.join("f"))?; make(d.join("f")) }),
    row("open: exclusively a link to nothing", Err(Errno::EXIST), |d| {
        symlink("no", d.join("l"))?; make(d.join("l"))
    }),
    row("open: a directory to write", Err(Errno::ISDIR), |d| rw(d).map(drop)),
    row("open: a file as a directory", Err(Errno::NOTDIR), |d| {
        make(d.join("f"))?; open(d.join("f"), OFlags::DIRECTORY, RW).map(drop)
    }),
    row("open: a link that is not to be followed", Err(Errno::LOOP), |d| {
        symlink("f", d.join("l"))?; open(d.join("l"), OFlags::NOFOLLOW, RW).map(drop)
    }),
    row("open: links in a circle", Err(Errno::LOOP), |d| {
        symlink("b", d.join("a"))?; symlink("a", d.join("b"))?; rw(d.join("a")).map(drop)
    }),
    row("open: too long a name", Err(Errno::NAMETOOLONG), |d| make(d.join("x".repeat(256)))),
    row("open: too long a path", Err(Errno::NAMETOOLONG), |d| make(d.join("x/".repeat(2100)))),
    row("read: what is open to be written", Err(Errno::BADF), |d| {
        make(d.join("f"))?;
        pread(open(d.join("f"), OFlags::WRONLY, RW)?, &mut [0; 4], 0).map(drop)
    }),
    row("write: what is open to be read", Err(Errno::BADF), |d| {
        make(d.join("f"))?; write(open(d.join("f"), OFlags::RDONLY, RW)?, b"x").map(drop)
    }),
    row("unlink: nothing there", Err(Errno::NOENT), |d| unlink(d.join("no"))),
    row("unlink: a directory", Err(Errno::ISDIR), |d| { mkdir(d.join("d"), ALL)?; unlink(d.join("d")) }),
    row("unlink: a file with a slash", Err(Errno::NOTDIR), |d| { make(d.join("f"))?; unlink(d.join("f/")) }),
    row("mkdir: what is there", Err(Errno::EXIST), |d| { make(d.join("f"))?; mkdir(d.join("f"), ALL) }),
    row("mkdir: below nothing", Err(Errno::NOENT), |d| mkdir(d.join("no/d"), ALL)),
    row("rmdir: what is not empty", Err(Errno::NOTEMPTY), |d| {
        mkdir(d.join("d"), ALL)?; make(d.join("d/f"))?; rmdir(d.join("d"))
    }),
    row("rmdir: a file", Err(Errno::NOTDIR), |d| { make(d.join("f"))?; rmdir(d.join("f")) }),
    row("rmdir: nothing there", Err(Errno::NOENT), |d| rmdir(d.join("no"))),
    row("rmdir: oneself", Err(Errno::INVAL), |d| { mkdir(d.join("d"), ALL)?; rmdir(d.join("d/.")) }),
    row("rename: nothing there", Err(Errno::NOENT), |d| rename(d.join("no"), d.join("f"))),
    row("rename: a file over a directory", Err(Errno::ISDIR), |d| {
        make(d.join("f"))?; mkdir(d.join("d"), ALL)?; rename(d.join("f"), d.join("d"))
    }),
    row("rename: a directory over a file", Err(Errno::NOTDIR), |d| {
        make(d.join("f"))?; mkdir(d.join("d"), ALL)?; rename(d.join("d"), d.join("f"))
    }),
    row("rename: over what is not empty", Err(Errno::NOTEMPTY), |d| {
        mkdir(d.join("d"), ALL)?; mkdir(d.join("e"), ALL)?; make(d.join("e/f"))?;
        rename(d.join("d"), d.join("e"))
    }),
    row("rename: into oneself", Err(Errno::INVAL), |d| {
        mkdir(d.join("d"), ALL)?; rename(d.join("d"), d.join("d/e"))
    }),
    row("rename: not over what is there", Err(Errno::EXIST), |d| {
        make(d.join("f"))?; make(d.join("g"))?; rename_with(d, "f", "g", RenameFlags::NOREPLACE)
    }),
    row("rename: an exchange with nothing", Err(Errno::NOENT), |d| {
        make(d.join("f"))?; rename_with(d, "f", "g", RenameFlags::EXCHANGE)
    }),
    row("link: over what is there", Err(Errno::EXIST), |d| {
        make(d.join("f"))?; make(d.join("g"))?; link(d.join("f"), d.join("g"))
    }),
    row("link: nothing there", Err(Errno::NOENT), |d| link(d.join("no"), d.join("f"))),
    row("link: a directory", Err(Errno::PERM), |d| { mkdir(d.join("d"), ALL)?; link(d.join("d"), d.join("e")) }),
    row("symlink: over what is there", Err(Errno::EXIST), |d| { make(d.join("f"))?; symlink("x", d.join("f")) }),
    row("readlink: of a file", Err(Errno::INVAL), |d| { make(d.join("f"))?; readlink(d.join("f"), vec![]).map(drop) }),
    row("truncate: a directory", Err(Errno::ISDIR), |d| match fs::File::options().write(true).open(d) {
        Err(error) => Err(Errno::from_io_error(&error).unwrap()), Ok(_) => Ok(()),
    }),
    row("ftruncate: what is open to be read", Err(Errno::INVAL), |d| {
        make(d.join("f"))?; ftruncate(open(d.join("f"), OFlags::RDONLY, RW)?, 1)
    }),
    row("chmod: nothing there", Err(Errno::NOENT), |d| chmod(d.join("no"), RW)),
    row("mknod: what is there", Err(Errno::EXIST), |d| {
        make(d.join("f"))?; mknodat(CWD, d.join("f"), FileType::Fifo, RW, 0)
    }),
    row("seek: data beyond the end", Err(Errno::NXIO), |d| {
        put(d.join("f"), "abc")?; seek(rw(d.join("f"))?, SeekFrom::Data(3)).map(drop)
    }),
    row("getxattr: none of that name", Err(Errno::NODATA), |d| {
        make(d.join("f"))?; getxattr(d.join("f"), "user.no", &mut [0u8; 8]).map(drop)
    }),
    row("setxattr: a new one that is there", Err(Errno::EXIST), |d| {
        make(d.join("f"))?;
        setxattr(d.join("f"), "user.a", b"1", XattrFlags::empty())?;
        setxattr(d.join("f"), "user.a", b"2", XattrFlags::CREATE)
    }),
    row("setxattr: another one that is not there", Err(Errno::NODATA), |d| {
        make(d.join("f"))?; setxattr(d.join("f"), "user.a", b"1", XattrFlags::REPLACE)
    }),
    row("getxattr: too little room", Err(Errno::RANGE), |d| {
        make(d.join("f"))?;
        setxattr(d.join("f"), "user.a", b"12345", XattrFlags::empty())?;
        getxattr(d.join("f"), "user.a", &mut [0u8; 2]).map(drop)
    }),
    row("removexattr: none of that name", Err(Errno::NODATA), |d| {
        make(d.join("f"))?; removexattr(d.join("f"), "user.no")
    }),
    row("fallocate: of no length", Err(Errno::INVAL), |d| {
        make(d.join("f"))?; fallocate(rw(d.join("f"))?, FallocateFlags::empty(), 0, 0)
    }),
    row("openat: below what was removed", Err(Errno::NOENT), |d| {
        mkdir(d.join("d"), ALL)?;
        let dir = open(d.join("d"), OFlags::DIRECTORY, RW)?;
        rmdir(d.join("d"))?;
        openat(&dir, "f", OFlags::CREATE | OFlags::WRONLY, RW).map(drop)
    }),
];

/// What is done, with what it must lead to.
#[rustfmt::skip]
const DONE: &[Row] = &[
    row("a new file is empty and has its mode", Ok(()), |d| {
        make(d.join("f"))?;
        let s = stat(d.join("f"))?;
        assert_eq!((s.st_size, s.st_nlink, s.st_mode & 0o7777), (0, 1, 0o644));
        assert_eq!(FileType::from_raw_mode(s.st_mode), FileType::RegularFile);
        Ok(())
    }),
    row("appended data goes to the end", Ok(()), |d| {
        put(d.join("f"), "one")?;
        let a = open(d.join("f"), OFlags::WRONLY | OFlags::APPEND, RW)?;
        let b = open(d.join("f"), OFlags::WRONLY | OFlags::APPEND, RW)?;
        write(&a, b" two")?; write(&b, b" three")?; write(&a, b" four")?;
        drop((a, b));
        assert_eq!(text(d.join("f")), "one two three four");
        Ok(())
    }),
    row("opened to be cut, it is empty", Ok(()), |d| {
        put(d.join("f"), "long text")?;
        let other = rw(d.join("f"))?;
        put(d.join("f"), "x")?;
        let mut back = [0; 9];
        assert_eq!(pread(&other, &mut back, 0)?, 1);
        Ok(())
    }),
    row("cut and lengthened, it has zeroes", Ok(()), |d| {
        put(d.join("f"), "0123456789")?;
        let f = rw(d.join("f"))?;
        ftruncate(&f, 4)?; ftruncate(&f, 8)?;
        assert_eq!(stat(d.join("f"))?.st_size, 8);
        assert_eq!(fs::read(d.join("f")).unwrap(), b"0123\0\0\0\0");
        Ok(())
    }),
    row("written beyond the end, it has a hole", Ok(()), |d| {
        make(d.join("f"))?;
        let f = rw(d.join("f"))?;
        pwrite(&f, b"end", 10_000_000)?;
        assert_eq!(stat(d.join("f"))?.st_size, 10_000_003);
        let mut back = [1; 16];
        assert_eq!(pread(&f, &mut back, 5_000_000)?, 16);
        assert_eq!(back, [0; 16]);
        assert!(stat(d.join("f"))?.st_blocks < 10_000);
        assert_eq!(seek(&f, SeekFrom::Hole(0))?, 0);
        let data = seek(&f, SeekFrom::Data(0))?;
        assert!(data > 9_000_000 && data <= 10_000_000, "{data}");
        Ok(())
    }),
    row("holes are made, room is reserved", Ok(()), |d| {
        put(d.join("f"), &"x".repeat(1 << 20))?;
        let f = rw(d.join("f"))?;
        fallocate(&f, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 65536, 65536)?;
        let mut back = [1; 8];
        pread(&f, &mut back, 70_000)?;
        assert_eq!(back, [0; 8]);
        assert_eq!(seek(&f, SeekFrom::Hole(0))?, 65536);
        assert_eq!(seek(&f, SeekFrom::Data(65536))?, 131072);
        fallocate(&f, FallocateFlags::empty(), 0, 2 << 20)?;
        assert_eq!(stat(d.join("f"))?.st_size, 2 << 20);
        fallocate(&f, FallocateFlags::KEEP_SIZE, 0, 3 << 20)?;
        assert_eq!(stat(d.join("f"))?.st_size, 2 << 20);
        Ok(())
    }),
    row("renamed over an open file", Ok(()), |d| {
        put(d.join("old"), "old")?; put(d.join("new"), "new")?;
        let open = rw(d.join("old"))?;
        rename(d.join("new"), d.join("old"))?;
        assert_eq!(text(d.join("old")), "new");
        let mut back = [0; 3];
        pread(&open, &mut back, 0)?;
        assert_eq!(&back, b"old");
        pwrite(&open, b"OLD", 0)?; fsync(&open)?; drop(open);
        assert_eq!(text(d.join("old")), "new");
        assert_eq!(stat(d.join("new")).unwrap_err(), Errno::NOENT);
        Ok(())
    }),
    row("renamed while it is open", Ok(()), |d| {
        mkdir(d.join("a"), ALL)?; put(d.join("a/f"), "text")?;
        let open = rw(d.join("a/f"))?;
        rename(d.join("a"), d.join("b"))?;
        pwrite(&open, b"T", 0)?; drop(open);
        assert_eq!(text(d.join("b/f")), "Text");
        rename(d.join("b/f"), d.join("g"))?;
        assert_eq!(text(d.join("g")), "Text");
        assert_eq!(fs::read_dir(d.join("b")).unwrap().count(), 0);
        Ok(())
    }),
    row("renamed onto another name of itself", Ok(()), |d| {
        put(d.join("a"), "x")?; link(d.join("a"), d.join("b"))?;
        rename(d.join("a"), d.join("b"))?;
        assert_eq!((text(d.join("a")), text(d.join("b"))), ("x".into(), "x".into()));
        Ok(())
    }),
    row("an empty directory is replaced by another", Ok(()), |d| {
        mkdir(d.join("a"), ALL)?; make(d.join("a/f"))?; mkdir(d.join("b"), ALL)?;
        rename(d.join("a"), d.join("b"))?;
        stat(d.join("b/f")).map(drop)
    }),
    row("exchanged", Ok(()), |d| {
        put(d.join("f"), "file")?; mkdir(d.join("d"), ALL)?; put(d.join("d/x"), "below")?;
        rename_with(d, "f", "d", RenameFlags::EXCHANGE)?;
        assert_eq!((text(d.join("d")), text(d.join("f/x"))), ("file".into(), "below".into()));
        rename_with(d, "d", "g", RenameFlags::NOREPLACE)
    }),
    row("two names, one file", Ok(()), |d| {
        put(d.join("a"), "text")?; mkdir(d.join("s"), ALL)?; link(d.join("a"), d.join("s/b"))?;
        let (a, b) = (stat(d.join("a"))?, stat(d.join("s/b"))?);
        assert_eq!((a.st_ino, a.st_nlink), (b.st_ino, 2));
        put(d.join("s/b"), "more text")?;
        assert_eq!(text(d.join("a")), "more text");
        unlink(d.join("a"))?;
        assert_eq!((text(d.join("s/b")), stat(d.join("s/b"))?.st_nlink), ("more text".into(), 1));
        Ok(())
    }),
    row("a symbolic link says what it was told", Ok(()), |d| {
        let long = "y".repeat(4000);
        for target in ["nowhere", "/absolute", "../up", &long] {
            symlink(target, d.join("l"))?;
            assert_eq!(readlink(d.join("l"), vec![])?.to_str().unwrap(), target);
            assert_eq!(lstat(d.join("l"))?.st_size as usize, target.len());
            unlink(d.join("l"))?;
        }
        put(d.join("f"), "there")?; symlink("f", d.join("l"))?;
        assert_eq!(text(d.join("l")), "there");
        Ok(())
    }),
    row("FIFOs and sockets", Ok(()), |d| {
        mknodat(CWD, d.join("p"), FileType::Fifo, RW, 0)?;
        mknodat(CWD, d.join("s"), FileType::Socket, RW, 0)?;
        mknodat(CWD, d.join("f"), FileType::RegularFile, RW, 0)?;
        let kind = |name: &str| FileType::from_raw_mode(lstat(d.join(name)).unwrap().st_mode);
        assert_eq!((kind("p"), kind("s"), kind("f")),
            (FileType::Fifo, FileType::Socket, FileType::RegularFile));
        let path = d.join("p");
        let reader = std::thread::spawn(move || fs::read_to_string(path).unwrap());
        fs::write(d.join("p"), "through").unwrap();
        assert_eq!(reader.join().unwrap(), "through");
        Ok(())
    }),
    row("a directory counts those below", Ok(()), |d| {
        mkdir(d.join("d"), ALL)?;
        let before = stat(d.join("d"))?.st_nlink;
        mkdir(d.join("d/e"), ALL)?;
        let after = stat(d.join("d"))?.st_nlink;
        // Some file systems count none.
        assert!(after == before + 1 || (before, after) == (1, 1));
        rmdir(d.join("d/e"))?; rmdir(d.join("d"))
    }),
    row("modes, all bits of them", Ok(()), |d| {
        make(d.join("f"))?;
        for mode in [0o000, 0o400, 0o777, 0o4755, 0o2755, 0o1777] {
            chmod(d.join("f"), Mode::from_raw_mode(mode))?;
            assert_eq!(stat(d.join("f"))?.st_mode & 0o7777, mode);
        }
        fchmod(&rw(d.join("f"))?, RW)?;
        assert_eq!(stat(d.join("f"))?.st_mode & 0o7777, 0o644);
        Ok(())
    }),
    row("times as they were set", Ok(()), |d| {
        put(d.join("f"), "x")?;
        for (seconds, nanos) in [(1, 0), (1_000_000_000, 123_456_789), (-1, 500_000_000)] {
            let time = Timespec { tv_sec: seconds, tv_nsec: nanos };
            let times = Timestamps { last_access: time, last_modification: time };
            utimensat(CWD, d.join("f"), &times, AtFlags::empty())?;
            let s = stat(d.join("f"))?;
            assert_eq!((s.st_mtime, s.st_mtime_nsec as i64), (seconds, nanos));
        }
        Ok(())
    }),
    row("times that were set stay when it is closed", Ok(()), |d| {
        let f = open(d.join("f"), OFlags::CREATE | OFlags::RDWR, RW)?;
        write(&f, b"some text")?;
        let time = Timespec { tv_sec: 77, tv_nsec: 0 };
        rustix::fs::futimens(&f, &Timestamps { last_access: time, last_modification: time })?;
        drop(f);
        assert_eq!(stat(d.join("f"))?.st_mtime, 77);
        Ok(())
    }),
    row("what is written is seen at once, here", Ok(()), |d| {
        let f = open(d.join("f"), OFlags::CREATE | OFlags::RDWR, RW)?;
        for n in 1..50 {
            write(&f, &[b'x'; 777])?;
            assert_eq!(stat(d.join("f"))?.st_size, 777 * n);
            assert_eq!(fs::metadata(d.join("f")).unwrap().len() as i64, 777 * n);
        }
        assert_eq!(text(d.join("f")).len(), 777 * 49);
        Ok(())
    }),
    row("attributes of users", Ok(()), |d| {
        make(d.join("f"))?; mkdir(d.join("d"), ALL)?;
        for name in ["f", "d"] {
            let path = d.join(name);
            setxattr(&path, "user.one", b"1", XattrFlags::empty())?;
            setxattr(&path, "user.two", b"", XattrFlags::empty())?;
            let mut room = [0u8; 64];
            assert_eq!(getxattr(&path, "user.one", &mut room)?, 1);
            assert_eq!(getxattr(&path, "user.two", &mut room)?, 0);
            let mut names = [0u8; 256];
            let len = listxattr(&path, &mut names)?;
            let names = &names[..len];
            assert!(names.starts_with(b"user.one\0") || names.ends_with(b"user.one\0"));
            removexattr(&path, "user.one")?;
            assert_eq!(getxattr(&path, "user.one", &mut room), Err(Errno::NODATA));
        }
        Ok(())
    }),
    row("names of any bytes", Ok(()), |d| {
        use std::os::unix::ffi::OsStrExt;
        for bytes in [&b"\xff\xfe"[..], b" ", b"a\nb", b"\xe2\x82", b"...", &[b'z'; 255]] {
            let path = d.join(std::ffi::OsStr::from_bytes(bytes));
            make(&path)?;
            assert_eq!(fs::read_dir(d).unwrap().count(), 1);
            unlink(&path)?;
        }
        Ok(())
    }),
    row("a directory's bit for its group is handed on", Ok(()), |d| {
        mkdir(d.join("d"), ALL)?;
        rustix::fs::chown(d.join("d"), None, Some(rustix::fs::Gid::from_raw(1234)))?;
        chmod(d.join("d"), Mode::from_raw_mode(0o2775))?;
        make(d.join("d/f"))?; mkdir(d.join("d/e"), ALL)?;
        let (f, e) = (stat(d.join("d/f"))?, stat(d.join("d/e"))?);
        assert_eq!((f.st_gid, e.st_gid, e.st_mode & 0o2000), (1234, 1234, 0o2000));
        Ok(())
    }),
    row("owners", Ok(()), |d| {
        make(d.join("f"))?; symlink("no", d.join("l"))?;
        let (uid, gid) = (rustix::fs::Uid::from_raw(12), rustix::fs::Gid::from_raw(34));
        for name in ["f", "l"] {
            rustix::fs::chownat(CWD, d.join(name), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
            let s = lstat(d.join(name))?;
            assert_eq!((s.st_uid, s.st_gid), (12, 34));
        }
        chmod(d.join("f"), Mode::from_raw_mode(0o4755))?;
        rustix::fs::chown(d.join("f"), Some(rustix::fs::Uid::from_raw(13)), None)?;
        assert_eq!(stat(d.join("f"))?.st_mode & 0o7777, 0o755, "a new owner's program gives no rights of the old one");
        Ok(())
    }),
    row("room on the file system", Ok(()), |d| {
        let s = statvfs(d)?;
        assert!(s.f_blocks > 0 && s.f_bavail <= s.f_blocks && s.f_namemax == 255);
        Ok(())
    }),
    row("going back to the beginning of a directory", Ok(()), |d| {
        make(d.join("a"))?;
        let mut dir = rustix::fs::Dir::read_from(open(d, OFlags::DIRECTORY, RW)?)?;
        assert_eq!(dir.by_ref().count(), 3);
        make(d.join("b"))?;
        dir.rewind();
        assert_eq!(dir.by_ref().count(), 4);
        Ok(())
    }),
];

#[test]
fn the_table_of_posix() {
    if !petasos_testing::is_root() {
        return petasos_testing::skip("only root may give files to others");
    }
    let Some(bench) = bench() else { return };
    let plain = bench.outside("plain");
    fs::create_dir(&plain).unwrap();
    let mut wrong = Vec::new();
    for (n, row) in REFUSED.iter().chain(DONE).enumerate() {
        for place in [&plain, &bench.at] {
            let directory = place.join(n.to_string());
            fs::create_dir(&directory).unwrap();
            let run = || (row.run)(&directory);
            let gave = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
            if gave.as_ref().ok() != Some(&row.gives) {
                let at = if place == &plain { "on the disk" } else { "in the mount" };
                let gave = gave.map_or("a failed check".to_owned(), |gave| format!("{gave:?}"));
                wrong.push(format!("{} {at}: {gave}, not {:?}", row.what, row.gives));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
