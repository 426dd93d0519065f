//! The process of a mount: what it keeps of the one that started it, and what is left when it is
//! killed.

mod dead;
mod guard;
mod silent;

use crate::{
    common::{Place, Ran, signal, until, wait},
    export::Export,
};
use petasos_testing::skip;
use std::{
    fs,
    io::{Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

fn can_mount() -> bool {
    let fuse = fs::File::options().read(true).write(true).open("/dev/fuse");
    if fuse.is_err() || !petasos_testing::is_root() {
        skip("only root mounts here, with /dev/fuse");
        return false;
    }
    true
}

/// Unmounts it, whatever happens.
struct At(PathBuf);

impl Drop for At {
    fn drop(&mut self) {
        let _ = Command::new("umount").args(["-f", "-l", "-i"]).arg(&self.0).output();
    }
}

/// The process that serves a mount, by what it tells the server; one that is not among `others`.
fn process_of_mount(export: &Export, place: &Place, others: &[u32]) -> u32 {
    until("a mount's session", || {
        let status = export.run(place, &["status", "--json", "@"]).assert(0).json();
        let sessions = status["sessions"].as_array().unwrap().clone();
        let process = |session: &serde_json::Value| {
            session["name"].as_str()?.strip_prefix("mount, process ")?.parse().ok()
        };
        sessions.iter().filter_map(process).find(|process| !others.contains(process))
    })
}

fn is_mounted(at: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    table.lines().any(|line| line.contains(at.to_str().unwrap()))
}

#[test]
fn a_mount_in_the_background_is_on_its_own() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let export = Export::start(&place, "shm", &[]);
    fs::write(place.path("exp/file"), "contents").unwrap();
    let at = At(place.path("at"));
    fs::create_dir(&at.0).unwrap();
    // With a descriptor that no mount needs, and from a directory that may be unmounted.
    fs::create_dir(place.path("from")).unwrap();
    let mount = place.command(&["forward", "mount", &export.url, at.0.to_str().unwrap()]);
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 7<. && exec \"$0\" \"$@\""]).arg(mount.get_program());
    shell.args(mount.get_args()).current_dir(place.path("from"));
    shell.envs(mount.get_envs().filter_map(|(name, value)| Some((name, value?))));
    // Both streams have their end here only when no process has them any more.
    Ran::of(&shell.output().unwrap()).assert(0);
    let pid = process_of_mount(&export, &place, &[]);
    let link = |what: &str| fs::read_link(format!("/proc/{pid}/{what}")).ok();
    until("a working directory of its own", || (link("cwd")? == Path::new("/")).then_some(()));
    for stream in 0..3 {
        let leads = || (link(&format!("fd/{stream}"))? == Path::new("/dev/null")).then_some(());
        until("no stream", leads);
    }
    for entry in fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten() {
        let leads = fs::read_link(entry.path()).unwrap_or_default();
        assert!(!leads.starts_with(place.path("from")), "{leads:?} is kept");
    }
    assert_eq!(fs::read_to_string(at.0.join("file")).unwrap(), "contents");

    // Killed, it takes nothing with it: a guard takes it away.
    signal(pid, "KILL");
    until("the end of a mount that was killed", || (!is_mounted(&at.0)).then_some(()));
    fs::write(at.0.join("below"), "what is below").unwrap();
    let again = ["forward", "mount", &export.url, at.0.to_str().unwrap()];
    place.run(&again).assert(0);
    assert_eq!(fs::read_to_string(at.0.join("file")).unwrap(), "contents");
}

/// Threads of a process that have not ended, with their names and states.
fn threads(pid: u32) -> Vec<(String, char)> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let stats = tasks.filter_map(|task| fs::read_to_string(task.path().join("stat")).ok());
    let state = |stat: String| {
        let (begin, end) = (stat.find('(')?, stat.rfind(')')?);
        Some((stat[begin + 1..end].to_owned(), stat[end + 2..].chars().next()?))
    };
    stats.filter_map(state).filter(|(_, state)| !matches!(state, 'Z' | 'X')).collect()
}

/// A program that is ended, and waited for, when the test is over.
struct Program(Child);

impl Program {
    fn start(program: &str, arguments: &[&str]) -> Program {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
        Program(command.stderr(Stdio::null()).spawn().unwrap())
    }

    /// Until the kernel has it wait for pages of this file: that is no wait for an answer of the
    /// mount, which a signal may end.
    fn waits_for_pages(&self, file: &Path) {
        let opened = format!("/proc/{}/fd/3", self.0.id());
        until("a program that waits for pages", || {
            let reads = fs::read_link(&opened).is_ok_and(|opened| opened == file);
            (reads && threads(self.0.id()).iter().any(|(_, state)| *state == 'D')).then_some(())
        });
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_mount_that_is_killed_while_the_kernel_gives_pages_up_ends() {
    if !can_mount() {
        return;
    }
    if Command::new("flock").arg("--version").output().is_err() {
        return skip("flock is not installed (package util-linux)");
    }
    let place = Place::new();
    // Whatever is read after the first file takes minutes.
    let export = Export::start(&place, "shm", &["--limit", "rate=100"]);
    fs::write(place.path("exp/first"), vec![1; 60_000]).unwrap();
    fs::write(place.path("exp/file"), vec![2; 8_192]).unwrap();
    // They are waited for after the mount is gone, for which they may wait.
    let (mut locker, mut reader);
    let at = At(place.path("at"));
    fs::create_dir(&at.0).unwrap();
    export.run(&place, &["mount", "@", "at"]).assert(0);
    let pid = process_of_mount(&export, &place, &[]);
    let (first, file) = (at.0.join("first"), at.0.join("file"));
    let script = format!("exec 9<>{}; echo; read go; flock 9", file.display());
    locker = Program::start("sh", &["-c", &script]);
    let mut ready = [0];
    locker.0.stdout.as_mut().unwrap().read_exact(&mut ready).unwrap();
    // The pages of the file are locked while they are read.
    assert_eq!(fs::read(first).unwrap().len(), 60_000);
    reader = Program::start("cat", &[file.to_str().unwrap()]);
    reader.waits_for_pages(&file);
    // As another mount would, so that the lock has the kernel give them up.
    let mut other = fs::File::options().append(true).open(place.path("exp/file")).unwrap();
    other.write_all(b"more").unwrap();
    writeln!(locker.0.stdin.as_mut().unwrap()).unwrap();
    until("a thread that waits for these pages", || {
        threads(pid).contains(&("petasos-tell".to_owned(), 'D')).then_some(())
    });

    signal(pid, "KILL");
    until("the end of a mount that was killed", || (!is_mounted(&at.0)).then_some(()));
    until("the end of its process", || threads(pid).is_empty().then_some(()));
    assert!(!wait(&mut reader.0, Duration::from_secs(10)).success(), "it is told");
    fs::write(at.0.join("below"), "what is below").unwrap();
}

#[test]
fn what_a_mount_warns_of_is_kept_in_a_file() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut export = Export::start(&place, "shm", &[]);
    let at = At(place.path("at"));
    fs::create_dir(&at.0).unwrap();
    export.run(&place, &["mount", "@", "at", "--log-file", "no/such/directory"]).assert(1);
    assert!(!is_mounted(&at.0));
    fs::write(place.path("log"), "from before\n").unwrap();
    export.run(&place, &["mount", "@", "at", "--log-file", "log"]).assert(0);
    export.kill();
    assert!(fs::read_dir(&at.0).is_err());
    until("a word in the log", || {
        let log = fs::read_to_string(place.path("log")).unwrap();
        (log.starts_with("from before\n") && log.contains("WARN")).then_some(())
    });
}

#[test]
fn a_file_is_no_place_to_mount_on() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let export = Export::start(&place, "shm", &[]);
    fs::write(place.path("file"), "x").unwrap();
    let refused = export.run(&place, &["mount", "@", "file"]);
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(refused.err.contains("ot a directory"), "{refused:?}");
    assert!(!is_mounted(&place.path("file")));
}

#[test]
fn mount_8_starts_it_by_its_name() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let export = Export::start(&place, "shm", &[]);
    fs::write(place.path("exp/file"), "contents").unwrap();
    let at = At(place.path("at"));
    fs::create_dir(&at.0).unwrap();
    let mount = |arguments: &[&str]| {
        let mut command = place.command(&[]);
        command.arg0("/sbin/mount.petasos").args(arguments);
        Ran::of(&command.output().unwrap())
    };
    let (url, directory) = (&export.url[..], at.0.to_str().unwrap());
    mount(&[url, directory, "-f"]).assert(0);
    assert!(!is_mounted(&at.0));
    mount(&[url, directory, "-o", "rw,no_such_option"]).assert(2).says("no_such_option");
    mount(&[url, directory, "-o", "ro,_netdev,attr_timeout=2s,noexec"]).assert(0);
    assert_eq!(fs::read_to_string(at.0.join("file")).unwrap(), "contents");
    assert!(fs::write(at.0.join("file"), "x").is_err(), "it is read-only");
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = table.lines().find(|line| line.contains(directory)).unwrap();
    assert!(line.contains("fuse.petasos") && line.contains("noexec"), "{line}");
}
