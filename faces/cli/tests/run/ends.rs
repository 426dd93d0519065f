//! Output, input, exit codes, and that nothing is left behind.

use crate::{
    common::{Place, Ran, child_of, signal, until, wait},
    exists, shell,
};
use rustix::{io::ioctl_fionread, pipe::fcntl_setpipe_size};
use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{PermissionsExt, symlink},
    process::Stdio,
    time::Duration,
};

#[test]
fn output_is_forwarded_with_labels_if_wanted() {
    let place = Place::new();
    let script = "echo out $PETASOS_RANK of $PETASOS_SIZE; printf 'no end' >&2";
    let ran = shell(&place, &["-n", "3", "--label"], script).assert(0);
    let mut lines: Vec<&str> = ran.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] out 0 of 3", "[1] out 1 of 3", "[2] out 2 of 3"]);
    let mut lines: Vec<&str> = ran.err.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["[0] no end", "[1] no end", "[2] no end"]);
    let ran = shell(&place, &["-n", "1"], "printf 'as it is'").assert(0);
    assert_eq!(ran.out, "as it is");
    place.assert_clean();
}

#[test]
fn a_job_whose_output_nobody_reads_ends() {
    let place = Place::new();
    let first = |options: &[&str], script: &str| {
        let arguments = [&["run", "-n", "2"], options, &["sh", "-c", script]].concat();
        let mut command = place.command(&arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // The other end is closed once this is read.
        let line = BufReader::new(child.stdout.take().unwrap()).lines().next().unwrap().unwrap();
        assert_eq!(line, "y");
        let status = wait(&mut child, Duration::from_secs(30));
        (status.code(), String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap())
    };
    let (code, said) = first(&[], "exec yes");
    assert_eq!(code, Some(128 + 13), "{said}");
    // As programs in a pipeline do.
    assert_eq!(said, "");
    // Told to go on, it does.
    let script = "for n in 1 2 3 4 5; do echo y; sleep 0.1; done; echo done >&2";
    let (code, said) = first(&["--keep-going"], script);
    assert_eq!((code, &*said), (Some(0), "done\ndone\n"));
    place.assert_clean();
}

#[test]
fn output_that_cannot_be_written_is_said_once_and_no_success() {
    let place = Place::new();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let lost = "output of the ranks is lost: writing to standard output: No space left on device";
    let run = |options: &[&str], script: &str| {
        let mut command =
            place.command(&[&["run", "-n", "2"], options, &["sh", "-c", script]].concat());
        command.stdout(full());
        Ran::of(&command.output().unwrap())
    };
    // One that has ended before it is noticed, with labels as without.
    for options in [&[][..], &["--label"], &["--json"]] {
        let ran = run(options, "echo of no use").assert(1);
        assert_eq!(ran.err.matches(lost).count(), 1, "{ran:?}");
    }
    // One that would go on for long is ended.
    let ran = run(&[], "echo of no use; exec sleep 100").assert(1);
    assert_eq!(ran.err.matches(lost).count(), 1, "{ran:?}");
    // Told to go on, it does, and its end is no success.
    let ran = run(&["--keep-going"], "echo of no use; sleep 0.2; echo done >&2").assert(1);
    assert_eq!((ran.err.matches(lost).count(), ran.err.matches("done").count()), (1, 2), "{ran:?}");
    // Whatever else failed then comes first, and both are said.
    let script = "echo of no use; [ $PETASOS_RANK = 0 ] || exit 7";
    let ran = run(&["--keep-going"], script).assert(7).says("exited with code 7");
    assert_eq!(ran.err.matches(lost).count(), 1, "{ran:?}");
    // What ranks say on standard error is output as well; there nothing can be said of it.
    let mut command = place.command(&["run", "sh", "-c", "echo of no use >&2"]);
    let ran = Ran::of(&command.stderr(full()).output().unwrap()).assert(1);
    assert_eq!((&*ran.out, &*ran.err), ("", ""));
    // A silent job has lost nothing.
    let ran = run(&[], "true").assert(0);
    assert_eq!(ran.err, "");
    place.assert_clean();
}

/// A full disk takes a part, and then no more; here, no file gets longer than this.
#[test]
fn output_to_a_full_disk_is_no_success() {
    let place = Place::new();
    let file = std::fs::File::create(place.path("out")).unwrap();
    let program = env!("CARGO_BIN_EXE_petasos");
    let script =
        format!("trap '' XFSZ; ulimit -f 100; exec {program} run head -c 10000000 /dev/zero");
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script]).env("TMPDIR", place.path("tmp")).env_remove("XDG_RUNTIME_DIR");
    command.current_dir(place.directory.path()).stdin(Stdio::null()).stdout(file);
    let ran = Ran::of(&command.output().unwrap()).assert(1).says("File too large");
    assert_eq!(ran.err.matches("output of the ranks is lost").count(), 1, "{ran:?}");
    assert!(place.path("out").metadata().unwrap().len() > 0);
    place.assert_clean();
}

#[test]
fn input_goes_to_rank_0_however_long_it_is() {
    let place = Place::new();
    let arguments = ["run", "-n", "2", "sh", "-c", "[ $PETASOS_RANK = 1 ] || exec cat"];
    let mut command = place.command(&arguments);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let data: Vec<u8> = (0..5_000_000u32).map(|at| (at * 31 + (at >> 9)) as u8).collect();
    let (mut input, given) = (child.stdin.take().unwrap(), data.clone());
    let writer = std::thread::spawn(move || input.write_all(&given).unwrap());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success() && output.stdout == data, "{}", output.stdout.len());
    place.assert_clean();
}

#[test]
fn input_goes_to_the_rank_that_is_named_or_to_none() {
    let place = Place::new();
    let script = "cat | sed \"s/^/$PETASOS_RANK /\"";
    let run = |options: &[&str]| {
        let arguments = [&["run", "-n", "3"], options, &["sh", "-c", script]].concat();
        let mut command = place.command(&arguments);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Where no rank reads it, the job may be over before this.
        let _ = child.stdin.take().unwrap().write_all(b"a\nb\n");
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(run(&["--input", "2"]), (Some(0), "2 a\n2 b\n".to_owned()));
    assert_eq!(run(&["--stdin=none"]), (Some(0), String::new()));
    let ran = shell(&place, &["-n", "3", "--input", "3"], "true").assert(2);
    ran.says("cannot go to rank 3: the job has 3 of them");
    shell(&place, &["--input", "all"], "true").assert(2).says("neither the number of a rank");
    place.assert_clean();
}

#[test]
fn each_rank_may_write_into_files_of_its_own() {
    let place = Place::new();
    let script = "echo out $PETASOS_RANK; printf 'no end' >&2; [ $PETASOS_RANK != 1 ] || cat";
    let ran = shell(&place, &["-n", "3", "--output", "said/here"], script).assert(0);
    assert_eq!((&*ran.out, &*ran.err), ("", ""));
    let read = |name: &str| std::fs::read_to_string(place.path("said/here").join(name)).unwrap();
    for rank in 0..3 {
        assert_eq!(read(&format!("rank-{rank}.out")), format!("out {rank}\n"));
        assert_eq!(read(&format!("rank-{rank}.err")), "no end");
    }
    // The next job begins them anew; what the launcher says of its own is printed.
    let ran = shell(&place, &["-n", "2", "--output", "said/here"], "exit 7").assert(7);
    ran.says("rank ").says("it exited with code 7");
    assert_eq!((read("rank-1.out"), read("rank-2.out")), (String::new(), "out 2\n".to_owned()));
    // A disk that is full is said, and no success.
    std::fs::remove_file(place.path("said/here/rank-0.out")).unwrap();
    symlink("/dev/full", place.path("said/here/rank-0.out")).unwrap();
    let ran = shell(&place, &["--output", "said/here"], "echo lost").assert(1);
    ran.says("output of the ranks is lost: said/here/rank-0.out: No space left on device");
    let ran = shell(&place, &["--output", "/dev/null/here"], "echo out").assert(1);
    assert!(!ran.says("/dev/null/here: Not a directory").out.contains("out"));
    place.assert_clean();
}

#[test]
fn the_first_failure_is_the_jobs_and_ends_the_others() {
    let place = Place::new();
    let marker = "7341.25";
    let script = format!("[ $PETASOS_RANK = 1 ] && exit 7; sleep {marker} & sleep {marker}");
    let ran = shell(&place, &["-n", "3"], &script).assert(7);
    let ran = ran.says("rank 1 on ").says("it exited with code 7");
    assert!(!exists(marker), "{ran:?}");
    shell(&place, &["-n", "2"], "[ $PETASOS_RANK = 0 ] && kill -SEGV $$; sleep 100")
        .assert(139)
        .says("rank 0 on ")
        .says("signal 11");
    let ran = place.run(&["run", "-n", "3", "nothing-of-this-name"]).assert(127);
    ran.says("rank 0 on ").says("could not be started").says("no such program");
    // Some do not end when they are asked to.
    let stubborn = "trap '' TERM; [ $PETASOS_RANK = 1 ] && exit 3; while :; do sleep 1; done";
    shell(&place, &["-n", "2"], stubborn).assert(3);
    // Told to go on, the others do.
    let script = "[ $PETASOS_RANK = 1 ] && exit 5; sleep 0.2; echo done";
    let ran = shell(&place, &["-n", "3", "--keep-going"], script).assert(5).says("rank 1");
    assert_eq!(ran.out, "done\ndone\n");
    place.assert_clean();
}

/// Whatever it makes of it: one that says it went well has not been in its job.
#[test]
fn a_rank_that_is_cut_off_has_failed() {
    let place = Place::new();
    // A line of PMI-1 without an end; then the connection ends.
    let script = "head -c 5000000 /dev/zero | tr '\\0' x >&$PMI_FD; read -r line <&$PMI_FD; exit 0";
    let ran = place.run(&["run", "--wire", "pmi1", "bash", "-c", script]).assert(1);
    let ran = ran.says("rank 0 is cut off: a line without an end");
    ran.says("rank 0 on ").says("it exited with code 0, and had failed: its connection was cut");
    place.assert_clean();
}

#[test]
fn a_time_limit_is_kept_and_says_who_was_running() {
    let place = Place::new();
    let script = "[ $PETASOS_RANK = 1 ] && exit 0; sleep 100";
    let ran = shell(&place, &["-n", "3", "--timeout", "300ms"], script);
    ran.assert(124).says("300ms").says("rank 0, 2");
    place.assert_clean();
}

#[test]
fn what_cannot_be_is_refused() {
    let place = Place::new();
    place.run(&["run", "-n", "0", "true"]).assert(2).says("at least one");
    place.run(&["run", "-n", "5", "--hosts", "a:2,b:2", "true"]).assert(2).says("4 slots");
    place.run(&["run", "--hosts=-oProxyCommand=x", "true"]).assert(2).says("no host");
    place.run(&["run"]).assert(2);
    std::fs::write(place.path("hosts"), "# none yet\n").unwrap();
    place.run(&["run", "--hostfile", "hosts", "true"]).assert(2).says("hosts: no host is named");
    place.run(&["run", "--hostfile", "missing", "true"]).assert(1).says("missing: No such file");
    let ran = place.run(&["run", "-n", "3", "--hosts", "a:2,b:1", "--dry-run", "--json", "x"]);
    let placed = ran.assert(0).json();
    assert_eq!(placed["ranks"], serde_json::json!(["a", "a", "b"]));
    // Ranks of this host keep to what this process may use, in turn; of another nothing is known.
    let hosts = ["--hosts", "localhost:2,b:1", "--bind", "core", "--dry-run", "--json"];
    let placed = place.run(&[&["run", "-n", "3"], &hosts[..], &["x"]].concat()).assert(0).json();
    let cpus = petasos_launch::inventory::binding();
    let mut cpus = cpus.iter().cycle();
    let expected = [cpus.next(), cpus.next(), None];
    assert_eq!(placed["cpus"], serde_json::json!(expected));
    // The start command fails, or is none.
    let remote = ["run", "--hosts", "a:1", "--remote-start", "false", "x"];
    place.run(&remote).assert(1).says("a: no daemon was started there");
    let remote = ["run", "--hosts", "a:1", "--remote-start", "nothing-of-this-name", "x"];
    place.run(&remote).assert(1).says("starting it by `nothing");
    place.assert_clean();
}

#[test]
fn signals_reach_the_ranks() {
    let place = Place::new();
    // No shell can trap an interrupt that was ignored when it began, as in the background of
    // another.
    let script = "trap 'echo got it; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = place.command(&["run", "-n", "2", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!([lines.next().unwrap(), lines.next().unwrap()], ["ready", "ready"]);
    signal(child.id(), "TERM");
    assert_eq!([lines.next().unwrap(), lines.next().unwrap()], ["got it", "got it"]);
    assert_eq!(wait(&mut child, Duration::from_secs(10)).code(), Some(143));
    place.assert_clean();
}

/// All is over but what is to be printed, for which there is a reader that does not read.
#[test]
fn signals_end_a_job_whose_output_waits_for_a_reader() {
    let place = Place::new();
    let script = "echo ready; exec yes";
    let mut command = place.command(&["run", "-n", "1", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut output = child.stdout.take().unwrap();
    // There is more than it takes.
    fcntl_setpipe_size(&output, 4096).unwrap();
    output.read_exact(&mut [0; 6]).unwrap();
    until("a full pipe", || (ioctl_fionread(&output).unwrap() > 4000).then_some(()));
    until("the end", || {
        signal(child.id(), "TERM");
        child.try_wait().unwrap()
    });
    drop(output);
    place.assert_clean();
}

#[test]
fn some_signals_are_handed_on_and_a_second_end_is_at_once() {
    let place = Place::new();
    let script =
        "trap 'echo one' USR1; trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done";
    let mut command = place.command(&["run", "-n", "2", "--json", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!([lines.next().unwrap(), lines.next().unwrap()], ["ready", "ready"]);
    signal(child.id(), "USR1");
    assert_eq!([lines.next().unwrap(), lines.next().unwrap()], ["one", "one"]);
    // They are asked, and go on, unless this machine is so busy that their time is over by now.
    signal(child.id(), "TERM");
    assert!(lines.by_ref().take(2).all(|line| line == "asked"));
    signal(child.id(), "TERM");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    let ended: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(ended["why"], "interrupted by SIGTERM");
    for rank in ["0", "1"] {
        assert_eq!(ended["ranks"][rank]["end"], "it was ended by signal 9", "{said}");
    }
    place.assert_clean();
}

#[test]
fn nothing_outlives_a_launcher_that_is_killed() {
    let place = Place::new();
    let marker = "7341.75";
    // The grandchild is in the background, and does not know the launcher.
    let script = format!("sleep {marker} & echo ready; sleep {marker}");
    let mut command = place.command(&["run", "-n", "2", "sh", "-c", &script]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().is_some() && lines.next().is_some());
    assert!(exists(marker));
    child.kill().unwrap();
    child.wait().unwrap();
    nothing_is_left(&place, marker);
    place.assert_clean();
}

/// What was forked a moment ago, and what that has forked, ends with the launcher as well.
#[test]
fn nothing_outlives_a_launcher_that_is_killed_while_it_starts_ranks() {
    let place = Place::new();
    for moment in [0, 1, 2, 4, 7, 11, 16, 22, 30] {
        let marker = format!("7344.{moment:02}");
        let script = format!("sleep {marker} & sleep {marker}");
        let mut command = place.command(&["run", "-n", "60", "sh", "-c", &script]);
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        until("the first rank", || has_started(&marker).then_some(()));
        std::thread::sleep(Duration::from_millis(moment));
        child.kill().unwrap();
        child.wait().unwrap();
        nothing_is_left(&place, &marker);
    }
    place.assert_clean();
}

/// Waits until the ranks with this marker are gone, and all that the job kept in files.
fn nothing_is_left(place: &Place, marker: &str) {
    until("the end of the ranks", || (!exists(marker)).then_some(()));
    let empty = || std::fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
    until("an empty directory", empty);
}

/// Whether a rank of the job with this marker is there: the launcher has it on its command line,
/// too.
fn has_started(marker: &str) -> bool {
    let sleeps = format!("sleep\0{marker}\0").into_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.map(|process| std::fs::read(process.path().join("cmdline")));
    lines.any(|line| line.is_ok_and(|line| line == sleeps))
}

#[test]
fn a_guard_that_is_killed_is_replaced() {
    let place = Place::new();
    let marker = "7345.25";
    let script = format!("sleep {marker} & echo ready; read line; echo $line; sleep {marker}");
    let mut command = place.command(&["run", "-n", "1", "sh", "-c", &script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "ready");
    let guard = || child_of(child.id(), "pmix-guard");
    let first = until("the guard", guard);
    signal(first, "KILL");
    until("another guard", || guard().filter(|guard| *guard != first));
    // Its start is one step of the launcher, and this is another.
    writeln!(child.stdin.take().unwrap(), "go on").unwrap();
    assert_eq!(lines.next().unwrap(), "go on");
    child.kill().unwrap();
    child.wait().unwrap();
    // It knows of the process in the background, and of the directory.
    nothing_is_left(&place, marker);
    place.assert_clean();
}

#[test]
fn programs_are_found_as_in_a_shell() {
    let place = Place::new();
    // By its name from the directory, and without a word on what runs it.
    let script = place.path("say-it");
    std::fs::write(&script, "echo ran $1 in $PETASOS_SIZE\n").unwrap();
    let ran = place.run(&["run", "./say-it", "this"]).assert(127).says("Permission denied");
    assert_eq!(ran.out, "");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700)).unwrap();
    let ran = place.run(&["run", "-n", "2", "./say-it", "this"]).assert(0);
    assert_eq!(ran.out, "ran this in 2\nran this in 2\n");
    // By the path of the environment, which is the rank's own.
    let mut command = place.command(&["run", "say-it", "that"]);
    let path = std::env::var("PATH").unwrap();
    command.env("PATH", format!("{path}:{}", place.directory.path().display()));
    let output = command.output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ran that in 1\n", "{output:?}");
    place.assert_clean();
}
