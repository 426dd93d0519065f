//! What takes a mount away whose process was killed: the next command, or the guard of an ordinary
//! user, which needs `fusermount3` for that; and what a data base on two mounts makes of it.

use super::{
    At, can_mount,
    guard::{begin, guard_of, serves},
    is_mounted, process_of_mount, threads,
};
use crate::{
    common::{Place, Ran, signal, until},
    export::Export,
};
use petasos_testing::{copy_program, skip};
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
};

#[test]
fn the_next_command_takes_a_dead_mount_away() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (export, at) = begin(&place);
    export.run(&place, &["mount", "@", "at"]).assert(0);
    let process = process_of_mount(&export, &place, &[]);
    // Both at once, as the kernel does where memory is short.
    signal(guard_of(process), "KILL");
    signal(process, "KILL");
    until("the end of its process", || threads(process).is_empty().then_some(()));
    assert!(is_mounted(&at.0) && fs::read_dir(&at.0).is_err(), "there is nothing to take away");

    export.run(&place, &["mount", "@", "at"]).assert(0);
    serves(&at);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let mounts = table.lines().filter(|line| line.contains(at.0.to_str().unwrap())).count();
    assert_eq!(mounts, 1, "one lies over the other: {table}");
}

/// As an ordinary user, in a view of the system of its own: `/dev/fuse` is for all there, as it is
/// where desktops run; all processes end with the shell. `$1` is the program, `$2` the URL, `$3` a
/// directory of that user's.
const ORDINARY: &str = r#"
set -e
mknod "$3/fuse" c 10 229
chmod 666 "$3/fuse"
mount --bind "$3/fuse" /dev/fuse
user() { setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
mounted() { grep -q " $3/at .*user_id=65534" /proc/self/mountinfo; }
user "$1" forward mount "$2" "$3/at"
mounted "$@"
user cat "$3/at/file"
for process in /proc/[0-9]*; do
  if [ "$(tr '\0' ' ' < "$process/cmdline" | cut -d ' ' -f 2,3)" = "forward mount" ]; then
    kill -9 "${process#/proc/}"
  fi
done
tries=0
while mounted "$@"; do
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { echo still mounted; exit 1; }
  sleep 0.1
done
echo and gone
"#;

#[test]
fn an_ordinary_user_has_fusermount3_take_it_away() {
    if !can_mount() {
        return;
    }
    for program in ["fusermount3", "unshare", "setpriv"] {
        if Command::new(program).arg("--version").output().is_err() {
            return skip(&format!("{program} is not installed (packages fuse3, util-linux)"));
        }
    }
    let place = Place::new();
    let export = Export::start(&place, "tcp", &[]);
    fs::write(place.path("exp/file"), "contents\n").unwrap();
    // The build directory, and that of the test, may be closed to others.
    let theirs = tempfile::tempdir().unwrap();
    let program = theirs.path().join("petasos");
    copy_program(env!("CARGO_BIN_EXE_petasos").as_ref(), &program);
    fs::set_permissions(theirs.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::create_dir(theirs.path().join("at")).unwrap();
    std::os::unix::fs::chown(theirs.path().join("at"), Some(65534), Some(65534)).unwrap();
    let mut shell = Command::new("unshare");
    shell.args([
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        ORDINARY,
        "sh",
    ]);
    shell.arg(&program).arg(&export.url).arg(theirs.path()).current_dir("/");
    let ran = Ran::of(&shell.env("TMPDIR", theirs.path()).stdin(Stdio::null()).output().unwrap());
    assert_eq!(ran.assert(0).out, "contents\nand gone\n");
}

/// Adds rows, one in each transaction, and says of each that it is there when that is sure.
const WRITER: &str = r#"
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)
base.execute("create table if not exists t(name text, n integer, data text)")
n = 0
while True:
    base.execute("begin immediate")
    base.execute("insert into t values(?, ?, ?)", (sys.argv[2], n, "x" * (n * 37 % 5000)))
    base.execute("commit")
    print(n, flush=True)
    n += 1
"#;

/// Prints how many rows of this name there are; the whole is right.
const READER: &str = r#"
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=60)
assert base.execute("pragma integrity_check").fetchone()[0] == "ok"
rows = base.execute("select n from t where name = ? order by n", (sys.argv[2],)).fetchall()
assert [n for n, in rows] == list(range(len(rows)))
print(len(rows))
"#;

/// A program that adds rows, killed when this is dropped.
struct Writer {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Writer {
    fn start(base: &Path, name: &str) -> Writer {
        let mut command = Command::new("python3");
        command.args(["-c", WRITER]).arg(base).arg(name).stdin(Stdio::null());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Writer { process, lines }
    }

    /// Waits for so many more rows.
    fn adds(&mut self, rows: usize) {
        for _ in 0..rows {
            self.lines.next().expect("it goes on").unwrap();
        }
    }

    /// Waits for its end. Gives how many rows more it was sure of.
    fn ends(&mut self) -> usize {
        let more = self.lines.by_ref().map_while(Result::ok).count();
        assert!(!self.process.wait().unwrap().success(), "it was not told");
        more
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_data_base_outlives_one_of_two_mounts() {
    if !can_mount() {
        return;
    }
    if Command::new("python3").arg("--version").output().is_err() {
        return skip("python3 is not installed");
    }
    for transport in ["shm", "tcp"] {
        let place = Place::new();
        let export = Export::start(&place, transport, &[]);
        let (one, other) = (At(place.path("one")), At(place.path("other")));
        let mut killed = Vec::new();
        fs::create_dir(&one.0).unwrap();
        fs::create_dir(&other.0).unwrap();
        export.run(&place, &["mount", "@", "other"]).assert(0);
        let stays = process_of_mount(&export, &place, &[]);
        let mut second = Writer::start(&other.0.join("base.db"), "second");
        second.adds(3);
        let mut sure = 3;
        for round in 0..3 {
            let name = format!("first {round}");
            export.run(&place, &["mount", "@", "one"]).assert(0);
            killed.push(stays);
            let process = process_of_mount(&export, &place, &killed);
            killed.push(process);
            let mut first = Writer::start(&one.0.join("base.db"), &name);
            first.adds(5 + round);
            // With a transaction under way, as a rule, and its locks.
            signal(process, "KILL");
            let rows = 5 + round + first.ends();
            second.adds(5);
            sure += 5;
            until("the end of a mount that was killed", || (!is_mounted(&one.0)).then_some(()));
            for (name, rows) in [(&name[..], rows), ("second", sure)] {
                let mut reader = Command::new("python3");
                reader.args(["-c", READER]).arg(other.0.join("base.db")).arg(name);
                let found = Ran::of(&reader.output().unwrap()).assert(0).out;
                let found: usize = found.trim().parse().unwrap();
                assert!(found >= rows, "{transport}, {name}: {found} rows of {rows}");
            }
        }
    }
}
