//! Where jobs have their directories, if that place is taken.

use crate::common::{Place, until, wait};
use petasos_testing::{is_root, skip};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{PermissionsExt, chown, symlink},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

/// `nobody`, on Debian and most others.
const NOBODY: u32 = 65_534;

/// The directory was made before, by another process, in each way that is possible.
fn taken(place: &Place, name: &str, how: &str) {
    let path = place.path("tmp").join(name);
    match how {
        "another's" | "open" => fs::create_dir(&path).unwrap(),
        "link" => {
            fs::create_dir(place.path("elsewhere")).unwrap();
            symlink(place.path("elsewhere"), &path).unwrap();
        }
        "dangling" => symlink(place.path("nowhere"), &path).unwrap(),
        _ => fs::write(&path, "").unwrap(),
    }
    if how == "another's" {
        // In it lies what looks like a job.
        fs::create_dir(path.join("0123456789abcdef.0")).unwrap();
        chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mode = if how == "another's" { 0o755 } else { 0o777 };
    if how == "another's" || how == "open" {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
}

#[test]
fn a_place_that_is_taken_keeps_nobody_from_starting_jobs() {
    let user = rustix::process::geteuid().as_raw();
    for how in ["another's", "open", "link", "dangling", "file"] {
        if how == "another's" && !is_root() {
            skip("only root can give a directory to another user");
            continue;
        }
        let place = Place::new();
        let names = [format!("petasos-{user}"), format!("petasos-files-{user}")];
        names.iter().for_each(|name| {
            let _ = fs::remove_dir(place.path("elsewhere"));
            taken(&place, name, how);
        });
        fs::write(place.path("data"), "staged").unwrap();
        let script =
            "echo $PETASOS_JOB_DIR; cat $PETASOS_STAGE_DIR/data; echo; read line; echo $line";
        let options = ["run", "--stage", "data", "sh", "-c", script];
        let mut command = place.command(&options);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        let directory = PathBuf::from(lines.next().unwrap_or_else(|| panic!("{how}: no rank ran")));
        let base = directory.parent().unwrap();
        assert!(base.starts_with(place.path("tmp")) && !base.ends_with(&names[0]), "{base:?}");
        assert_eq!(fs::symlink_metadata(base).unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(lines.next().unwrap(), "staged");
        // It is found there, and nothing that only looks like a job is.
        let listed = place.run(&["ps", "--json"]).assert(0);
        let name = directory.file_stem().unwrap().to_str().unwrap();
        assert!(listed.out.contains(name), "{listed:?}");
        assert!(!listed.out.contains("0123456789abcdef"), "{listed:?}");
        writeln!(child.stdin.take().unwrap(), "go on").unwrap();
        assert_eq!(lines.next().unwrap(), "go on");
        let status = wait(&mut child, Duration::from_secs(30));
        let mut said = String::new();
        child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(status.success(), "{how}: {said}");
        for name in &names {
            assert!(said.contains(name), "{how}: {name} is not named in {said}");
        }
        // Of ours nothing is left, and what was there is.
        let mut left: Vec<_> = fs::read_dir(place.path("tmp"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [names[0].clone(), names[1].clone()], "{how}");
    }
}

/// Also where the launcher is killed, and its guard cleans up.
#[test]
fn another_place_is_cleaned_up_too() {
    let user = rustix::process::geteuid().as_raw();
    let place = Place::new();
    taken(&place, &format!("petasos-{user}"), "file");
    let mut command = place.command(&["run", "sh", "-c", "echo ready; sleep 100"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    assert_eq!(fs::read_dir(place.path("tmp")).unwrap().count(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    let alone = || (fs::read_dir(place.path("tmp")).unwrap().count() == 1).then_some(());
    until("what was there before, alone", alone);
}
