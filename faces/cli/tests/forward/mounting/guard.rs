//! What happens to one mount leaves the next one at the same place alone: its guard, and its
//! process.

use super::{At, can_mount, is_mounted, process_of_mount, threads};
use crate::{
    common::{Place, child_of, signal, until, wait},
    export::Export,
};
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

/// An export with a file, and a directory to mount it on.
pub(super) fn begin(place: &Place) -> (Export, At) {
    let export = Export::start(place, "shm", &[]);
    fs::write(place.path("exp/file"), "contents").unwrap();
    let at = At(place.path("at"));
    fs::create_dir(&at.0).unwrap();
    (export, at)
}

fn unmount(at: &Path) {
    assert!(Command::new("umount").args(["-l", "-i"]).arg(at).status().unwrap().success());
}

pub(super) fn serves(at: &At) {
    assert_eq!(fs::read_to_string(at.0.join("file")).unwrap(), "contents");
}

/// The guard of the mount that this process serves.
pub(super) fn guard_of(process: u32) -> u32 {
    until("a guard", || child_of(process, "mount-guard"))
}

/// A process that is stopped until this is dropped.
struct Stopped(u32);

impl Stopped {
    fn begin(process: u32) -> Stopped {
        signal(process, "STOP");
        Stopped(process)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        signal(self.0, "CONT");
    }
}

fn ends(what: &str, process: u32) {
    until(what, || threads(process).is_empty().then_some(()));
}

#[test]
fn the_guard_of_a_mount_that_was_stopped_leaves_the_next_one_alone() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (export, at) = begin(&place);
    export.run(&place, &["mount", "@", "at"]).assert(0);
    let former = process_of_mount(&export, &place, &[]);
    let guard = guard_of(former);
    // Nor does the guard see that its mount goes: the next one may have its numbers.
    let (_stopped, watches_not) = (Stopped::begin(former), Stopped::begin(guard));
    unmount(&at.0);
    export.run(&place, &["mount", "@", "at"]).assert(0);
    let process = process_of_mount(&export, &place, &[former]);
    signal(former, "KILL");
    ends("the end of a process that was stopped", former);
    drop(watches_not);
    ends("the end of its guard", guard);
    serves(&at);
    assert!(!threads(process).is_empty());
}

#[test]
fn a_guard_ends_with_its_mount() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (export, at) = begin(&place);
    export.run(&place, &["mount", "@", "at"]).assert(0);
    let process = process_of_mount(&export, &place, &[]);
    let guard = guard_of(process);
    // So that it is the mount which ends first.
    let stopped = Stopped::begin(process);
    unmount(&at.0);
    ends("the end of a guard without a mount", guard);
    drop(stopped);
    ends("the end of a process without a mount", process);
}

#[test]
fn a_guard_knows_its_mount_by_numbers_where_the_system_has_no_better() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (export, at) = begin(&place);
    export.run(&place, &["mount", "@", "at"]).assert(0);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let row = table.lines().find(|row| row.contains(at.0.to_str().unwrap())).unwrap();
    let words: Vec<_> = row.split(' ').collect();
    // Linux before 6.8 tells no more of a mount.
    let mount = format!("{} {}", words[0], words[2]);
    let mut command = place.command(&["mount-guard", at.0.to_str().unwrap(), &mount]);
    let mut guard = command.stdin(Stdio::piped()).spawn().unwrap();
    let _watched = guard.stdin.take();
    unmount(&at.0);
    assert!(wait(&mut guard, Duration::from_secs(20)).success());
}

#[test]
fn a_mount_that_has_lost_its_name_leaves_the_next_one_alone() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let (export, at) = begin(&place);
    export.run(&place, &["mount", "@", "at", "--log-file", "log"]).assert(0);
    let former = process_of_mount(&export, &place, &[]);
    let used = fs::File::open(at.0.join("file")).unwrap();
    unmount(&at.0);
    export.run(&place, &["mount", "@", "at"]).assert(0);
    signal(former, "TERM");
    until("a word about the name", || {
        fs::read_to_string(place.path("log")).unwrap().contains("no name any more").then_some(())
    });
    serves(&at);
    drop(used);
    ends("the end of a mount that is not used", former);
    assert!(is_mounted(&at.0));
    serves(&at);
}
