//! Ranks over the provider for libfabric: of one job they reach each other wherever they are, and
//! nothing else reaches them.

use crate::{
    common::{Place, Ran, until, wait},
    hosts::{START, on_a, three},
    mpi::{MPICH, MPICH_5, Mpi, OPEN_MPI, OPEN_MPI_5, allowed, built, check},
    text,
};
use petasos_testing::{Hosts, in_host, skip};
use std::{
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

/// A folder of this place with the provider, as libfabric looks for it.
pub(crate) fn folder(place: &Place) -> PathBuf {
    let folder = place.path("providers");
    let library = std::env::current_exe().unwrap().with_file_name("libpetasos_fi.so");
    assert!(library.exists(), "{} was built with the test", library.display());
    std::fs::create_dir(&folder).unwrap();
    symlink(library, folder.join("libpetasos-fi.so")).unwrap();
    folder
}

/// A command in whose environment libfabric finds the provider.
fn provided(mut command: Command, folder: &Path) -> Command {
    command.env("FI_PROVIDER_PATH", folder).env("FI_LOG_LEVEL", "warn");
    command
}

/// The program of `members.c`, and a directory for it. `None`, with a message, without libfabric.
fn members(place: &Place) -> Option<(String, String)> {
    if !Path::new("/usr/include/rdma/fi_domain.h").exists() {
        skip("libfabric (package libfabric-dev) is not here");
        return None;
    }
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/members.c");
    let (program, names) = (place.path("members"), place.path("names"));
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", source, "-lfabric", "-o"]).arg(&program);
    let compiled = compiler.output().unwrap();
    assert!(compiled.status.success(), "{}", text(&compiled));
    std::fs::create_dir(&names).unwrap();
    Some((program.to_str().unwrap().to_owned(), names.to_str().unwrap().to_owned()))
}

/// A job of members that have met, and wait.
struct Waiting {
    child: Child,
    names: String,
}

impl Waiting {
    fn start(mut command: Command, names: &str, ranks: u32) -> Waiting {
        let files = (command.stdout(Stdio::piped()).stderr(Stdio::piped()), 0..ranks);
        let child = files.0.spawn().unwrap();
        let there = |rank| Path::new(names).join(format!("name-{rank}")).exists();
        until("names of all", || files.1.clone().all(there).then_some(()));
        Waiting { child, names: names.to_owned() }
    }

    fn stop(mut self) -> Ran {
        std::fs::write(Path::new(&self.names).join("stop"), "").unwrap();
        wait(&mut self.child, Duration::from_secs(40));
        Ran::of(&self.child.wait_with_output().unwrap())
    }
}

fn said(output: &Output) -> String {
    assert!(output.status.success() || output.status.code() == Some(3), "{}", text(output));
    text(output)
}

/// Ranks on three hosts; strangers on the third: without a secret, of another job, and of one that
/// claims to be of this.
#[test]
fn a_stranger_is_refused_and_counted() {
    let place = Place::new();
    let Some((program, names)) = members(&place) else { return };
    let Some(hosts) = Hosts::several(3) else { return };
    let folder = folder(&place);
    for encrypt in ["0", "1"] {
        let _ = std::fs::remove_dir_all(&names);
        std::fs::create_dir(&names).unwrap();
        let list = three(&hosts, [2, 1, 1]);
        let options = ["run", "-n", "4", "--hosts", &list, START[0], START[1]];
        let arguments = [&options[..], &[&program, "member", &names]].concat();
        let mut command = on_a(&hosts, &provided(place.command(&arguments), &folder));
        command.env("FI_PETASOS_ENCRYPT", encrypt);
        let job = Waiting::start(command, &names, 4);

        let stranger = |how: &str, secret: Option<&Path>| {
            let mut command = in_host(&hosts.name('c'), program.as_ref());
            command.args([how, &names]);
            if let Some(secret) = secret {
                command.env("FI_PETASOS_SECRET_FILE", secret);
                command.env("FI_PETASOS_HOST", "eth0");
            }
            said(&provided(command, &folder).output().unwrap())
        };
        let secret = place.path("secret");
        std::fs::write(&secret, "another job's secret").unwrap();
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let other = stranger("stranger", None);
        assert!(other.contains("not a name of this job"), "{other}");
        let other = stranger("stranger", Some(&secret));
        assert!(other.contains("not a name of this job"), "{other}");
        assert!(other.contains("of another job"), "{other}");
        let other = stranger("forger", Some(&secret));
        assert!(other.contains("error: ") && !other.contains("reached"), "{other}");
        // A secret that others may read is none; the error says what to do.
        std::fs::set_permissions(&secret, PermissionsExt::from_mode(0o644)).unwrap();
        let other = stranger("forger", Some(&secret));
        assert!(other.contains("not enabled") && other.contains("chmod 600"), "{other}");

        let ended = job.stop().assert(0);
        for rank in 0..4 {
            assert!(ended.out.contains(&format!("rank {rank} met 3")), "{ended:?}");
        }
        assert!(ended.err.contains("connections were refused"), "{ended:?}");
    }
    place.assert_clean();
}

/// Of one user, on one host, where shared memory asks for no secret.
#[test]
fn jobs_of_one_user_are_apart() {
    let place = Place::new();
    let Some((program, names)) = members(&place) else { return };
    let folder = folder(&place);
    let member = ["run", "-n", "2", &program, "member", &names];
    let job = Waiting::start(provided(place.command(&member), &folder), &names, 2);
    let stranger = ["run", "-n", "1", &program, "stranger", &names];
    let other = provided(place.command(&stranger), &folder).output().unwrap();
    let other = said(&other);
    assert!(other.contains("not a name of this job"), "{other}");
    // Nothing listens beyond the host, and nobody else knows where the secret is.
    let script = "grep -c . $FI_PETASOS_SECRET_FILE; stat -c %a $FI_PETASOS_SECRET_FILE; \
                  cat /proc/*/cmdline | tr '\\0' '\\n' | grep -c -f $FI_PETASOS_SECRET_FILE; \
                  echo $PETASOS_NODE_ADDRESS";
    let looked = place.run(&["run", "-n", "1", "sh", "-c", script]).assert(0);
    assert_eq!(looked.out.lines().collect::<Vec<_>>(), ["1", "600", "0", "127.0.0.1"]);
    let ended = job.stop().assert(0);
    assert!(ended.out.contains("rank 0 met 1") && ended.out.contains("rank 1 met 1"), "{ended:?}");
    place.assert_clean();
}

/// `--provider` is all that is needed.
#[track_caller]
fn runs(mpi: &Mpi, ranks: u32, hosts: Option<&Hosts>) {
    let place = Place::new();
    let Some(program) = built(&place, mpi, "over.c") else { return };
    let (program, count) = (program.to_str().unwrap(), ranks.to_string());
    let list = hosts.map(|hosts| three(hosts, [2, 1, 1]));
    let mut options = vec!["run", "-n", &count, "--provider"];
    if let Some(list) = &list {
        options.extend(["--hosts", list, START[0], START[1]]);
    }
    options.push(program);
    let mut command = allowed(place.command(&options));
    command.env("PETASOS_PROVIDER", folder(&place));
    // A choice of the environment's is not this one.
    command.env("FI_PROVIDER", "tcp").env("OMPI_MCA_pml", "ob1");
    let output = match hosts {
        Some(hosts) => on_a(hosts, &command).output().unwrap(),
        None => command.output().unwrap(),
    };
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    check(&said, ranks);
    let over = said.matches("wrong 0, over petasos").count();
    assert!(over == ranks as usize && !said.contains("not used"), "{said}");
    place.assert_clean();
}

#[test]
fn mpich_5_runs_on_three_hosts() {
    let Some(hosts) = Hosts::several(3) else { return };
    runs(&MPICH_5, 4, Some(&hosts));
}

#[test]
fn open_mpi_runs_on_three_hosts() {
    let Some(hosts) = Hosts::several(3) else { return };
    runs(&OPEN_MPI, 4, Some(&hosts));
}

#[test]
fn open_mpi_5_runs_on_three_hosts() {
    let Some(hosts) = Hosts::several(3) else { return };
    runs(&OPEN_MPI_5, 4, Some(&hosts));
}

#[test]
fn all_run_here() {
    for mpi in [&MPICH_5, &OPEN_MPI, &OPEN_MPI_5] {
        runs(mpi, 3, None);
    }
}

/// MPICH 4.0 of Debian is built on UCX: its program runs, and it is said that it does not go this
/// way.
#[test]
fn an_mpi_without_libfabric_is_named() {
    let place = Place::new();
    let Some(program) = built(&place, &MPICH, "over.c") else { return };
    let folder = folder(&place);
    let run = ["run", "-n", "2", "--provider", program.to_str().unwrap()];
    let ran = place.run_with(&run, &[("PETASOS_PROVIDER", folder.to_str().unwrap())]).assert(0);
    let ran = ran.says("the provider is not used: ").says("libmpich.so.12").says("UCX");
    assert_eq!(ran.out.matches("over something else").count(), 2, "{ran:?}");
    let json = place.run_with(
        &["run", "-n", "2", "--provider", "--dry-run", "--json", program.to_str().unwrap()],
        &[("PETASOS_PROVIDER", folder.to_str().unwrap())],
    );
    let json = json.assert(0).says("{\"notice\":\"--provider: the provider is not used: ");
    assert_eq!(json.json()["ranks"].as_array().unwrap().len(), 2);
    place.assert_clean();
}

#[test]
fn the_library_is_found_and_what_is_missing_is_said() {
    let place = Place::new();
    // Installed: PREFIX/bin and PREFIX/lib.
    let (bin, lib) = (place.path("a prefix/bin"), place.path("a prefix/lib"));
    std::fs::create_dir_all(&bin).unwrap();
    let command = bin.join("petasos");
    petasos_testing::copy_program(env!("CARGO_BIN_EXE_petasos").as_ref(), &command);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(&command);
        let output = command.args(arguments).env_remove("PETASOS_PROVIDER").output();
        Ran::of(&output.unwrap())
    };
    for words in [&["provider"][..], &["provider", "--print-path"], &["run", "--provider", "true"]]
    {
        let ran = run(words).assert(6).says("libpetasos-fi.so) is not here");
        assert!(ran.says("scripts/provider").out.is_empty());
    }
    let built = bin.join("libpetasos_fi.so");
    std::fs::write(&built, "").unwrap();
    run(&["provider"]).assert(6).says("libpetasos_fi.so is one, and libfabric looks for the other");
    std::fs::create_dir(&lib).unwrap();
    std::fs::write(lib.join("libpetasos-fi.so"), "").unwrap();
    let path = lib.canonicalize().unwrap();
    let path = path.to_str().unwrap();
    assert_eq!(run(&["provider", "--print-path"]).assert(0).out, format!("{path}\n"));
    let variables = run(&["provider", "--print-variables"]).assert(0).out;
    let script = format!("eval \"{}\"; env", variables.replace('"', "\\\""));
    let set = Command::new("sh").args(["-c", &script]).output().unwrap();
    let set = String::from_utf8(set.stdout).unwrap();
    let json = run(&["provider", "--json"]).assert(0).json();
    assert_eq!((&json["path"], json["variables"].as_object().unwrap().len()), (&path.into(), 9));
    for (name, value) in json["variables"].as_object().unwrap() {
        assert!(set.contains(&format!("{name}={}\n", value.as_str().unwrap())), "{name}: {set}");
    }
    assert!(run(&["provider"]).assert(0).out.contains("MPIR_CVAR_CH4_NETMOD"));
    // What the user gives goes before.
    let words = ["run", "--provider", "-x", "FI_PROVIDER=tcp", "sh", "-c"];
    let mut job = Command::new(&command);
    job.args(words).arg("echo $FI_PROVIDER $OMPI_MCA_mtl").env("TMPDIR", place.path("tmp"));
    let said = Ran::of(&job.env_remove("XDG_RUNTIME_DIR").output().unwrap()).assert(0);
    assert_eq!(said.out, "tcp ofi\n");
    let nowhere = place.run_with(&["provider"], &[("PETASOS_PROVIDER", "/nowhere")]).assert(6);
    nowhere.says("PETASOS_PROVIDER is /nowhere");
    place.assert_clean();
}
