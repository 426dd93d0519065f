//! Trees there and back.

use crate::{
    common::{NETWORKS, Place, present},
    export::{Export, TRANSPORTS},
    tree::{assert_same, hidden, make},
};
use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Command,
    time::Duration,
};

#[test]
fn there_and_back() {
    let place = Place::new();
    make(&place.path("src"), 2000, 64 << 20, 1);
    for transport in TRANSPORTS {
        let export = Export::start(&place, transport, &[]);
        let (there, back) = (format!("@/{transport}"), format!("back-{transport}"));
        let put = export.run(&place, &["put", "--fifos", "--json", "src", &there]).assert(0);
        let summary = &put.json()["summary"];
        assert_eq!(summary["failed"], 0, "{put:?}");
        assert_eq!(summary["hard_links"], 1);
        assert_eq!(summary["fifos"], 1);
        assert!(summary["bytes"].as_u64().unwrap() > 64 << 20);
        export.run(&place, &["get", "--fifos", "-q", &there, &back]).assert(0);
        assert_same(&place.path("src"), &place.path("exp").join(transport));
        assert_same(&place.path("src"), &place.path(&back));
        assert_eq!(export.staged(), 0);
        assert_eq!(hidden(&place.path(&back)), Vec::<std::path::PathBuf>::new());
        // Once more, over what is there, and with hashes.
        fs::rename(place.path("src"), place.path(transport)).unwrap();
        export.run(&place, &["put", "--fifos", "--checksum", "-q", transport, "@"]).assert(0);
        fs::rename(place.path(transport), place.path("src")).unwrap();
        export.run(&place, &["get", "--fifos", "--checksum", "-q", &there, "."]).assert(0);
        fs::rename(place.path(transport), place.path(&format!("again-{transport}"))).unwrap();
        assert_same(&place.path("src"), &place.path(&format!("again-{transport}")));
        let same = export.run(&place, &["sync", "--fifos", "--json", "src", &there]).assert(0);
        assert_eq!(same.json()["summary"]["files"], 0);
        assert_eq!(same.json()["summary"]["bytes"], 0);
        assert_eq!(export.staged(), 0);
    }
    place.assert_clean();
}

#[test]
fn over_other_networks() {
    for network in present(&NETWORKS) {
        let place = Place::new();
        make(&place.path("src"), 200, 6 << 20, 2);
        let mut export = Export::at(&place, &format!("{network}://*"), &[]);
        export.run(&place, &["put", "--fifos", "--checksum", "-q", "src", "@/there"]).assert(0);
        export.run(&place, &["get", "--fifos", "--checksum", "-q", "@/there", "back"]).assert(0);
        assert_same(&place.path("src"), &place.path("exp/there"));
        assert_same(&place.path("src"), &place.path("back"));
        let listed = export.run(&place, &["ls", "--json", "@/there"]).assert(0);
        assert!(listed.out.lines().count() > 1, "{network}: {listed:?}");
        assert_eq!(export.staged(), 0);
        assert!(export.interrupt().is_some(), "{network}: it ends by itself");
        place.assert_clean();
    }
}

#[test]
fn what_changes_while_it_is_read_is_said_and_the_rest_goes_on() {
    let place = Place::new();
    fs::create_dir(place.path("src")).unwrap();
    fs::write(place.path("src/log"), vec![7; 24 << 20]).unwrap();
    fs::write(place.path("src/other"), "other").unwrap();
    let export = Export::start(&place, "shm", &[]);
    let log = place.path("src/log");
    let writer = std::thread::spawn(move || {
        use std::io::Write;
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(40));
            let mut log = fs::OpenOptions::new().append(true).open(&log).unwrap();
            log.write_all(b"one line more\n").unwrap();
        }
    });
    let put = export.run(&place, &["put", "--rate", "32MiB", "src", "@/there"]).assert(1);
    put.says("log: it changed while it was read").says("1 item was not transferred");
    writer.join().unwrap();
    assert_eq!(fs::read(export.directory.join("there/other")).unwrap(), b"other");
    assert!(!export.directory.join("there/log").exists());
    assert_eq!(export.staged(), 0);
}

/// A server whose disk is full: a small file system in a mount namespace of its own.
#[test]
fn a_full_disk() {
    let place = Place::new();
    fs::create_dir_all(place.path("src")).unwrap();
    fs::create_dir(place.path("exp")).unwrap();
    fs::write(place.path("src/large"), vec![1; 24 << 20]).unwrap();
    for number in 0..20 {
        fs::write(place.path(&format!("src/small{number}")), vec![2; 1000]).unwrap();
    }
    let script = "mount -t tmpfs -o size=8m none exp && exec \"$@\"";
    let mut shell = Command::new("unshare");
    shell.args(["-rm", "sh", "-c", script, "sh"]);
    let works = Command::new("unshare")
        .args(["-rm", "sh", "-c", "mount -t tmpfs none /tmp"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !works {
        return petasos_testing::skip("no mount namespaces here");
    }
    let at = ["--listen", "tcp://127.0.0.1:0", "--open"];
    let serve = place.command(&[&["forward", "serve", "exp"][..], &at].concat());
    shell.arg(serve.get_program()).args(serve.get_args());
    shell.envs(serve.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.current_dir(place.directory.path());
    let export = Export::of(shell, place.path("exp"));
    let put = export.run(&place, &["put", "src", "@/there"]).assert(1);
    put.says("large").says("No space left on device").says("try: free some space there");
    let list = export.run(&place, &["ls", "--json", "@/there"]).assert(0);
    assert_eq!(list.out.lines().count(), 20, "{list:?}");
    // What could not be completed takes no room any more.
    fs::write(place.path("src/fits"), vec![3; 6 << 20]).unwrap();
    export.run(&place, &["put", "src/fits", "@/there"]).assert(0);
}

#[test]
fn a_tree_made_like_another() {
    let place = Place::new();
    make(&place.path("src"), 200, 6 << 20, 3);
    let export = Export::start(&place, "shm", &[]);
    let there = place.path("exp/there");
    let arguments = ["sync", "--fifos", "--delete", "--json", "src", "@/there"];
    export.run(&place, &arguments).assert(0);
    assert_same(&place.path("src"), &there);
    // A file in place of a directory, a directory in place of a file, and what is too much.
    fs::remove_file(there.join("large")).unwrap();
    fs::create_dir_all(there.join("large/a/b")).unwrap();
    fs::set_permissions(there.join("closed"), Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(there.join("closed/in it")).unwrap();
    fs::remove_dir(there.join("closed")).unwrap();
    fs::write(there.join("closed"), "a file").unwrap();
    fs::create_dir_all(there.join("extra/deep")).unwrap();
    fs::write(there.join("extra/deep/file"), "x").unwrap();
    fs::write(there.join("keep.o"), "x").unwrap();
    let dry = export.run(&place, &["sync", "--delete", "-n", "src", "@/there"]).assert(0);
    assert!(
        dry.out.contains("write  large") && dry.out.contains("delete extra/deep/file"),
        "{dry:?}"
    );
    assert!(there.join("extra").exists());
    let mut arguments = arguments.to_vec();
    arguments.extend(["--exclude", "*.o"]);
    let done = export.run(&place, &arguments).assert(0);
    let last = done.out.lines().last().unwrap();
    let last: serde_json::Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["summary"]["deleted"], 3, "{done:?}");
    assert!(there.join("keep.o").exists());
    fs::remove_file(there.join("keep.o")).unwrap();
    export.run(&place, &["sync", "--fifos", "--delete", "-q", "src", "@/there"]).assert(0);
    assert_same(&place.path("src"), &there);
    // Only the mode of one differs; the contents of another, of the same length and time.
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().mode() & 0o7777;
    fs::set_permissions(there.join("sparse"), Permissions::from_mode(0o600)).unwrap();
    let large = fs::metadata(there.join("large")).unwrap();
    let mut data = fs::read(there.join("large")).unwrap();
    data[5_000_000] ^= 1;
    fs::write(there.join("large"), data).unwrap();
    let file = fs::File::options().write(true).open(there.join("large")).unwrap();
    file.set_modified(large.modified().unwrap()).unwrap();
    drop(file);
    let quick = export.run(&place, &["sync", "--fifos", "--json", "src", "@/there"]).assert(0);
    assert_eq!(quick.json()["summary"]["files"], 0, "{quick:?}");
    assert_eq!(mode(&there.join("sparse")), mode(&place.path("src/sparse")));
    let exact = export
        .run(&place, &["sync", "--fifos", "--checksum", "--json", "src", "@/there"])
        .assert(0);
    assert_eq!(exact.json()["summary"]["files"], 1, "{exact:?}");
    assert_same(&place.path("src"), &there);
    // And the other way.
    fs::create_dir_all(place.path("back/extra")).unwrap();
    fs::create_dir(place.path("back/sparse")).unwrap();
    fs::write(place.path("back/closed"), "a file").unwrap();
    for _ in 0..2 {
        export.run(&place, &["sync", "--fifos", "--delete", "-q", "@/there", "back"]).assert(0);
        assert_same(&place.path("src"), &place.path("back"));
    }
}

#[test]
fn a_bucket_instead_of_a_directory() {
    let place = Place::new();
    fs::create_dir_all(place.path("src/a")).unwrap();
    fs::create_dir(place.path("bucket")).unwrap();
    fs::write(place.path("src/a/small"), "small").unwrap();
    fs::write(place.path("src/large"), vec![5; 9 << 20]).unwrap();
    let url = format!("file://{}", place.path("bucket").display());
    let serve = ["forward", "serve", "--object-store", &url, "--listen", "shm://*"];
    if !cfg!(feature = "object-store") {
        place.run(&serve).assert(6).says("--features petasos-cli/object-store");
        return petasos_testing::skip("object stores are not built in");
    }
    let export = Export::of(place.command(&serve), place.path("bucket"));
    export.run(&place, &["put", "-q", "src", "@/there"]).assert(0);
    export.run(&place, &["get", "-q", "@/there", "back"]).assert(0);
    for name in ["a/small", "large"] {
        let read = |tree: &str| fs::read(place.path(tree).join(name)).unwrap();
        assert!(read("src") == read("back"), "{name}");
    }
    let again = export.run(&place, &["sync", "--json", "src", "@/there"]).assert(0);
    assert_eq!(again.json()["summary"]["bytes"], 0, "{again:?}");
}
