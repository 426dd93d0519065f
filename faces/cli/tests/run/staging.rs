//! Files that are brought to the hosts of a job before its ranks start.

use crate::{
    common::{Place, Ran, signal, until, wait},
    hosts::{START, daemon_on, on_a, three},
    ranks, shell, text,
};
use petasos_pmix::{Job, Proc, Reply, Value, chain::Registration, status};
use petasos_testing::{Hosts, again_as_nobody, role};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::mpsc::channel,
    time::{Duration, Instant},
};

/// Long enough for a slow copy to be caught in the middle.
const LONG: usize = 6 << 20;
/// How fast such a copy is: not over before a minute.
const SLOW: [&str; 2] = ["--stage-rate", "100KiB"];

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// The directories for files that are there now, of all jobs of this place.
fn directories(place: &Place) -> Vec<PathBuf> {
    let uid = rustix::process::getuid().as_raw();
    let all = fs::read_dir(place.path(&format!("tmp/petasos-files-{uid}")));
    all.into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Waits until a file is on its way to this node.
fn in_the_middle(place: &Place, node: u32) {
    until("a file on its way", || {
        let directory = directories(place).into_iter();
        let mut of_node =
            directory.filter(|path| path.to_string_lossy().ends_with(&format!(".{node}")));
        let mut staged = fs::read_dir(of_node.next()?.join(".petasos/stage")).ok()?.flatten();
        staged.next().map(drop)
    });
}

fn is_empty_soon(place: &Place) {
    let tmp = || fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
    until("an empty directory", tmp);
    place.assert_clean();
}

fn spawn(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// What became of it, which has to be soon.
fn ended(mut child: Child) -> (Option<i32>, String) {
    let status = wait(&mut child, Duration::from_secs(40));
    let output = child.wait_with_output().unwrap();
    (status.code(), text(&output))
}

#[test]
fn files_are_on_every_host_before_the_ranks_start() {
    let name = "staging::files_are_on_every_host_before_the_ranks_start";
    if role().is_some() {
        return looks_at_its_files();
    }
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    fs::write(place.path("large"), bytes(LONG + 17, 1)).unwrap();
    fs::create_dir_all(place.path("tree/below")).unwrap();
    for (at, len) in [0, 1, 4095, 70_000, 2 << 20].into_iter().enumerate() {
        fs::write(place.path(&format!("tree/below/{at}")), bytes(len, at as u64)).unwrap();
    }
    symlink("below/3", place.path("tree/link")).unwrap();
    symlink(place.path("large"), place.path("also-large")).unwrap();
    // What is run is another file than the one here as soon as it is copied.
    let script = "#!/bin/sh\ncd \"$PETASOS_STAGE_DIR\" && case $0 in \"$PWD\"/*) ;; *) exit 3;; esac\n\
                  diff -r --no-dereference in/tree \"$1/tree\" && cmp big \"$1/large\" &&\n\
                  cmp also-large \"$1/large\" && [ ! -L also-large ] && ls -A | tr '\\n' ' '\n";
    fs::write(place.path("look"), script).unwrap();
    fs::set_permissions(place.path("look"), fs::Permissions::from_mode(0o700)).unwrap();
    let here = place.directory.path().to_str().unwrap().to_owned();
    let list = three(&hosts, [1, 2, 1]);
    let staged = ["--stage", "large:big", "--stage", "tree:in/tree", "--stage", "also-large"];
    let options = ["run", "-n", "4", "--label", "--json", "--hosts", &list, START[0], START[1]];
    let program = ["--stage-program", "./look", &here];
    let command = place.command(&[&options[..], &staged, &program].concat());
    let output = on_a(&hosts, &command).output().unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said.matches("also-large big in look").count(), 4, "{said}");
    let json = String::from_utf8_lossy(&output.stderr);
    let ended: serde_json::Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    let total = 2 * (LONG as u64 + 17) + 1 + 4095 + 70_000 + (2 << 20) + script.len() as u64;
    assert_eq!(ended["staged"]["files"], 8);
    assert_eq!(ended["staged"]["bytes"], total);
    assert_eq!(ended["staged"]["hosts"], 3);
    assert!(ended["staged"]["seconds"].as_f64().unwrap() > 0.0);
    place.assert_clean();
    // Programs that ask their daemon find the same, on hosts that have ranks: the first has none.
    let list = three(&hosts, [0, 1, 1]);
    let options = ["-n", "2", "--stage", "tree", "--hosts", &list, START[0], START[1]];
    let output = on_a(&hosts, &ranks(&place, &options, name)).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(text(&output).matches("found all of it").count(), 2, "{}", text(&output));
    place.assert_clean();
}

fn looks_at_its_files() {
    let job = Job::init().unwrap();
    let directory = std::env::var("PETASOS_STAGE_DIR").unwrap();
    let value = |key: &str| job.get(Proc::JOB, key).unwrap();
    assert_eq!(value("petasos.stage.dir"), Value::Text(directory.clone()));
    assert_eq!(value("petasos.stage.files").as_u64(), Some(5));
    assert!(matches!(value("petasos.stage.estimate"), Value::Real(time) if time > 0.0));
    assert_eq!(fs::read(format!("{directory}/tree/below/3")).unwrap(), bytes(70_000, 3));
    // That they are there was said before this process was.
    let (sender, receiver) = channel();
    let with = Registration { codes: vec![status::FILES_STAGED], ..Registration::default() };
    job.on_event(with, move |event, _| {
        sender.send(event.info.clone()).unwrap();
        Reply::seen()
    })
    .unwrap();
    let info = receiver.recv_timeout(Duration::from_secs(30)).unwrap();
    assert!(info.contains(&("petasos.stage.files".to_owned(), 5u64.into())), "{info:?}");
    job.fence().unwrap();
    println!("\nfound all of it");
    job.finalize().unwrap();
}

#[test]
fn nobody_else_reads_them() {
    const NAME: &str = "staging::nobody_else_reads_them";
    if role().is_some() {
        let directory = PathBuf::from(std::env::var("DIRECTORY").unwrap());
        assert!(fs::read(directory.join("data")).is_err());
        assert!(fs::read_dir(&directory).is_err());
        println!("\nrefused");
        return;
    }
    let place = Place::new();
    fs::write(place.path("data"), "of us alone").unwrap();
    let open = fs::Permissions::from_mode(0o755);
    for name in ["", "tmp"] {
        fs::set_permissions(place.path(name), open.clone()).unwrap();
    }
    let script = "echo $PETASOS_STAGE_DIR; read line";
    let mut command = place.command(&["run", "--stage", "data", "sh", "-c", script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let directory = PathBuf::from(lines.next().unwrap().unwrap());
    assert_eq!(fs::read(directory.join("data")).unwrap(), b"of us alone");
    assert_eq!(fs::metadata(&directory).unwrap().permissions().mode() & 0o777, 0o700);
    if let Some(stranger) = again_as_nobody(NAME, "stranger") {
        let mut stranger = stranger.env("DIRECTORY", directory.to_str().unwrap()).start();
        stranger.line("refused");
    }
    writeln!(child.stdin.take().unwrap()).unwrap();
    assert!(wait(&mut child, Duration::from_secs(20)).success());
    // Whatever the ranks did to their files, they go.
    let script =
        "cd $PETASOS_STAGE_DIR; mkdir -p a/b; echo > a/b/c; chmod 0 a/b a data; kill -9 $$";
    shell(&place, &["--stage", "data"], script).assert(137);
    place.assert_clean();
}

#[test]
fn what_cannot_be_staged_is_refused_and_what_can_is_shown() {
    let place = Place::new();
    fs::write(place.path("data"), [0; 3000]).unwrap();
    let run = |options: &[&str]| -> Ran { place.run(&[&["run"], options].concat()) };
    for wrong in ["data:../out", "data:/etc/out", "data:a/../../out", "data:"] {
        run(&["--stage", wrong, "true"]).assert(2).says("no name for a staged file");
    }
    run(&["--stage", "data", "--stage", "./data:data", "true"]).assert(2).says("would be `data`");
    run(&["--stage", "/dev/null:x", "true"]).assert(2).says("neither a file nor a directory");
    run(&["--stage", "missing", "true"]).assert(1).says("missing: No such file");
    run(&["--stage-program", "nothing-of-this-name"]).assert(2).says("no such program");
    run(&["--stage", "data", "--stage-dir", "/nowhere", "true"]).assert(1).says("No such file");
    // In place of a directory that is another user's, or open to others, there is another one, and
    // a line says so.
    fs::create_dir(place.path("open")).unwrap();
    let uid = rustix::process::getuid().as_raw();
    let base = place.path(&format!("open/petasos-files-{uid}"));
    fs::create_dir(&base).unwrap();
    fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).unwrap();
    run(&["--stage", "data", "--stage-dir", "open", "true"]).assert(0).says("mode 700");
    fs::set_permissions(&base, fs::Permissions::from_mode(0o700)).unwrap();
    let script = "case $PETASOS_STAGE_DIR in /*/open/*) cat $PETASOS_STAGE_DIR/x | wc -c;; esac";
    let options = ["--stage", "data:x", "--stage-dir", "open", "sh", "-c", script];
    assert_eq!(run(&options).assert(0).out.trim(), "3000");
    assert!(fs::read_dir(place.path("open")).unwrap().next().is_none());

    let options = ["--hosts", "a:1,b:1", "-n", "2", "--stage", "data:x", "--stage-program"];
    let shown = run(&[&options[..], &["--dry-run", "sh"]].concat()).assert(0).out;
    for what in ["data", "2 files", "libc.so", "about"] {
        assert!(shown.contains(what), "{what} is not in {shown}");
    }
    let options = [&options[..], &["--stage-rate", "1KiB", "--dry-run", "--json", "sh"]].concat();
    let shown = run(&options).assert(0).json();
    let files = &shown["files"];
    assert_eq!(
        (&files["copied"][0]["name"], &files["copied"][0]["bytes"]),
        (&"x".into(), &3000.into())
    );
    // At one kibibyte a second to each of two hosts.
    let (bytes, seconds) = (files["bytes"].as_f64().unwrap(), files["seconds"].as_f64().unwrap());
    assert!((seconds - bytes / 1024.0).abs() < 1.0, "{shown}");
    assert!(files["libraries"].as_array().unwrap().iter().any(|l| l["name"] == "libc.so.6"));
    place.assert_clean();
}

/// A job on three hosts whose file is on its way.
fn on_the_way(hosts: &Hosts, place: &Place) -> Child {
    fs::write(place.path("large"), bytes(LONG, 2)).unwrap();
    let list = three(hosts, [1, 1, 1]);
    let options = ["run", "-n", "3", "--hosts", &list, START[0], START[1], "--stage", "large"];
    let command = place.command(&[&options[..], &SLOW, &["sh", "-c", "echo started"]].concat());
    let child = spawn(on_a(hosts, &command));
    (0..3).for_each(|node| in_the_middle(place, node));
    child
}

#[test]
fn a_host_that_dies_while_files_come_ends_the_job() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let child = on_the_way(&hosts, &place);
    signal(daemon_on(&hosts, 'c'), "KILL");
    let (code, said) = ended(child);
    assert_eq!(code, Some(1), "{said}");
    let host = hosts.name('c');
    assert!(said.contains(&format!("{host}: ")) && said.contains("/large: "), "{said}");
    assert!(!said.contains("started"), "{said}");
    is_empty_soon(&place);
}

#[test]
fn a_host_that_falls_silent_while_files_come_ends_the_job() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let child = on_the_way(&hosts, &place);
    // That their systems answer is found out while there is no need: asked four times in a second.
    std::thread::sleep(Duration::from_secs(2));
    hosts.cut();
    let cut = Instant::now();
    let (code, said) = ended(child);
    eprintln!("named after {:?}", cut.elapsed());
    assert_eq!(code, Some(1), "{said}");
    // Both are silent, which is not left to the kernel.
    let named = |letter| said.contains(&format!("{}: ", hosts.name(letter)));
    assert!((named('b') || named('c')) && said.contains("/large: "), "{said}");
    assert!(said.contains("it was silent for 1s"), "{said}");
    is_empty_soon(&place);
}

#[test]
fn nothing_is_left_when_the_launcher_is_killed_while_files_come() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let mut child = on_the_way(&hosts, &place);
    child.kill().unwrap();
    child.wait().unwrap();
    is_empty_soon(&place);
}

#[test]
fn what_ends_the_job_ends_the_copies() {
    let place = Place::new();
    fs::write(place.path("large"), bytes(LONG, 3)).unwrap();
    let options = [&["run", "--stage", "large"], &SLOW[..]].concat();
    let child = spawn(place.command(&[&options[..], &["echo", "started"]].concat()));
    in_the_middle(&place, 0);
    // A plan can ask how long it will take.
    let keys = ["query", "petasos.stage.bytes", "petasos.stage.estimate", "--json"];
    let told = place.run(&keys).assert(0).json();
    assert_eq!(told["petasos.stage.bytes"], LONG);
    // At 100 KiB a second, a little more than a minute.
    assert!(told["petasos.stage.estimate"].as_f64().unwrap() > 60.0, "{told}");
    signal(child.id(), "TERM");
    let (code, said) = ended(child);
    assert_eq!(code, Some(143), "{said}");
    assert!(said.contains("interrupted"), "{said}");
    let ran = place.run(&[&options[..], &["--timeout", "1s", "echo", "started"]].concat());
    assert_eq!(ran.assert(124).says("were not on all nodes within 1s").out, "");
    place.assert_clean();
}

#[test]
fn a_full_disk_is_named() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    fs::write(place.path("large"), bytes(LONG, 4)).unwrap();
    fs::create_dir(place.path("small")).unwrap();
    // On one host temporary files have little room.
    let script = "host=$1; shift; case $host in *-c)\n\
                  mount -t tmpfs -o size=2m none \"$SMALL\" && export TMPDIR=\"$SMALL\";; esac; exec \"$@\"";
    fs::write(place.path("begin"), script).unwrap();
    let begin = place.path("begin");
    let start = format!("ip netns exec {{host}} sh {} {{host}}", begin.display());
    let list = three(&hosts, [1, 1, 1]);
    let options =
        ["run", "-n", "3", "--hosts", &list, "--remote-start", &start, "--stage", "large"];
    let mut command = place.command(&[&options[..], &["echo", "started"]].concat());
    command.env("SMALL", place.path("small"));
    let (code, said) = ended(spawn(on_a(&hosts, &command)));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(&format!("{}: ", hosts.name('c'))), "{said}");
    assert!(said.contains("/large: ") && said.contains("No space left on device"), "{said}");
    assert!(!said.contains("started"), "{said}");
    is_empty_soon(&place);
}

/// What is said when a file is changed while one of these is copied, the large one for some
/// seconds.
fn changed_meanwhile(files: [&str; 2], change: impl Fn(&Place)) -> String {
    let place = Place::new();
    fs::write(place.path("large"), bytes(LONG / 2, 5)).unwrap();
    fs::write(place.path("small"), bytes(100, 6)).unwrap();
    let [first, second] = files;
    let options = ["run", "--stage", first, "--stage", second, "--stage-rate", "500KiB"];
    let child = spawn(place.command(&[&options[..], &["echo", "started"]].concat()));
    in_the_middle(&place, 0);
    change(&place);
    let (code, said) = ended(child);
    assert_eq!(code, Some(1), "{said}");
    assert!(!said.contains("started"), "{said}");
    is_empty_soon(&place);
    said
}

#[test]
fn a_file_that_grows_while_it_is_copied_is_named() {
    let said = changed_meanwhile(["large", "small"], |place| {
        let mut file = fs::OpenOptions::new().append(true).open(place.path("large")).unwrap();
        file.write_all(b"more").unwrap();
    });
    assert!(said.contains("/large: ") && said.contains("changed while it was read"), "{said}");
}

#[test]
fn a_file_that_vanishes_before_it_is_copied_is_named() {
    let remove = |place: &Place| fs::remove_file(place.path("small")).unwrap();
    let said = changed_meanwhile(["large", "small"], remove);
    assert!(said.contains("/small: ") && said.contains("No such file"), "{said}");
}

/// The next host would get another file.
#[test]
fn a_file_that_changes_after_it_was_copied_is_named() {
    let change = |place: &Place| fs::write(place.path("small"), bytes(100, 7)).unwrap();
    let said = changed_meanwhile(["small", "large"], change);
    assert!(said.contains("/small: it changed, or vanished"), "{said}");
}
