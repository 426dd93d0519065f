use super::*;
use crate::protocol::Timestamp;
use proptest::prelude::*;

fn attr(ino: u64, kind: Kind, links: u32) -> Attr {
    let at = Timestamp::default();
    let (mode, uid, gid, size, blocks) = (0o644, 0, 0, 0, 0);
    Attr { kind, mode, links, uid, gid, size, blocks, ino, atime: at, mtime: at, ctime: at }
}

fn table() -> Table {
    let base = RelPath::parse(b"base").unwrap();
    Table::new(base, attr(500, Kind::Directory, 2))
}

fn path(table: &Table, ino: u64) -> String {
    match table.path(ino) {
        Ok(path) => String::from_utf8(path.as_bytes().to_vec()).unwrap(),
        Err(errno) => errno.to_string(),
    }
}

#[test]
fn what_lies_below_moves_with_its_directory() {
    let mut table = table();
    let (dir, _) = table.found(ROOT, b"d", &attr(7, Kind::Directory, 2));
    let (file, _) = table.found(dir, b"f", &attr(8, Kind::File, 1));
    assert_eq!((dir, file, path(&table, file).as_str()), (7, 8, "base/d/f"));
    table.renamed((ROOT, b"d"), (ROOT, b"e"));
    assert_eq!(path(&table, file), "base/e/f");
    assert_eq!(path(&table, ROOT), "base");
    // The kernel lets go of the directory first: it stays for the file's sake.
    assert!(!table.forget(dir, 1));
    assert_eq!(path(&table, file), "base/e/f");
    assert!(table.forget(file, 1));
    assert!(table.attr(dir).is_none(), "gone with its last child");
}

#[test]
fn two_names_are_one_node() {
    let mut table = table();
    let (one, _) = table.found(ROOT, b"one", &attr(9, Kind::File, 2));
    let (two, _) = table.found(ROOT, b"two", &attr(9, Kind::File, 2));
    assert_eq!(one, two);
    assert_eq!(path(&table, one), "base/two");
    table.removed(ROOT, b"two");
    assert_eq!(path(&table, one), "base/one");
    // A rename of one name onto the other does nothing.
    table.found(ROOT, b"two", &attr(9, Kind::File, 2));
    table.renamed((ROOT, b"one"), (ROOT, b"two"));
    table.removed(ROOT, b"two");
    assert_eq!(path(&table, one), "base/one");
}

#[test]
fn a_number_that_is_used_again_is_told_apart() {
    let mut table = table();
    let (ino, first) = table.found(ROOT, b"a", &attr(9, Kind::File, 1));
    table.removed(ROOT, b"a");
    assert_eq!(table.path(ino), Err(Errno::STALE));
    let (again, second) = table.found(ROOT, b"b", &attr(9, Kind::File, 1));
    assert_eq!((again, path(&table, again).as_str()), (ino, "base/b"));
    assert_ne!(first, second);
    assert!(!table.forget(ino, 1) && table.forget(ino, 1));
}

#[test]
fn replaced_exchanged_and_lost() {
    let mut table = table();
    let (a, _) = table.found(ROOT, b"a", &attr(10, Kind::File, 1));
    let (b, _) = table.found(ROOT, b"b", &attr(11, Kind::File, 1));
    table.exchanged((ROOT, b"a"), (ROOT, b"b"));
    assert_eq!((path(&table, a).as_str(), path(&table, b).as_str()), ("base/b", "base/a"));
    table.renamed((ROOT, b"a"), (ROOT, b"b"));
    assert_eq!(path(&table, b), "base/b");
    assert_eq!(table.path(a), Err(Errno::STALE));
    // Another client put another file there.
    table.found(ROOT, b"b", &attr(12, Kind::File, 1));
    assert_eq!(table.path(b), Err(Errno::STALE));
    assert_eq!(table.update(b, &attr(12, Kind::File, 1)), Err(Errno::STALE));
    table.missing(ROOT, b"b");
    assert_eq!(table.path(12), Err(Errno::STALE));
}

#[test]
fn numbers_that_cannot_be_used() {
    let mut table = table();
    let (odd, _) = table.found(ROOT, b"odd", &attr(1, Kind::File, 1));
    assert!(odd >= OWN, "one is the root's");
    let (root, _) = table.found(ROOT, b"loop", &attr(500, Kind::Directory, 2));
    assert_eq!(root, ROOT, "the root, found below itself");
    assert_eq!(path(&table, ROOT), "base");
}

#[test]
fn directories_that_others_moved_make_no_circle() {
    let mut table = table();
    let (a, _) = table.found(ROOT, b"a", &attr(20, Kind::Directory, 2));
    let (b, _) = table.found(a, b"b", &attr(21, Kind::Directory, 2));
    // Elsewhere: b moved up, a into it; found from below first.
    table.found(b, b"a", &attr(20, Kind::Directory, 2));
    assert_eq!(table.path(a), Err(Errno::NAMETOOLONG));
    table.found(ROOT, b"b", &attr(21, Kind::Directory, 2));
    assert_eq!(path(&table, a), "base/b/a");
}

proptest! {
    /// Against a plain map of names, as a server has them: whatever happens here, a node's path is
    /// one of its names there; and when the kernel has forgotten all, nothing is left.
    #[test]
    fn paths_are_names(steps in proptest::collection::vec((0u8..5, 0u8..6, 0u8..6), 1..200)) {
        let mut table = table();
        let mut names: HashMap<u8, u64> = HashMap::new();
        let mut lookups: HashMap<u64, u64> = HashMap::new();
        let (mut next, key) = (100, |name: u8| [b'a' + name]);
        for (what, one, other) in steps {
            let links = |names: &HashMap<u8, u64>, ino| names.values().filter(|i| **i == ino).count();
            match what {
                0 | 1 => {
                    let ino = *names.entry(one).or_insert_with(|| { next += 1; next });
                    let found = attr(ino, Kind::File, links(&names, ino) as u32);
                    let (ours, _) = table.found(ROOT, &key(one), &found);
                    *lookups.entry(ours).or_default() += 1;
                }
                2 => {
                    if names.remove(&one).is_some() {
                        table.removed(ROOT, &key(one));
                    }
                }
                3 => {
                    if let Some(ino) = names.get(&one).copied() {
                        if names.get(&other) != Some(&ino) {
                            names.remove(&one);
                            names.insert(other, ino);
                        }
                        table.renamed((ROOT, &key(one)), (ROOT, &key(other)));
                    }
                }
                _ => {
                    if let Some(ino) = names.get(&one).copied()
                        && !names.contains_key(&other)
                    {
                        names.insert(other, ino);
                        let found = attr(ino, Kind::File, links(&names, ino) as u32);
                        let (ours, _) = table.found(ROOT, &key(other), &found);
                        *lookups.entry(ours).or_default() += 1;
                    }
                }
            }
            for ours in lookups.keys() {
                if let Ok(path) = table.path(*ours) {
                    let name = path.as_bytes()[b"base/".len()] - b'a';
                    prop_assert_eq!(names.get(&name), table.attr(*ours).map(|a| &a.ino));
                }
            }
        }
        for (ours, count) in lookups {
            prop_assert!(table.forget(ours, count));
        }
        prop_assert_eq!(table.nodes.len(), 1);
        prop_assert_eq!(table.numbers.len(), 1);
    }
}
