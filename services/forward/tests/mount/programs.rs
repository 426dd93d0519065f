//! Real programs at work in the mount.

use crate::harness::{Bench, bench_for_programs, have, pattern, run};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
};

const EVERYWHERE: [&str; 2] = ["shm://*", "tcp://127.0.0.1:0"];

const GIT: [&str; 10] = [
    "-c",
    "user.name=Test",
    "-c",
    "user.email=test@example.org",
    "-c",
    "commit.gpgsign=false",
    "-c",
    "protocol.file.allow=always",
    // Nothing goes on when a command has ended.
    "-c",
    "maintenance.auto=false",
];

fn git(arguments: &[&str], at: &Path) -> String {
    run("git", &[&GIT[..], arguments].concat(), at)
}

/// A repository with some hundred files and some commits.
fn repository(at: &Path) {
    fs::create_dir(at).unwrap();
    git(&["init", "-q", "-b", "main"], at);
    for commit in 0..6 {
        for file in 0..40 {
            let directory = at.join(format!("d{}/e{}", file % 5, (file + commit) % 7));
            fs::create_dir_all(&directory).unwrap();
            let text = format!("file {file} of commit {commit}\n").repeat(1 + file * 7);
            fs::write(directory.join(format!("f{file}.txt")), text).unwrap();
        }
        let _ = fs::remove_file(at.join("link"));
        symlink(format!("d{commit}"), at.join("link")).unwrap();
        fs::write(at.join("blob.bin"), pattern(300_000 + commit * 1000, commit as u64)).unwrap();
        git(&["add", "-A"], at);
        git(&["commit", "-q", "-m", &format!("commit {commit}")], at);
    }
}

#[test]
fn git_clones_checks_and_works() {
    if !have(&["git"]) {
        return;
    }
    let outside = tempfile::tempdir().unwrap();
    let origin = outside.path().join("origin");
    repository(&origin);
    EVERYWHERE.iter().for_each(|any| git_works(any, &origin));
}

fn git_works(any: &str, origin: &Path) {
    let Some(bench) = bench_for_programs(any) else { return };
    let origin = origin.to_str().unwrap();
    git(&["clone", "-q", "--no-hardlinks", origin, "clone"], &bench.at);
    let clone = bench.path("clone");
    git(&["fsck", "--strict"], &clone);
    assert_eq!(git(&["status", "--porcelain"], &clone), "");
    fs::write(clone.join("new.txt"), "new\n").unwrap();
    fs::write(clone.join("blob.bin"), pattern(500_000, 99)).unwrap();
    git(&["add", "-A"], &clone);
    git(&["commit", "-q", "-m", "in the mount"], &clone);
    git(&["checkout", "-q", "HEAD~3"], &clone);
    git(&["checkout", "-q", "main"], &clone);
    git(&["repack", "-q", "-a", "-d"], &clone);
    git(&["fsck", "--strict"], &clone);
    assert_eq!(git(&["status", "--porcelain"], &clone), "");
    // What the server has is whole as well.
    assert_eq!(git(&["status", "--porcelain"], &bench.export.join("clone")), "");
}

/// A tree of everything that `tar` keeps.
fn tree(at: &Path) {
    fs::create_dir(at).unwrap();
    for n in 0..200 {
        let directory = at.join(format!("d{}", n % 9));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join(format!("f{n}"));
        fs::write(&file, pattern(n * 577, n as u64)).unwrap();
        let mode = [0o644, 0o600, 0o755, 0o444][n % 4];
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::write(at.join("large"), pattern(9 << 20, 3)).unwrap();
    symlink("d1/f1", at.join("link")).unwrap();
    fs::hard_link(at.join("large"), at.join("d0/same")).unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 20 << 20).unwrap();
}

#[test]
fn tar_there_and_back() {
    if !have(&["tar", "diff"]) {
        return;
    }
    for any in EVERYWHERE {
        let Some(bench) = bench_for_programs(any) else { return };
        let (here, back) = (bench.outside("tree"), bench.outside("back"));
        tree(&here);
        fs::create_dir(&back).unwrap();
        let archive = bench.path("tree.tar");
        let archive = archive.to_str().unwrap();
        run("tar", &["-c", "-S", "-f", archive, "tree"], here.parent().unwrap());
        run("tar", &["-x", "-S", "-f", archive], &bench.at);
        run("diff", &["-r", here.to_str().unwrap(), "tree"], &bench.at);
        let there = bench.path("tree");
        let sparse = fs::metadata(there.join("sparse")).unwrap();
        assert!(sparse.len() == (20 << 20) + 3 && sparse.blocks() < 4_000, "sparse as it was");
        assert_eq!(fs::metadata(there.join("d0/same")).unwrap().nlink(), 2);
        for name in ["d1/f1", "d2/f2", "d3/f3", "large"] {
            let meta = |at: &Path| {
                let meta = fs::metadata(at.join(name)).unwrap();
                (meta.permissions().mode(), meta.mtime())
            };
            assert_eq!(meta(&here), meta(&there), "{name}");
        }
        run("tar", &["-c", "-f", "/dev/null", "."], &there);
        run("cp", &["-a", there.to_str().unwrap(), back.to_str().unwrap()], &bench.at);
        run("diff", &["-r", here.to_str().unwrap(), back.join("tree").to_str().unwrap()], &back);
        run("rm", &["-r", "tree"], &bench.at);
        assert!(!bench.export.join("tree").exists());
    }
}

#[test]
fn dd_with_blocks_of_any_size() {
    if !have(&["dd", "cmp"]) {
        return;
    }
    EVERYWHERE.iter().for_each(|any| dd_works(any));
}

fn dd_works(any: &str) {
    let Some(bench) = bench_for_programs(any) else { return };
    let data = pattern((6 << 20) + 1234, 8);
    let source = bench.outside("source");
    fs::write(&source, &data).unwrap();
    let source = source.to_str().unwrap();
    for (n, (block, more)) in [
        ("512", &["conv=fsync"][..]),
        ("4096", &["conv=fdatasync"]),
        ("65537", &[]),
        ("1M", &["conv=fsync"]),
        ("4M", &[]),
        ("1M", &["oflag=append", "conv=notrunc"]),
        ("64K", &["oflag=dsync"]),
    ]
    .into_iter()
    .enumerate()
    {
        let target = format!("of=f{n}");
        let mut arguments = vec![format!("if={source}"), target, format!("bs={block}")];
        arguments.extend(more.iter().map(|&more| more.to_owned()));
        run("dd", &arguments, &bench.at);
        run("cmp", &[source, &format!("f{n}")], &bench.at);
        assert!(fs::read(bench.export.join(format!("f{n}"))).unwrap() == data, "{block} {more:?}");
    }
    // Past the page cache.
    let arguments = ["if=/dev/zero", "of=direct", "bs=1M", "count=8", "oflag=direct"];
    run("dd", &arguments, &bench.at);
    run("dd", &["if=direct", "of=/dev/null", "bs=1M", "iflag=direct"], &bench.at);
    assert_eq!(fs::metadata(bench.export.join("direct")).unwrap().len(), 8 << 20);
}

fn sqlite(bench: &Bench, sql: &str) -> String {
    run("sqlite3", &["-batch", "-bail", "base.db", sql], &bench.at)
}

#[test]
fn sqlite_keeps_its_promises() {
    if !have(&["sqlite3"]) {
        return;
    }
    // Over TCP the two that differ most.
    let over_shm = ["delete", "truncate", "persist", "wal"].map(|journal| (EVERYWHERE[0], journal));
    let over_tcp = ["delete", "wal"].map(|journal| (EVERYWHERE[1], journal));
    for (any, journal) in over_shm.into_iter().chain(over_tcp) {
        let Some(bench) = bench_for_programs(any) else { return };
        let mode = sqlite(&bench, &format!("pragma journal_mode={journal};"));
        assert_eq!(mode.trim(), journal);
        sqlite(&bench, "create table t(id integer primary key, name text, data blob);");
        let mut sql = format!("pragma journal_mode={journal};\n");
        for transaction in 0..40 {
            sql += "begin;\n";
            for row in 0..100 {
                let id = transaction * 100 + row;
                sql +=
                    &format!("insert into t values({id},'row {id}',randomblob({}));\n", id % 700);
            }
            sql += if transaction % 10 == 9 { "rollback;\n" } else { "commit;\n" };
        }
        let script = bench.outside("script.sql");
        fs::write(&script, sql).unwrap();
        sqlite(&bench, &format!(".read {}", script.display()));
        sqlite(
            &bench,
            "update t set name='changed' where id % 3 = 0; delete from t where id % 7 = 0;",
        );
        assert_eq!(sqlite(&bench, "pragma integrity_check;").trim(), "ok");
        let left = (0..4_000).filter(|id| id / 100 % 10 != 9 && id % 7 != 0).count();
        assert_eq!(sqlite(&bench, "select count(*) from t;").trim(), left.to_string());
        sqlite(&bench, "vacuum;");
        let whole = run("sqlite3", &["base.db", "pragma integrity_check;"], &bench.export);
        assert_eq!(whole.trim(), "ok", "at the server, {journal}");
    }
}

fn fio(bench: &Bench, arguments: &[&str]) {
    let common = ["--directory=.", "--verify=crc32c", "--verify_fatal=1", "--group_reporting"];
    run("fio", &[&common, arguments].concat(), &bench.at);
}

#[test]
fn fio_reads_what_it_wrote() {
    if !have(&["fio"]) {
        return;
    }
    EVERYWHERE.iter().for_each(|any| fio_works(any));
}

fn fio_works(any: &str) {
    let Some(bench) = bench_for_programs(any) else { return };
    for (name, how) in [
        ("sequential", &["--rw=write", "--bs=128k", "--size=8m", "--numjobs=3"][..]),
        ("random", &["--rw=randwrite", "--bs=4k", "--size=2m", "--numjobs=3"]),
        ("mixed", &["--rw=randrw", "--bsrange=1k-64k", "--size=4m", "--numjobs=2"]),
        ("synced", &["--rw=randwrite", "--bs=8k", "--size=1m", "--fsync=16"]),
        ("mapped", &["--rw=randwrite", "--bs=4k", "--size=2m", "--ioengine=mmap"]),
        ("direct", &["--rw=randwrite", "--bs=16k", "--size=4m", "--direct=1"]),
    ] {
        fio(&bench, &[&[&format!("--name={name}")[..]], how].concat());
    }
}
