//! Ranks over the provider for libfabric: of one job they reach each other wherever they are, and
//! nothing else reaches them.

use crate::{
    common::{Place, Ran, until, wait},
    hosts::{START, on_a, three},
    mpi::{MPICH_5, Mpi, OPEN_MPI, OPEN_MPI_5, allowed, built, check},
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

/// What each MPI needs to use the provider.
fn chosen(mut command: Command) -> Command {
    command.envs([("FI_PROVIDER", "petasos"), ("OMPI_MCA_pml", "cm"), ("OMPI_MCA_mtl", "ofi")]);
    command.env("OMPI_MCA_mtl_ofi_provider_include", "petasos");
    command.env("MPIR_CVAR_CH4_NETMOD", "ofi");
    allowed(command)
}

#[track_caller]
fn runs_on_three_hosts(mpi: &Mpi) {
    let place = Place::new();
    let Some(program) = built(&place, mpi, "over.c") else { return };
    let Some(hosts) = Hosts::several(3) else { return };
    let list = three(&hosts, [2, 1, 1]);
    let program = program.to_str().unwrap();
    let options = ["run", "-n", "4", "--hosts", &list, START[0], START[1], program];
    let command = chosen(provided(place.command(&options), &folder(&place)));
    let output = on_a(&hosts, &command).output().unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    check(&said, 4);
    assert_eq!(said.matches("wrong 0, over petasos").count(), 4, "{said}");
    place.assert_clean();
}

#[test]
fn mpich_5_runs_on_three_hosts() {
    runs_on_three_hosts(&MPICH_5);
}

#[test]
fn open_mpi_runs_on_three_hosts() {
    runs_on_three_hosts(&OPEN_MPI);
}

#[test]
fn open_mpi_5_runs_on_three_hosts() {
    runs_on_three_hosts(&OPEN_MPI_5);
}
