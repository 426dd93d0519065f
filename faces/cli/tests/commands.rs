//! The other commands.

#[path = "commands/broker.rs"]
mod broker;
mod common;

use common::{Place, Ran, Serving};
use std::{
    collections::BTreeSet,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::Instant,
};

#[test]
fn ping_over_each_transport() {
    let place = Place::new();
    let mut server = Serving::start(&place, &[], 2);
    for url in &server.urls {
        let ran = place.run(&["ping", url, "-c", "3", "-i", "1ms"]).assert(0);
        assert!(ran.out.contains("3 of 3 answered; min"), "{ran:?}");
        let ran = place.run(&["ping", url, "--size", "300000", "-i", "0ms", "--json"]).assert(0);
        let report = ran.json();
        assert_eq!((&report["answered"], &report["bytes"]), (&5.into(), &300_000.into()));
        let of = |name: &str| report[name].as_u64().unwrap();
        assert!(of("min_ns") > 1000 && of("min_ns") <= of("median_ns"), "{report}");
        assert!(of("median_ns") <= of("max_ns"), "{report}");
    }
    assert_eq!(server.interrupt(), Some(0));
    place.assert_clean();
}

/// One address: by shared memory, or by TCP where one side has nothing else.
#[test]
fn one_address_for_both() {
    let place = Place::new();
    let mut servers = [&["--listen", "auto://*"], &["--listen", "auto://tcp://127.0.0.1:0"]]
        .map(|listen| Serving::start(&place, listen, 1));
    for (server, way) in servers.iter().zip(["shm://", "tcp://"]) {
        let whole = &server.urls[0];
        let (_, port) = whole.rsplit_once(':').unwrap();
        for url in [whole, &format!("auto://127.0.0.1:{port}")] {
            place.run(&["ping", url, "-c", "3", "-i", "1ms", "--size", "300000"]).assert(0);
            let text = place.run(&["info", url]).assert(0).out;
            assert!(text.contains("it is on this node"), "{text}");
            let report = place.run(&["info", url, "--json"]).assert(0).json();
            assert_eq!(report["address"], **whole, "{report}");
            assert!(report["route"].as_str().unwrap().starts_with(way), "{report}");
        }
    }
    for server in &mut servers {
        assert_eq!(server.interrupt(), Some(0));
    }
    place.run(&["info", "auto://127.0.0.1:1", "-t", "200ms"]).assert(3).says("petasos serve");
    place.run(&["info", "shm://nobody-here", "-t", "200ms"]).assert(3);
    place.run(&["info", "auto://0123456789abcdef/shm://x"]).assert(2).says("no route");
    place.assert_clean();
}

#[test]
fn nobody_there() {
    let place = Place::new();
    let begin = Instant::now();
    for url in ["shm://nobody-is-called-so", "tcp://127.0.0.1:1"] {
        let ran = place.run(&["ping", url, "--timeout", "300ms"]);
        ran.assert(3).says(url).says("petasos serve");
    }
    assert!(begin.elapsed().as_secs() < 10);
}

#[test]
fn secrets() {
    let place = Place::new();
    let secret = |name: &str, text: &str, mode| {
        fs::write(place.path(name), text).unwrap();
        fs::set_permissions(place.path(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    secret("right", "0123456789abcdef0123456789abcdef", 0o600);
    secret("wrong", "fedcba9876543210fedcba9876543210", 0o600);
    secret("open", "0123456789abcdef0123456789abcdef", 0o644);
    let server = Serving::start(&place, &["--listen", "tcp://127.0.0.1:0", "--secret", "right"], 1);
    let ping = |secret: &[&str]| {
        place.run(&[&["ping", &server.urls[0], "-c", "1", "-t", "2s"], secret].concat())
    };
    ping(&["--secret", "right"]).assert(0);
    ping(&["--secret", "wrong"]).assert(5).says("--secret");
    ping(&["--secret", "open"]).assert(5).says("chmod 600");
    ping(&["--secret", "missing"]).assert(5).says("missing");
    ping(&[]).assert(5).says("--secret");
    let beyond = place.run(&["serve", "--listen", "tcp://0.0.0.0:0"]);
    beyond.assert(5).says("secret").says("--secret FILE");
}

#[test]
fn what_cannot_be_is_said() {
    let place = Place::new();
    place.run(&[]).assert(2).says("Usage");
    place.run(&["fly"]).assert(2).says("fly");
    place.run(&["ping", "http://example"]).assert(2).says("no transport").says("shm://");
    place.run(&["ping", "nonsense"]).assert(2).says("shm://NAME");
    place.run(&["ping", "self://x"]).assert(2).says("try:");
    let without = [("PETASOS_UCX", "/nowhere/libucp.so"), ("PETASOS_LIBFABRIC", "/nowhere")];
    place.run_with(&["ping", "ucx+posix://x"], &without).assert(6).says("libucx0");
    place.run_with(&["ping", "ofi+shm://x"], &without).assert(6).says("libfabric1");
    // Where a transport is asked for by its name as well.
    fs::write(place.path("file"), "a").unwrap();
    for words in [&["quickstart", "file"][..], &["tune"]] {
        for (network, package) in [("ofi+tcp", "libfabric1"), ("ucx+tcp", "libucx0")] {
            let all = [words, &["--transport", network]].concat();
            place.run_with(&all, &without).assert(6).says(network).says(package);
        }
    }
    let tuning = place.path("no-tuning");
    assert!(!tuning.exists(), "nothing was measured");
    place.run(&["serve", "--listen", "ucx+tcp://0.0.0.0:0"]).assert(5).says("--secret FILE");
    place.run(&["ping", "shm://x", "--interval", "soon"]).assert(2).says("no time");
    place.run(&["ping", "shm://x", "--size", "1TiB"]).assert(2).says("at most");
    place.run(&["serve", "--listen", "shm://no spaces"]).assert(2);
    place.run(&["serve", "--listen", "shm://a/b"]).assert(2).says("try:");
    place.run(&["server-process"]).assert(2).says("petasos serve");
}

#[test]
fn a_name_that_is_taken() {
    let place = Place::new();
    let url = format!("shm://taken-{}", std::process::id());
    let _server = Serving::start(&place, &["--listen", &url], 1);
    place.run(&["serve", "--listen", &url]).assert(1).says("taken").says("another name");
}

#[test]
fn info_says_what_is_here() {
    let place = Place::new();
    let text = place.run_with(&["info"], &[("PETASOS_UCX", "/nowhere/libucp.so")]).assert(0).out;
    for word in ["shm", "tcp", "libfabric", "UCX", "libucx0", "exposure", "process_vm_readv"] {
        assert!(text.contains(word), "`{word}` is not in {text}");
    }
    let report = place.run(&["info", "--json"]).assert(0).json();
    assert!(report["machine"]["cores"].as_u64().unwrap() >= 1);
    let transports = report["transports"].as_array().unwrap();
    for transport in transports {
        let available = transport["available"].as_bool().unwrap();
        assert_eq!(available, transport["why_not"].is_null(), "{transport}");
        assert_eq!(available, transport["capabilities"].is_object(), "{transport}");
    }
}

#[test]
fn info_says_what_was_loaded() {
    let plugin = concat!(env!("CARGO_MANIFEST_DIR"), "/../../transports/plugin");
    let quiet = include_str!("../../../transports/plugin/tests/quiet.c");
    let source = format!("#include <{plugin}/include/petasos_transport.h>\n{quiet}");
    let Some(library) = petasos_testing::Pretended::of(&source) else { return };
    let file = library.path().display().to_string();
    let list = format!("{file}:/nowhere/x.so");
    let (place, listed) = (Place::new(), [("PETASOS_TRANSPORTS", list.as_str())]);
    let text = place.run_with(&["info"], &listed).assert(0).out;
    let loaded = format!("quiet: loaded from {file}");
    for words in ["nothing is ever heard", &loaded, "not loaded: /nowhere/x.so: No such file"] {
        assert!(text.contains(words), "`{words}` is not in {text}");
    }
    let report = place.run_with(&["info", "--json"], &listed).assert(0).json();
    let transports = report["transports"].as_array().unwrap();
    let quiet = transports.iter().find(|found| found["scheme"] == "quiet").unwrap();
    assert_eq!(quiet["available"], true, "{quiet}");
    assert_eq!(quiet["capabilities"]["remote_access"], "emulated", "{quiet}");
    // What was asked for may be what was not loaded.
    place.run_with(&["ping", "loud://x"], &listed).assert(2).says("not loaded: /nowhere/x.so");
    // Only the transport knows what stands in its addresses.
    let reach = place.run_with(&["ping", "quiet://x"], &listed);
    reach.assert(3).says("cannot reach quiet://x");
    // Without the variable there is nothing of it.
    assert!(!place.run(&["info"]).assert(0).out.contains("quiet"));
    place.run(&["ping", "quiet://x"]).assert(2).says("is no transport");
}

/// What `auto://` promises for all peers is the least of its transports; with a peer it can do what
/// the transport that reaches it can.
#[test]
fn info_tells_the_routes_of_auto_apart() {
    let place = Place::new();
    let report = place.run(&["info", "--json"]).assert(0).json();
    let of = |scheme: &str| {
        let mut transports = report["transports"].as_array().unwrap().iter();
        transports.find(|found| found["scheme"] == scheme).cloned().unwrap()
    };
    let (auto, own) = (of("auto"), ["shm", "tcp"].map(|scheme| of(scheme)["capabilities"].clone()));
    let routes = auto["routes"].as_array().unwrap();
    let schemes: Vec<_> = routes.iter().map(|route| route["scheme"].as_str().unwrap()).collect();
    assert_eq!(schemes, ["shm", "tcp"]);
    for (route, own) in routes.iter().zip(&own) {
        for what in ["remote_access", "put_with_event", "read_in_place", "passive_target"] {
            assert_eq!(route["capabilities"][what], own[what], "{what} of {route}");
        }
        assert_eq!(route["capabilities"]["tagged_messages"], "emulated", "as for all peers");
    }
    assert_eq!(auto["capabilities"]["read_in_place"], "no", "TCP has no memory to map");
    assert_eq!(of("shm")["routes"].as_array().unwrap().len(), 0);
    let text = place.run(&["info"]).assert(0).out;
    let row = |name: &str| text.lines().find(|line| line.contains(name)).unwrap().to_owned();
    assert!(row("memory read in place").contains("native (shm), no (tcp)"), "{text}");
    if own[0]["remote_access"] == "native" {
        assert!(row("put and get").contains("native (shm), emulated (tcp)"), "{text}");
        assert!(row("while the target sleeps").contains("yes (shm), no (tcp)"), "{text}");
    }
}

/// Endpoints that a thread drives say so, over each transport and with each route of `auto://`.
#[test]
fn info_shows_what_a_thread_drives() {
    let place = Place::new();
    for (arguments, attended) in
        [(&["info", "--json"][..], false), (&["info", "--attended", "--json"], true)]
    {
        let report = place.run(arguments).assert(0).json();
        for found in report["transports"].as_array().unwrap() {
            if found["available"].as_bool().unwrap() {
                assert_eq!(found["capabilities"]["attended"], attended, "{found}");
            }
        }
    }
    let text = place.run(&["info", "--attended"]).assert(0).out;
    let row = text.lines().find(|line| line.contains("driven by a thread meanwhile")).unwrap();
    assert!(row.contains("yes") && !row.contains("no "), "{text}");
}

#[test]
fn completions_for_shells() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).assert(0).out;
        assert!(script.contains("quickstart") && !script.contains("server-process"), "{shell}");
    }
    place.run(&["completions", "tcsh"]).assert(2).says("tcsh");
}

#[test]
fn nobody_reads_the_output() {
    let place = Place::new();
    let mut child = place.command(&["info"]).stdout(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn tune_writes_what_others_read() {
    let place = Place::new();
    let ran = place.run(&["tune", "--quick", "--out", "here/tuning", "--json"]).assert(0);
    let report = ran.json();
    assert!(report["spin_us"].as_u64().unwrap() >= 1, "{report}");
    let transports = report["transports"].as_array().unwrap();
    assert_eq!(transports.len(), 2, "{report}");
    for found in transports {
        let sizes = found["sizes"].as_array().unwrap();
        assert!(!sizes.is_empty(), "{report}");
        let positive = |name: &str| sizes.iter().all(|size| size[name].as_f64().unwrap() > 0.0);
        assert!(["bytes", "sent", "lent"].into_iter().all(positive), "{report}");
        // Only the networks of libraries have several channels.
        assert_eq!(found["channels"].as_array().map(Vec::len), Some(0), "{report}");
        assert!(found["choice"].is_null(), "{report}");
    }
    let written = fs::read_to_string(place.path("here/tuning")).unwrap();
    assert!(written.contains(&format!("spin_us = {}", report["spin_us"])), "{written}");
    assert!(!written.contains("channel"), "{written}");
    let ran = place.run(&["tune", "--quick", "--dry-run", "--transport", "shm"]).assert(0);
    assert!(ran.out.contains("spin_us") && !ran.out.contains("written"), "{ran:?}");
    place.run(&["tune", "--transport", "none"]).assert(2).says("--transport shm");
    place.run(&["tune", "--quick", "--transport", "shm", "--out", "/proc/no/where"]).assert(1);
    place.assert_clean();
}

/// What was written is used, and what cannot be is said.
#[test]
fn tuning_is_read() {
    let place = Place::new();
    let server = Serving::start(&place, &["--listen", "shm://*"], 1);
    let ping = |tuning: &str| {
        fs::write(place.path("tuning"), tuning).unwrap();
        let file = place.path("tuning");
        let tuned = [("PETASOS_TUNING", file.to_str().unwrap())];
        place.run_with(&["ping", &server.urls[0], "-c", "1", "--size", "100000"], &tuned).assert(0)
    };
    assert_eq!(ping("shm.lend_above = 2048\nspin_us = 1\n").err, "");
    // What an older version wrote, too.
    assert_eq!(ping("shm.channel.mp = 99999\nshm.channel.exclusive = 0\n").err, "");
    for (text, line, said) in [
        ("shm.lend_above = 7\n", 1, "shm.lend_above is 7"),
        ("\nshm.channel.mp = 99999999\n", 2, "shm.channel.mp is 99999999"),
        ("x.channel.mp = never\n", 1, "a number, and not `never`"),
        ("x.channel.exclusive = 5\nx.channel.exclusive_from = 6\n", 2, "exclusive_from is 6"),
        ("spin_us = 1\nnonsense\n", 2, "`NAME = NUMBER`"),
    ] {
        let place = format!("{}, line {line}", place.path("tuning").display());
        ping(text).says(&place).says(said).says("petasos tune");
    }
}

/// What the file says of other transports stays, as do comments; what makes no sense does not, and
/// that is said.
#[test]
fn tune_keeps_what_it_does_not_measure() {
    let place = Place::new();
    let file = place.path("tuning");
    let former = "# mine\ntcp.lend_above = 2048\nofi+verbs.channel.exclusive = never\nwhat\n\
                  shm.lend_above = 4096\nspin_us = 99999\nlater = 7\n";
    fs::write(&file, former).unwrap();
    let out = file.to_str().unwrap();
    let tune = ["tune", "--quick", "--transport", "shm", "--out", out, "--json"];
    let ran = place.run(&tune).assert(0).says("line 4 is not").says("not in the new file");
    let report = ran.json();
    let written = fs::read_to_string(&file).unwrap();
    let kept = "# mine\ntcp.lend_above = 2048\nofi+verbs.channel.exclusive = never\n";
    assert!(written.starts_with(kept) && written.contains("\nlater = 7\n"), "{written}");
    assert!(written.contains(&format!("\nspin_us = {}\n", report["spin_us"])), "{written}");
    // The new number, or none where a message is best.
    let lend = match report["transports"][0]["lend_above"].as_u64() {
        Some(bytes) => written.contains(&format!("\nshm.lend_above = {bytes}\n")),
        None => !written.contains("shm.lend_above"),
    };
    assert!(lend && !written.contains("what"), "{written}");
    assert_eq!(written.matches("spin_us").count(), 1, "{written}");
    // A directory is no file, and is not removed.
    fs::create_dir(place.path("directory")).unwrap();
    let directory = place.path("directory");
    let out = directory.to_str().unwrap();
    place.run(&["tune", "--quick", "--transport", "shm", "--out", out]).assert(1).says("directory");
    place.assert_clean();
}

/// A copy of the command, with these programs beside it and in a directory of PATH: each says its
/// name and its arguments.
fn copied(place: &Place, beside: bool, in_path: bool) -> Command {
    let program = |directory: &str| {
        let path = place.path(directory).join("petasos-bench");
        let script = format!("#!/bin/sh\necho {directory} $$\nprintf '%s\\n' \"$@\"\nexit 7\n");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    };
    for (directory, wanted) in [("own", beside), ("path", in_path)] {
        fs::create_dir_all(place.path(directory)).unwrap();
        let _ = fs::remove_file(place.path(directory).join("petasos-bench"));
        if wanted {
            program(directory);
        }
    }
    let petasos = place.path("own/petasos");
    if !petasos.exists() {
        petasos_testing::copy_program(env!("CARGO_BIN_EXE_petasos").as_ref(), &petasos);
    }
    let mut command = Command::new(petasos);
    command.env("PATH", format!("{}:/usr/bin:/bin", place.path("path").display()));
    command
}

/// `petasos bench` becomes another program, which gets all that was said and ends as it likes.
#[test]
fn bench_is_a_program_of_its_own() {
    let place = Place::new();
    for (beside, name) in [(true, "own"), (false, "path")] {
        let mut command = copied(&place, beside, true);
        command.args([
            "--log",
            "info",
            "bench",
            "null",
            "--time",
            "1s",
            "--no-such",
            "-v",
            "--json",
        ]);
        let child = command.stdout(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let ran = Ran::of(&child.wait_with_output().unwrap()).assert(7);
        let mut lines = ran.out.lines();
        // The same process: signals and the terminal are its own.
        assert_eq!(lines.next(), Some(&*format!("{name} {pid}")));
        let words: Vec<&str> = lines.collect();
        assert_eq!(words[..4], ["null", "--time", "1s", "--no-such"]);
        let said: BTreeSet<&str> = words[4..].iter().copied().collect();
        assert_eq!(said, BTreeSet::from(["-v", "--json", "--log=info"]), "{words:?}");
    }
    let help = copied(&place, true, false).args(["bench", "--help"]).output().unwrap();
    assert!(Ran::of(&help).assert(7).out.contains("--help"));
    // Where it is not installed it is said how to get it.
    for words in [&["bench"][..], &["bench", "--help"], &["bench", "null", "--quick"]] {
        let ran = Ran::of(&copied(&place, false, false).args(words).output().unwrap()).assert(6);
        ran.says("petasos-bench").says("cargo install --path tools/bench");
    }
    let ran = copied(&place, false, false).args(["bench", "null", "--json"]).output().unwrap();
    let error: serde_json::Value = serde_json::from_slice(&ran.stderr).unwrap();
    assert_eq!(error["error"]["kind"], "unavailable");
    // Completions go without it, too, and with one that has none.
    for beside in [true, false] {
        let mut command = copied(&place, beside, false);
        let ran = Ran::of(&command.args(["completions", "bash"]).output().unwrap()).assert(0);
        assert!(ran.out.contains("quickstart") && ran.out.contains("bench"), "{ran:?}");
    }
}
