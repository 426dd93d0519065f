//! SQLite on two mounts at the same time, whose writers are killed: locks, names and contents have
//! to agree, or it breaks.

use crate::harness::{Bench, bench_for_programs, finish, have, run};
use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

/// Adds rows, one in each transaction, and counts them in another table; says of each that it is
/// there when that is sure.
const WRITER: &str = r#"
import sqlite3, sys
path, name, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
n = first
base = sqlite3.connect(path, timeout=60, isolation_level=None)
while True:
    base.execute("begin immediate")
    base.execute("insert into t values(?, ?, ?)", (name, n, "x" * (n * 37 % 5000)))
    base.execute("update counted set n = n + 1")
    base.execute("commit")
    print(n, flush=True)
    n += 1
    if n % 5 == 0:
        base.close()
        base = sqlite3.connect(path, timeout=60, isolation_level=None)
"#;

/// Looks whether all is there, from where it is called.
const READER: &str = r#"
import sqlite3, sys
base = sqlite3.connect(sys.argv[1], timeout=60)
assert base.execute("pragma integrity_check").fetchone()[0] == "ok"
rows = base.execute("select count(*) from t").fetchone()[0]
counted = base.execute("select n from counted").fetchone()[0]
assert rows == counted, (rows, counted)
for word in sys.argv[2:]:
    name, n = word.split("=")
    found = base.execute("select max(n) from t where name = ?", (name,)).fetchone()[0]
    assert found is not None and found >= int(n), (word, found)
"#;

const MAKER: &str = r#"
import sqlite3, sys
base = sqlite3.connect(sys.argv[1])
assert base.execute("pragma journal_mode=" + sys.argv[2]).fetchone()[0] == sys.argv[2]
base.execute("create table t(name text, n integer, data text)")
base.execute("create table counted(n integer)")
base.execute("insert into counted values(0)")
base.commit()
"#;

/// Python, to run a script that needs nothing of its user's. What is called `python3` may be a
/// program of a version manager that takes longer to find the interpreter than the script takes.
fn interpreter(script: &str) -> Command {
    static PATH: OnceLock<String> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let show = ["-c", "import sys; print(sys.executable)"];
        run("python3", &show, Path::new("/")).trim().to_owned()
    });
    let mut command = Command::new(path);
    command.args(["-I", "-S", "-c", script]);
    command
}

fn python(script: &str, arguments: &[&str]) {
    let mut command = interpreter(script);
    command.args(arguments);
    let output = finish(command, Duration::from_secs(150));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}");
}

struct Writer {
    process: Child,
    name: String,
    lines: BufReader<std::process::ChildStdout>,
}

fn writer(base: &Path, name: String, first: u64) -> Writer {
    let mut command = interpreter(WRITER);
    command.arg(base).arg(&name).arg(first.to_string());
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = command.spawn().unwrap();
    let lines = BufReader::new(process.stdout.take().unwrap());
    Writer { process, name, lines }
}

impl Writer {
    /// Waits for so many rows and kills it. Gives the last one that it was sure of.
    fn killed_after(mut self, rows: u64) -> (String, u64) {
        let mut last = None;
        let mut line = String::new();
        for _ in 0..rows {
            line.clear();
            let read = self.lines.read_line(&mut line).unwrap();
            assert!(read > 0, "{} has failed after row {last:?}", self.name);
            last = Some(line.trim().parse().unwrap());
        }
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        // What it has said before it was killed.
        for rest in self.lines.lines().map_while(Result::ok) {
            last = rest.parse().ok().or(last);
        }
        (self.name, last.unwrap())
    }
}

fn writers_are_killed(any: &str, journal: &str) {
    let Some(bench) = bench_for_programs(any) else { return };
    let bench: Bench = bench;
    let (second, _mounted) = bench.second(|_| {});
    let bases = [bench.path("base.db"), second.join("base.db")];
    python(MAKER, &[bases[0].to_str().unwrap(), journal]);
    let end = Instant::now() + Duration::from_secs(3);
    let (mut round, mut sure) = (0, Vec::new());
    while Instant::now() < end && round < 4 {
        // Two on each mount; each is killed at another point.
        let writers: Vec<Writer> =
            (0..4).map(|n| writer(&bases[n % 2], format!("writer-{round}-{n}"), 0)).collect();
        let killers: Vec<_> = writers
            .into_iter()
            .zip([2, 3, 5, 7])
            .map(|(writer, rows)| thread::spawn(move || writer.killed_after(rows)))
            .collect();
        sure.extend(killers.into_iter().map(|killer| killer.join().unwrap()));
        round += 1;
        for base in &bases {
            let words: Vec<String> = sure.iter().map(|(name, n)| format!("{name}={n}")).collect();
            let mut arguments = vec![base.to_str().unwrap()];
            arguments.extend(words.iter().map(String::as_str));
            python(READER, &arguments);
        }
    }
    python(READER, &[bench.export.join("base.db").to_str().unwrap()]);
}

#[test]
fn sqlite_on_two_mounts_shm() {
    if have(&["python3"]) {
        writers_are_killed("shm://*", "delete");
        writers_are_killed("shm://*", "truncate");
    }
}

#[test]
fn sqlite_on_two_mounts_tcp() {
    if have(&["python3"]) {
        writers_are_killed("tcp://127.0.0.1:0", "delete");
        writers_are_killed("tcp://127.0.0.1:0", "persist");
    }
}
