//! Daemons that start others: seven hosts, each of which starts two.

use crate::{
    common::{Place, Ran, signal, until, wait},
    hosts::{kill_all_on, on_a},
    ranks, text,
};
use petasos_pmix::{FenceOptions, Group, Job, Reply, chain::Registration, status};
use petasos_testing::{Hosts, role};
use std::{
    collections::BTreeMap,
    fs,
    process::{Command, Stdio},
    sync::mpsc::channel,
    time::Duration,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// The hosts, a place for the job, and a start command that first runs this script, which knows the
/// name of the host as `$host` and its letter as `$letter`.
struct Seven {
    hosts: Hosts,
    place: Place,
    start: String,
}

impl Seven {
    fn make(script: &str) -> Option<Seven> {
        let (hosts, place) = (Hosts::several(7)?, Place::new());
        let path = place.path("start");
        let before = "host=$1; shift; letter=${host##*-}; cd \"$(dirname $0)\"";
        fs::write(&path, format!("{before}\n{script}\nexec ip netns exec $host \"$@\"\n")).unwrap();
        let start = format!("sh {} {{host}}", path.display());
        Some(Seven { hosts, place, start })
    }

    /// One rank on each: rank 0 on `a`, where the launcher is, rank 1 on `b`.
    fn options(&self) -> [String; 8] {
        let others = ('b'..='g').map(|letter| format!(",{}:1", self.hosts.name(letter)));
        let list = format!("localhost:1{}", others.collect::<String>());
        let words = ["-n", "7", "--fan-out", "2", "--hosts", &list, "--remote-start", &self.start];
        words.map(str::to_owned)
    }

    fn command(&self, program: &[&str]) -> Command {
        let options = self.options();
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        on_a(&self.hosts, &self.place.command(&[&["run"], &options[..], program].concat()))
    }

    fn file(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.place.path(name)).ok().filter(|text| text.ends_with('\n'))
    }

    /// No process is left that knows of this place, and no file.
    fn nothing_is_left(&self) {
        let mark = self.place.path("tmp").into_os_string().into_encoded_bytes();
        let knows = |pid: &fs::DirEntry| {
            let environment = fs::read(pid.path().join("environ")).unwrap_or_default();
            environment.windows(mark.len()).any(|part| part == mark)
        };
        let left = || fs::read_dir("/proc").unwrap().flatten().any(|process| knows(&process));
        until("the end of all processes", || (!left()).then_some(()));
        let empty = || fs::read_dir(self.place.path("tmp")).unwrap().next().is_none().then_some(());
        until("an empty directory", empty);
        self.place.assert_clean();
    }
}

#[test]
fn each_starts_those_below_it() {
    let Some(seven) = Seven::make("") else { return };
    // The fourth field is after the name, which has no spaces: the parent of the daemon.
    let script =
        "read pid name state parent rest < /proc/$PPID/stat; echo $PETASOS_RANK $PPID $parent";
    let output = seven.command(&["sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let said = String::from_utf8(output.stdout).unwrap();
    let words = said.lines().map(|line| line.split(' ').map(|word| word.parse::<u32>().unwrap()));
    let daemons: BTreeMap<u32, (u32, u32)> = words
        .map(|mut words| (words.next().unwrap(), (words.next().unwrap(), words.next().unwrap())))
        .collect();
    assert_eq!(daemons.len(), 7, "{said}");
    for rank in 1..7 {
        assert_eq!(daemons[&rank].1, daemons[&((rank - 1) / 2)].0, "rank {rank}: {said}");
    }
    seven.nothing_is_left();
}

#[test]
fn one_that_cannot_be_started_is_named_and_who_was_to_start_it() {
    let Some(seven) = Seven::make("[ $letter = f ] && exit 3") else { return };
    let output = seven.command(&["sleep", "7349"]).output().unwrap();
    let (f, c) = (seven.hosts.name('f'), seven.hosts.name('c'));
    let why = format!("{f}: no daemon was started there (by the one on {c}): exit status: 3");
    Ran::of(&output).assert(1).says(&why);
    seven.nothing_is_left();
}

/// While one of those that it was to start hangs.
#[test]
fn one_that_is_killed_before_all_are_there_is_named() {
    let script = "echo $$ > pid.$letter; [ $letter = g ] && exec sleep 7350";
    let Some(seven) = Seven::make(script) else { return };
    let child = seven.command(&["true"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    until("a start that hangs", || seven.file("pid.g"));
    signal(seven.file("pid.c").unwrap().trim().parse().unwrap(), "KILL");
    let output = child.wait_with_output().unwrap();
    let (ran, c) = (Ran::of(&output).assert(1), seven.hosts.name('c'));
    let named = ["no daemon was started there: signal: 9", "the daemon there is lost"];
    assert!(named.iter().any(|why| ran.err.contains(&format!("{c}: {why}"))), "{ran:?}");
    seven.nothing_is_left();
}

/// All that runs on one of the hosts dies, while one of those that it was to start hangs.
#[test]
fn a_whole_host_that_dies_before_all_are_there_is_named() {
    let script = "echo $$ > pid.$letter; [ $letter = g ] && exec sleep 7350";
    let Some(seven) = Seven::make(script) else { return };
    let child = seven.command(&["true"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.unwrap();
    until("a start that hangs", || seven.file("pid.g"));
    kill_all_on(&seven.hosts, 'c');
    let output = child.wait_with_output().unwrap();
    let (ran, c) = (Ran::of(&output).assert(1), seven.hosts.name('c'));
    let named = ["no daemon was started there: signal: 9", "the daemon there is lost"];
    assert!(named.iter().any(|why| ran.err.contains(&format!("{c}: {why}"))), "{ran:?}");
    seven.nothing_is_left();
}

#[test]
fn those_that_it_started_live_on_when_one_dies() {
    let name = "tree::those_that_it_started_live_on_when_one_dies";
    if role().is_some() {
        return one_dies();
    }
    let Some(seven) = Seven::make("") else { return };
    let options = seven.options();
    let mut options: Vec<&str> = options.iter().map(String::as_str).collect();
    options.push("--keep-going");
    let mut command = on_a(&seven.hosts, &ranks(&seven.place, &options, name));
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let status = wait(&mut child, PATIENCE);
    let output = child.wait_with_output().unwrap();
    let said = text(&output);
    assert_eq!(status.code(), Some(1), "{said}");
    assert_eq!(said.matches("together again").count(), 6, "{said}");
    assert!(said.contains(&format!("{} is lost", seven.hosts.name('b'))), "{said}");
    seven.nothing_is_left();
}

fn one_dies() {
    let job = Job::init().unwrap();
    let (sender, receiver) = channel();
    let with = Registration { codes: vec![status::PROC_ABORTED], ..Registration::default() };
    job.on_event(with, move |event, _| {
        sender.send(event.node.0).unwrap();
        Reply::seen()
    })
    .unwrap();
    job.fence().unwrap();
    if job.rank() == 1 {
        // Its daemon, which has started those of ranks 3 and 4.
        let daemon = std::os::unix::process::parent_id();
        signal(daemon, "KILL");
        std::thread::sleep(PATIENCE);
    }
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(1));
    let group = Some(Group::of([0, 2, 3, 4, 5, 6].map(|rank| job.proc_of(rank))));
    job.fence_with(FenceOptions { group, ..FenceOptions::default() }).unwrap();
    println!("\ntogether again");
    job.finalize().unwrap();
}
