//! Plug-ins that are none, or of another kind, or that break the rules: each is refused with an
//! error that names the file and says what is wrong.

use petasos_fabric::{Address, Endpoint, Event, LostReason, Time};
use petasos_plugin::{Found, Plugin, listed, load};
use petasos_testing::{Pretended, again, copy_program, is_root, role, skip};
use std::{ffi::OsString, fs, os::unix::fs::PermissionsExt, path::Path, time::Duration};

/// A plug-in of which nothing is ever heard, if it is not changed by these lines.
fn plugin(changes: &str) -> Option<Pretended> {
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/include/petasos_transport.h");
    let quiet = include_str!("quiet.c");
    Pretended::of(&format!("#include <{header}>\n{changes}\n{quiet}"))
}

fn list(files: &[&Path]) -> OsString {
    files.iter().map(|file| file.as_os_str()).collect::<Vec<_>>().join(&OsString::from(":"))
}

/// What is said of a file that is not loaded.
#[track_caller]
fn refused(file: &Path) -> String {
    let Found { plugins, failures, .. } = load(file.as_os_str(), &[]);
    assert!(plugins.is_empty(), "{} was loaded", file.display());
    assert_eq!(failures.len(), 1, "{}", file.display());
    assert_eq!(failures[0].file, file);
    let text = failures[0].to_string();
    assert!(text.starts_with(file.to_str().unwrap()), "{text}");
    text
}

/// What a plug-in that was loaded is.
fn loaded(file: &Path) -> Plugin {
    let Found { plugins, failures, .. } = load(file.as_os_str(), &[]);
    assert!(failures.is_empty(), "{}", failures[0]);
    plugins[0]
}

#[test]
fn files_that_are_no_plug_in() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("libpetasos_transport_text.so");
    fs::write(&text, "not a library").unwrap();
    assert!(refused(&text).contains("the system does not load it"), "{}", refused(&text));
    assert!(refused(&text).contains("ELF") || refused(&text).contains("short"));
    // By its directory, in which there are others.
    fs::write(directory.path().join("libc.so"), "of another kind").unwrap();
    let found = load(directory.path().as_os_str(), &[]);
    let files: Vec<_> = found.failures.iter().map(|failure| &failure.file).collect();
    assert_eq!(files, [&text]);

    let missing = directory.path().join("missing.so");
    assert!(refused(&missing).contains("No such file"), "{}", refused(&missing));
    assert!(refused(Path::new("here.so")).contains("begin with /"));
    assert!(load("::".as_ref(), &[]).failures.is_empty());
}

#[test]
fn tables_that_are_not_of_this_version() {
    for (changes, says) in [
        (
            "#define petasos_transports petasos_transports_of_another_name",
            "no `petasos_transports`",
        ),
        ("#define MAGIC {'E', 'L', 'F'}", "is not that of a transport"),
        ("#define VERSION 2", "version 2 of the interface, and this program has version 1"),
        ("#define SIZE 64", "64 bytes, at least 128 are needed"),
        ("#define SIZE 0", "0 bytes"),
        ("#define SIZE sizeof(struct entry) + 4", "132 bytes"),
        ("#define COUNT 0", "0 transports"),
        ("#define COUNT 1000000", "1000000 transports"),
        ("#define TABLES 0", "1 transports at 0x0"),
        ("#define TABLES (const void *)((const char *)&entry + 1)", "1 transports at"),
        ("#define ARM 0", "no function `arm`"),
        ("#define SCHEME \"Quiet\"", "`Quiet` is no scheme"),
        ("#define SCHEME \"\"", "`` is no scheme"),
        ("#define SCHEME \"a+b\"", "`a+b` is no scheme"),
        ("#define ANY \"loud://*\"", "`loud://*`, is none of quiet://"),
        ("#define ANY \"\"", "is none of quiet://"),
        ("#define TITLE \"\\x1b[2J\"", "its title is no text"),
        ("#define TITLE \"\\xff\"", "its title is no text"),
    ] {
        let Some(library) = plugin(changes) else { return };
        let text = refused(library.path());
        assert!(text.contains(says), "{changes}: {text}");
    }
}

#[test]
fn a_later_table_of_this_version_is_taken() {
    let Some(library) = plugin("#define MORE") else { return };
    let quiet = loaded(library.path());
    assert_eq!((quiet.scheme, quiet.any), ("quiet", "quiet://*"));
    assert_eq!(quiet.title, "nothing is ever heard");
    let endpoint = quiet.open(&"quiet://*".parse().unwrap(), None).unwrap();
    assert_eq!(endpoint.address().as_str(), "quiet://here");
    // One behind the other.
    let Some(library) = plugin("#define MORE\n#define COUNT 2") else { return };
    let found = load(library.path().as_os_str(), &[]);
    let schemes: Vec<_> = found.plugins.iter().map(|plugin| plugin.scheme).collect();
    assert_eq!(schemes, ["quiet", "second"]);
}

#[test]
fn a_scheme_has_one_transport() {
    let (Some(first), Some(second)) = (plugin(""), plugin("")) else { return };
    let found = load(&list(&[first.path(), second.path(), first.path()]), &[]);
    assert_eq!(found.plugins.len(), 1);
    assert_eq!(found.plugins[0].file, first.path());
    let text = found.failures[0].to_string();
    let before = format!("quiet was loaded from {} before", first.path().display());
    assert!(text.contains(&before), "{text}");
    assert_eq!(found.failures.len(), 1, "the same file again is no failure");
    let found = load(first.path().as_os_str(), &["tcp", "quiet"]);
    assert!(found.failures[0].to_string().contains("has a transport quiet of its own"));
}

#[test]
fn endpoints_that_are_not_opened() {
    let address: Address = "quiet://x".parse().unwrap();
    for (changes, says) in [
        ("#define OPEN say(why, \"no device\"); return PETASOS_ERROR;", "quiet://x: no device"),
        ("#define OPEN say(why, \"no\\ndevice\"); return PETASOS_ERROR;", "quiet://x: no device"),
        ("#define OPEN return PETASOS_ERROR;", "gives no reason"),
        ("#define OPEN say(why, \"bug 7\"); return PETASOS_PANICKED;", "bug 7"),
        ("#define OPEN return 17;", "its open returned 17"),
        ("#define OPEN return PETASOS_LATER;", "its open returned 1,"),
        ("#define OPEN why->len = 100000; return PETASOS_ERROR;", "a text has 100000 bytes"),
        ("#define OPEN opened->endpoint = 0; return PETASOS_OK;", "returned no endpoint"),
        ("#define OPEN opened->fd = 999999; return PETASOS_OK;", "999999 is no descriptor"),
        ("#define OPEN opened->fd = -7; return PETASOS_OK;", "-7 is no descriptor"),
        ("#define OPEN opened->max_packet = 64; return PETASOS_OK;", "packets of 64 bytes"),
        ("#define OPEN opened->max_packet = -1; return PETASOS_OK;", "packets of 4294967295 bytes"),
        ("#define ADDRESS \"loud://here\"", "its address is loud://here"),
        ("#define ADDRESS \"quiet here\"", "its address: "),
    ] {
        let Some(library) = plugin(changes) else { return };
        let quiet = loaded(library.path());
        let error = quiet.open(&address, None).err().expect(changes).to_string();
        assert!(error.contains(says), "{changes}: {error}");
        let names = ["quiet://", library.path().to_str().unwrap()];
        assert!(names.iter().any(|name| error.contains(name)), "{changes}: {error}");
    }
    let Some(library) = plugin("") else { return };
    let error = loaded(library.path()).open(&"tcp://x".parse().unwrap(), None).err().unwrap();
    assert!(error.to_string().contains("begin with quiet://"), "{error}");
}

/// What an endpoint that runs says of a plug-in that breaks the rules then.
#[test]
fn endpoints_that_fail() {
    for (changes, says) in [
        ("#define POLL return 9;", "its poll returned 9"),
        ("#define POLL *count = capacity + 1; return PETASOS_OK;", "65 events, not at most 64"),
        ("#define POLL say(why, \"bug 8\"); return PETASOS_PANICKED;", "bug 8"),
        ("#define POLL say(why, \"it burns\"); return PETASOS_ERROR;", "it burns"),
        ("#define CONNECT return PETASOS_CLOSED;", "its connect returned 2"),
        // Its `receive` says more than there is room for.
        (
            "#define CONNECT return PETASOS_OK;\n\
             #define POLL ready->line = 0; ready->what = 1; *count = 1; return PETASOS_OK;",
            "a packet of 4096 bytes has 4097",
        ),
    ] {
        let Some(library) = plugin(changes) else { return };
        let mut endpoint =
            loaded(library.path()).open(&"quiet://x".parse().unwrap(), None).unwrap();
        let there = "quiet://there".parse().unwrap();
        let peer = endpoint.resolve(&there, Duration::from_secs(3600)).unwrap();
        let mut events = Vec::new();
        for pass in 1..100 {
            endpoint.progress(Time(pass * 1_000_000), 64, &mut events);
        }
        let [Event::PeerLost { peer: lost, reason: LostReason::System(why) }] = &events[..] else {
            panic!("{changes}: {events:?}");
        };
        assert_eq!(*lost, peer);
        assert!(why.contains(says), "{changes}: {why}");
        assert!(why.contains(library.path().to_str().unwrap()), "{changes}: {why}");
        // It is not called again.
        let again = endpoint.resolve(&there, Duration::from_secs(1)).unwrap();
        events.clear();
        endpoint.progress(Time(200_000_000), 64, &mut events);
        assert!(
            matches!(events[..], [Event::PeerLost { peer, .. }] if peer == again),
            "{changes}: {events:?}"
        );
    }
}

/// Lines and kinds of events that there are none of are passed over.
#[test]
fn events_of_nothing() {
    let changes = "#define POLL ready->line = 77; ready->what = -1; *count = 1; return PETASOS_OK;";
    let Some(library) = plugin(changes) else { return };
    let mut endpoint = loaded(library.path()).open(&"quiet://x".parse().unwrap(), None).unwrap();
    let (there, patience) = ("quiet://there".parse().unwrap(), Duration::from_millis(20));
    endpoint.resolve(&there, patience).unwrap();
    let mut events = Vec::new();
    for pass in 1..100 {
        endpoint.progress(Time(pass * 1_000_000), 64, &mut events);
    }
    let unreachable = |event: &Event| {
        matches!(event, Event::PeerLost { reason: LostReason::Unreachable(after, _), .. }
            if *after == patience)
    };
    assert!(matches!(&events[..], [event] if unreachable(event)), "{events:?}");
}

#[test]
fn the_variable_is_not_for_programs_with_more_rights() {
    if role().is_some() {
        println!("as {}", rustix::process::geteuid().as_raw());
        println!("listed: {:?}", listed());
        return;
    }
    let test = "the_variable_is_not_for_programs_with_more_rights";
    let mut plain = again(test, "plain").env("PETASOS_TRANSPORTS", "/x.so").start();
    assert_eq!(plain.line("listed: "), "Some(\"/x.so\")");
    let mut plain = again(test, "plain").env("PETASOS_TRANSPORTS", "").start();
    assert_eq!(plain.line("listed: "), "None");
    if !is_root() {
        return skip("only root makes a program of another user");
    }
    // Beside the program: the directory for temporary files may be one in which this bit is void.
    let program = std::env::current_exe().unwrap();
    let copy = program.with_file_name(format!("petasos-set-user-{}", std::process::id()));
    copy_program(&program, &copy);
    std::os::unix::fs::chown(&copy, Some(65534), None).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o4755)).unwrap();
    let output = std::process::Command::new(&copy)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env("PETASOS_TEST_ROLE", "other")
        .env("PETASOS_TRANSPORTS", "/x.so")
        .output();
    fs::remove_file(&copy).unwrap();
    let text = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(text.contains("as 65534"), "{text}");
    assert!(text.contains("listed: None"), "{text}");
}
