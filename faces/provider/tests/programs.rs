//! Programs of C, which know libfabric alone, over the provider: see `program.c` and `faults.c`.

use petasos_testing::{Hosts, in_host};
use std::{
    env,
    ffi::CStr,
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
};

/// Where the programs are, and a folder with the provider, for libfabric to find.
struct Made {
    all: tempfile::TempDir,
    folder: PathBuf,
}

impl Made {
    fn path(&self, name: &str) -> PathBuf {
        self.all.path().join(name)
    }

    /// A file with a secret, of this name.
    fn secret(&self, name: &str) -> String {
        let secret = self.path(name);
        fs::write(&secret, "the secret of this test").expect("a file");
        fs::set_permissions(&secret, Permissions::from_mode(0o600)).expect("a mode");
        secret.to_str().expect("text").to_owned()
    }
}

/// Compiles them once. `None`, with a message, where libfabric is not installed.
fn made() -> Option<&'static Made> {
    static MADE: OnceLock<Option<Made>> = OnceLock::new();
    let make = || {
        if !Path::new("/usr/include/rdma/fi_domain.h").exists() {
            petasos_testing::skip("libfabric (package libfabric-dev) is not here");
            return None;
        }
        let all = tempfile::tempdir().expect("a directory");
        for name in ["program", "faults"] {
            let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name);
            let compiled = Command::new("cc")
                .args(["-O1", "-Wall", "-Wextra", "-Werror", "-rdynamic", "-o"])
                .args([&all.path().join(name), &source.with_extension("c")])
                .arg("-lfabric")
                .status();
            assert!(compiled.expect("a C compiler").success(), "it compiles");
        }
        let folder = all.path().join("providers");
        fs::create_dir(&folder).expect("a directory");
        let test = env::current_exe().expect("a test binary has a path");
        let library = test.with_file_name("libpetasos_fi.so");
        assert!(library.exists(), "{} was built with the test", library.display());
        symlink(library, folder.join("libpetasos-fi.so")).expect("a link");
        Some(Made { all, folder })
    };
    MADE.get_or_init(make).as_ref()
}

/// Runs this command, which is one of the programs, with the name of a test.
fn run_by(mut command: Command, of: &Made, what: &str, settings: &[(&str, &str)]) -> String {
    command.arg(what).env("FI_PROVIDER_PATH", &of.folder);
    command.env("FI_PROVIDER", "petasos").envs(settings.iter().copied());
    let output: Output = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && output.stdout == b"ok\n", "{what}: {said}");
    said
}

fn run(what: &str, settings: &[(&str, &str)]) -> String {
    let Some(of) = made() else { return String::new() };
    run_by(Command::new(of.path("program")), of, what, settings)
}

fn fault(what: &str, settings: &[(&str, &str)]) -> String {
    let Some(of) = made() else { return String::new() };
    run_by(Command::new(of.path("faults")), of, what, settings)
}

/// The two processes are on two hosts, and know a secret.
fn run_over_tcp(program: &str, all: &[&str]) {
    let Some(of) = made() else { return };
    let Some(hosts) = Hosts::make() else { return };
    let secret = of.secret(&format!("secret-{program}"));
    let other = format!("/var/run/netns/{}", hosts.name('b'));
    let settings = [
        ("SECOND_HOST", &*other),
        ("FI_PETASOS_SECRET_FILE", &secret),
        ("FI_PETASOS_HOST", "10.77.0.0/24"),
        // Where the second one is.
        ("NODE", "10.77.0.2"),
        ("FORMAT", "own"),
    ];
    for what in all {
        run_by(in_host(&hosts.name('a'), &of.path(program)), of, what, &settings);
    }
}

#[test]
fn over_tcp() {
    run_over_tcp("program", &["messages", "matching", "access", "fence", "ends", "places"]);
}

#[test]
fn over_tcp_a_peer_that_is_killed_or_stopped() {
    run_over_tcp("program", &["killed", "stopped"]);
    run_over_tcp("faults", &["busy", "halted"]);
}

#[test]
fn a_peer_that_is_killed_in_the_middle() {
    fault("busy", &[]);
    fault("busy", &[("PETASOS_SHM_NO_CMA", "1")]);
}

#[test]
fn a_peer_that_is_stopped_in_the_middle() {
    fault("halted", &[("FI_LOG_LEVEL", "warn")]);
    fault("halted", &[("PETASOS_SHM_NO_CMA", "1")]);
}

/// What is told names the limit.
#[test]
fn no_descriptors_are_left() {
    let said = fault("descriptors", &[]);
    if made().is_some() {
        assert!(said.contains("80 descriptors") && said.contains("ulimit -n"), "{said}");
    }
}

#[test]
fn more_memory_is_registered_than_an_endpoint_takes() {
    fault("registered", &[]);
}

/// Nothing of the provider's is in `/dev/shm`, which is full on many a machine of containers.
#[test]
fn shared_memory_of_files_is_full() {
    let Some(of) = made() else { return };
    if !petasos_testing::is_root() {
        return petasos_testing::skip("mounting needs root");
    }
    for what in ["messages", "access"] {
        let script = "mount -t tmpfs -o size=4k full /dev/shm && \
                      ! head -c 8192 /dev/zero > /dev/shm/full 2>/dev/null && exec \"$0\" \"$1\"";
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(of.path("program"));
        run_by(command, of, what, &[("PETASOS_SHM_NO_CMA", "1")]);
    }
}

#[test]
fn messages() {
    run("messages", &[]);
}

#[test]
fn matching() {
    run("matching", &[]);
}

#[test]
fn memory() {
    run("access", &[]);
}

/// By offsets, and keys that the program chooses.
#[test]
fn memory_by_number() {
    run("access", &[("SCALABLE", "1")]);
}

/// The owner serves all accesses.
#[test]
fn memory_that_the_owner_serves() {
    run("access", &[("PETASOS_SHM_NO_CMA", "1")]);
}

#[test]
fn atomics_in_order() {
    run("ordered", &[("SCALABLE", "1")]);
    run("ordered", &[("SCALABLE", "1"), ("PETASOS_SHM_NO_CMA", "1")]);
}

#[test]
fn fences() {
    run("fence", &[]);
}

#[test]
fn fences_where_the_owner_serves() {
    run("fence", &[("PETASOS_SHM_NO_CMA", "1")]);
}

/// What programs are told that choose by it: `docs/mpi.md` says no more.
#[test]
fn what_fi_info_shows() {
    let Some(of) = made() else { return };
    let mut command = Command::new("fi_info");
    command.args(["-p", "petasos", "-v"]).env("FI_PROVIDER_PATH", &of.folder);
    let Ok(output) = command.output() else {
        return petasos_testing::skip("fi_info (package libfabric-bin) is not here");
    };
    let said = String::from_utf8(output.stdout).expect("text");
    let line = |from: &str, name: &str| {
        let part = said.split_once(from).expect("a part").1;
        let found = part.lines().find_map(|line| line.trim().strip_prefix(name));
        found.unwrap_or_else(|| panic!("{name}: {said}")).trim().to_owned()
    };
    let set = |text: String| {
        let mut all: Vec<_> =
            text.trim_matches(['[', ' ', ']']).split(", ").map(str::to_owned).collect();
        all.sort();
        all.join(" ")
    };
    let caps = "FI_ATOMIC FI_DIRECTED_RECV FI_FENCE FI_LOCAL_COMM FI_MSG FI_MULTI_RECV FI_READ \
                FI_RECV FI_REMOTE_COMM FI_REMOTE_READ FI_REMOTE_WRITE FI_RMA FI_SEND FI_SOURCE \
                FI_TAGGED FI_WRITE";
    assert_eq!(set(line("fi_info:", "caps:")), caps);
    for side in ["fi_tx_attr:", "fi_rx_attr:"] {
        // Neither accesses nor atomics are in order: a fence is there for that.
        assert_eq!(set(line(side, "msg_order:")), "FI_ORDER_SAS", "{side}");
        assert_eq!(set(line(side, "comp_order:")), "FI_ORDER_NONE", "{side}");
    }
    let transmit = set(line("fi_tx_attr:", "caps:"));
    assert!(transmit.contains("FI_FENCE") && !transmit.contains("FI_RECV"), "{transmit}");
    assert!(!transmit.contains("COMM"), "of the domain: {transmit}");
    let receive = set(line("fi_rx_attr:", "caps:"));
    assert!(!receive.contains("FI_FENCE") && receive.contains("FI_MULTI_RECV"), "{receive}");
    assert!(!receive.contains("COMM"), "of the domain: {receive}");
    for (name, value) in [
        ("inject_size:", "4096"),
        ("iov_limit:", "8"),
        ("cq_data_size:", "8"),
        ("type:", "FI_EP_RDM"),
        ("threading:", "FI_THREAD_SAFE"),
        ("data_progress:", "FI_PROGRESS_MANUAL"),
        ("resource_mgmt:", "FI_RM_ENABLED"),
    ] {
        assert_eq!(line("fi_info:", name), value, "{name}");
    }
}

#[test]
fn truncated_and_cancelled() {
    run("ends", &[]);
}

#[test]
fn a_peer_that_is_killed() {
    run("killed", &[]);
}

#[test]
fn a_peer_that_is_stopped() {
    run("stopped", &[("FI_LOG_LEVEL", "warn")]);
}

#[test]
fn a_thread_of_its_own() {
    run("automatic", &[]);
}

/// Hosts and ports in the place of names that were exchanged, in each format of addresses.
#[test]
fn peers_by_host_and_port() {
    let Some(of) = made() else { return };
    let secret = of.secret("secret-of-places");
    for format in ["own", "text", "internet"] {
        let settings = [("FORMAT", format), ("NODE", "127.0.0.1")];
        run("places", &[&settings[..], &[("FI_PETASOS_SECRET_FILE", &secret)]].concat());
    }
}

#[test]
fn what_is_refused() {
    run("refusals", &[]);
}

#[test]
fn no_secret() {
    let said = run("secret", &[("FI_LOG_LEVEL", "warn")]);
    // By libfabric's own log.
    if made().is_some() {
        for what in [
            "takes a secret",
            "by hosts and ports takes a secret",
            "1 of 1 peers are named by hosts",
            "FI_PETASOS_HOST is nowhere: ",
            "FI_PETASOS_SECRET_FILE: ",
        ] {
            assert!(said.contains("petasos") && said.contains(what), "{what}: {said}");
        }
    }
}

/// A libfabric whose structures are not known here is not given any.
#[test]
fn a_libfabric_of_the_future() {
    let said = run("future", &[("FUTURE", "1"), ("FI_LOG_LEVEL", "warn")]);
    if made().is_some() {
        assert!(
            said.contains("this is libfabric 3.1") && said.contains("a newer petasos"),
            "{said}"
        );
    }
}

/// What libfabric asks before it takes a provider: 1.17 wants 1.3 or later, and each version no
/// less than the interface that the program asks for.
#[test]
fn what_versions_find() {
    // SAFETY: the table lives for ever.
    let table = unsafe { &*petasos_fi::fi_prov_ini() };
    assert!(table.fi_version >= 2 << 16, "{:x}", table.fi_version);
    // SAFETY: ends with a zero.
    assert_eq!(unsafe { CStr::from_ptr(table.name) }, c"petasos");
    let mut found = std::ptr::null_mut();
    let null = std::ptr::null();
    // SAFETY: no hints, and a place for a description, of which the one that is given stays.
    unsafe {
        assert_eq!((table.getinfo)(2 << 16 | 5, null, null, 0, null.cast(), &mut found), 0);
        assert_eq!((*(*found).fabric_attr).api_version, 2 << 16 | 5);
        let nothing = (table.getinfo)(2 << 16, c"host".as_ptr(), null, 0, null.cast(), &mut found);
        assert_eq!(nothing, -libc::ENODATA);
        assert_eq!(
            (table.getinfo)(2 << 16, null, null, 0, null.cast(), std::ptr::null_mut()),
            -libc::EINVAL
        );
        assert_eq!(
            (table.fabric)(std::ptr::null_mut(), std::ptr::null_mut(), std::ptr::null_mut()),
            -libc::EINVAL
        );
    }
}
