//! Trees that are made, and compared.

use petasos_testing::Xorshift;
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, mkfifoat, utimensat};
use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, File, Permissions},
    io,
    os::unix::{
        ffi::OsStringExt,
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::{Path, PathBuf},
};

/// Numbers that look random, the same each time.
pub(crate) struct Random(Xorshift);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(Xorshift::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.draw()
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.0.bytes(len)
    }
}

/// A name with any bytes in it.
fn odd_name(random: &mut Random, number: usize) -> OsString {
    let mut name = format!("f{number}-").into_bytes();
    for _ in 0..random.below(12) {
        match random.below(256) as u8 {
            0 | b'/' => name.push(b'\n'),
            byte => name.push(byte),
        }
    }
    OsString::from_vec(name)
}

fn set_times(path: &Path, random: &mut Random) {
    let mut time = || Timespec {
        tv_sec: random.below(2_000_000_000) as i64 - 500_000,
        tv_nsec: random.below(1_000_000_000) as i64,
    };
    let times = Timestamps { last_access: time(), last_modification: time() };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Many small files with odd names and modes, links, empty directories, a sparse file, and a large
/// one.
pub(crate) fn make(root: &Path, files: usize, large: usize, seed: u64) {
    let mut random = Random::new(seed);
    let mut directories = vec![root.to_owned()];
    fs::create_dir(root).unwrap();
    for number in 0..files / 25 {
        let above = directories[random.below(directories.len() as u64) as usize].clone();
        let path = above.join(odd_name(&mut random, number));
        if fs::create_dir(&path).is_ok() {
            directories.push(path);
        }
    }
    for number in 0..files {
        let above = &directories[random.below(directories.len() as u64) as usize];
        let mut name = odd_name(&mut random, files + number);
        if number == 0 {
            name = OsString::from_vec(vec![b'x'; 255]);
        }
        let path = above.join(name);
        match random.below(20) {
            0 => {
                symlink(OsString::from_vec(random.bytes(5).iter().map(|b| b | 1).collect()), &path)
                    .unwrap()
            }
            1 => symlink("/nowhere/at/all", &path).unwrap(),
            _ => {
                let len = match random.below(10) {
                    0 => 0,
                    1..8 => random.below(5000),
                    _ => random.below(100_000),
                };
                fs::write(&path, random.bytes(len as usize)).unwrap();
                let mode = 0o400 | random.below(0o1000) as u32;
                fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            }
        }
        set_times(&path, &mut random);
    }
    fs::write(root.join("large"), random.bytes(large)).unwrap();
    fs::hard_link(root.join("large"), root.join("other name")).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.set_len(48 << 20).unwrap();
    sparse.write_all_at(&random.bytes(10_000), 0).unwrap();
    sparse.write_all_at(&random.bytes(100_000), (21 << 20) + 777).unwrap();
    File::create(root.join("only a hole")).unwrap().set_len(9 << 20).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::create_dir(root.join("closed")).unwrap();
    fs::write(root.join("closed/in it"), "x").unwrap();
    mkfifoat(CWD, root.join("fifo"), Mode::from_raw_mode(0o640)).unwrap();
    fs::set_permissions(root.join("closed"), Permissions::from_mode(0o555)).unwrap();
    directories.extend([root.join("empty"), root.join("closed")]);
    for directory in directories.iter().rev() {
        set_times(directory, &mut random);
    }
}

/// What is in a tree: kind and mode, time, contents or what a link says, names, and room taken.
type Seen = BTreeMap<PathBuf, (u32, (i64, i64), Vec<u8>, u64, u64)>;

/// Looks through a tree. A client may be at work in it: what has another name by now is left out.
fn look(root: &Path, skip: &[&str]) -> Seen {
    let mut seen = Seen::new();
    let mut open = vec![PathBuf::new()];
    while let Some(within) = open.pop() {
        let Some(entries) = unless_gone(fs::read_dir(root.join(&within))) else { continue };
        for entry in entries {
            let name = entry.unwrap().file_name();
            if within.as_os_str().is_empty() && skip.iter().any(|skip| name == *skip) {
                continue;
            }
            let path = within.join(name);
            let Some(found) = unless_gone(fs::symlink_metadata(root.join(&path))) else { continue };
            let kind = found.file_type();
            let data = if kind.is_symlink() {
                fs::read_link(root.join(&path)).map(|to| to.into_os_string().into_vec())
            } else if kind.is_file() {
                fs::read(root.join(&path))
            } else {
                Ok(Vec::new())
            };
            let Some(data) = unless_gone(data) else { continue };
            if kind.is_dir() {
                open.push(path.clone());
            }
            let links = if kind.is_dir() { 0 } else { found.nlink() };
            let time = (found.mtime(), found.mtime_nsec());
            seen.insert(path, (found.mode(), time, data, links, found.blocks()));
        }
    }
    seen
}

fn unless_gone<T>(found: io::Result<T>) -> Option<T> {
    match found {
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        found => Some(found.unwrap()),
    }
}

/// The two trees are the same, holes included.
#[track_caller]
pub(crate) fn assert_same(a: &Path, b: &Path) {
    let (a, b) = (look(a, &[]), look(b, &[".petasos"]));
    let odd_one = |a: &Seen, b: &Seen| a.keys().find(|path| !b.contains_key(*path)).cloned();
    assert_eq!((odd_one(&a, &b), odd_one(&b, &a)), (None, None), "in one tree only");
    for (path, ours) in &a {
        let theirs = &b[path];
        assert_eq!(ours.0, theirs.0, "mode of {path:?}");
        assert_eq!(ours.1, theirs.1, "time of {path:?}");
        assert!(ours.2 == theirs.2, "contents of {path:?}");
        assert_eq!(ours.3, theirs.3, "names of {path:?}");
        // A file system may need a little more to say where data is.
        assert!(theirs.4 <= ours.4 + 128, "{path:?} takes {} of {}", theirs.4, ours.4);
    }
}

/// What is there of a tree is as it is in the whole one.
#[track_caller]
pub(crate) fn assert_part(part: &Path, whole: &Path) {
    let whole = look(whole, &[]);
    if !part.exists() {
        return;
    }
    for (path, theirs) in look(part, &[".petasos"]) {
        if path.file_name().unwrap().to_string_lossy().contains(".petasos-") {
            continue;
        }
        let ours = whole.get(&path).unwrap_or_else(|| panic!("{path:?} is too many"));
        assert!(ours.2 == theirs.2, "{path:?} is there, and not whole: {}", theirs.2.len());
    }
}

/// Hidden files that were left in a tree.
pub(crate) fn hidden(root: &Path) -> Vec<PathBuf> {
    let is_hidden = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().contains(".petasos-"))
    };
    look(root, &[]).into_keys().filter(is_hidden).collect()
}
