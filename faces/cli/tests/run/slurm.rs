//! Slurm: jobs within its allocations, and programs of ours that `srun` starts. A cluster of two
//! hosts with everything of its own: network namespaces, directories, a key.

use crate::{
    common::{Place, child_of, signal, until, wait},
    example, exists, launchers, mpi, ranks, text,
};
use petasos_pmix::{Job, JobError, Value, event::Range};
use petasos_testing::{Hosts, in_host, role, skip};
use std::{
    fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

/// A cluster; ended when dropped.
struct Slurm {
    processes: Vec<Child>,
    configuration: PathBuf,
    hosts: Hosts,
}

impl Slurm {
    /// Nodes `n1` and `n2`, of four cores each; nothing, with a word, where that cannot be had.
    fn start(place: &Place) -> Option<Slurm> {
        for program in ["munged", "slurmctld", "slurmd", "srun"] {
            // Without a configuration they fail, but they are here.
            if Command::new(program).arg("-V").output().is_err() {
                skip(&format!("{program} (packages slurm-wlm, munge) is not here"));
                return None;
            }
        }
        let hosts = Hosts::several(2)?;
        let at = place.path("slurm");
        fs::create_dir(&at).unwrap();
        fs::create_dir(at.join("state")).unwrap();
        let configuration = at.join("slurm.conf");
        fs::write(&configuration, configuration_at(&at)).unwrap();
        // It is not used; only programs that were given no other path look for it.
        let none = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n";
        fs::write(at.join("cgroup.conf"), none).unwrap();
        let mut slurm = Slurm { processes: Vec::new(), configuration, hosts };
        slurm.munge(&at);
        slurm.daemon('a', &at, "slurmctld", &["-c"]);
        slurm.daemon('a', &at, "slurmd", &["-N", "n1"]);
        slurm.daemon('b', &at, "slurmd", &["-N", "n2"]);
        let end = Instant::now() + Duration::from_secs(120);
        loop {
            let said =
                slurm.command(place, &["sinfo", "-h", "-N", "-o", "%N %t"]).output().unwrap();
            if text(&said) == "n1 idle\nn2 idle\n" {
                return Some(slurm);
            }
            let ended = |child: &mut Child| child.try_wait().unwrap().is_some();
            let over = slurm.processes.iter_mut().any(ended) || Instant::now() > end;
            let logs = || fs::read_to_string(at.join("log")).unwrap_or_default();
            assert!(!over, "no nodes: {}{}", text(&said), logs());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What its daemons know each other by.
    fn munge(&mut self, at: &Path) {
        fs::write(at.join("key"), [7; 64]).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        fs::set_permissions(at.join("key"), private).unwrap();
        let path = |what: &str, name: &str| format!("--{what}={}", at.join(name).display());
        let mut command = Command::new("munged");
        command.args(["--foreground", "--force", "--num-threads=2"]).args([
            path("key-file", "key"),
            path("socket", "munge"),
            path("pid-file", "munge.pid"),
            path("log-file", "munge.log"),
            path("seed-file", "munge.seed"),
        ]);
        self.spawn(command, at);
        until("munge", || at.join("munge").exists().then_some(()));
    }

    fn daemon(&mut self, host: char, at: &Path, program: &str, options: &[&str]) {
        let mut command = in_host(&self.hosts.name(host), program.as_ref());
        command.arg("-D").arg("-f").arg(&self.configuration).args(options);
        self.spawn(command, at);
    }

    fn spawn(&mut self, mut command: Command, at: &Path) {
        let log = fs::File::options().create(true).append(true).open(at.join("log")).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.processes.push(command.current_dir(at).spawn().unwrap());
    }

    /// A command on the first host, with a time limit, so that it is known which one hangs.
    fn command(&self, place: &Place, words: &[&str]) -> Command {
        let mut command = in_host(&self.hosts.name('a'), "timeout".as_ref());
        command.args(["-k", "2", "100"]).args(words).current_dir(place.directory.path());
        command.env("SLURM_CONF", &self.configuration).env("TMPDIR", place.path("tmp"));
        command.env_remove("XDG_RUNTIME_DIR").stdin(Stdio::null());
        command
    }

    /// A command of ours, started by one of Slurm's.
    fn within(&self, place: &Place, words: &[&str], inner: &Command) -> Command {
        let mut command = self.command(place, words);
        command.arg(inner.get_program()).args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// This test's own binary under `srun`: each rank runs the test `name` in the role `rank`.
    fn ranks(&self, place: &Place, options: &[&str], name: &str) -> Output {
        let mut own = Command::new(std::env::current_exe().unwrap());
        own.args([name, "--exact", "--nocapture", "--test-threads=1"]);
        own.env("PETASOS_TEST_ROLE", "rank");
        self.within(place, &[&["srun"], options].concat(), &own).output().unwrap()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for child in self.processes.iter_mut().rev() {
            signal(child.id(), "TERM");
            let end = Instant::now() + Duration::from_secs(20);
            while child.try_wait().is_ok_and(|status| status.is_none()) && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// No control groups and no accounting, and time for a machine that is busy.
fn configuration_at(at: &Path) -> String {
    let name = rustix::system::uname();
    let name = name.nodename().to_str().unwrap();
    let (short, at) = (name.split('.').next().unwrap(), at.display());
    let nodes = [1, 2].map(|nth| {
        format!(
            "NodeName=n{nth} NodeHostname={short} NodeAddr=10.77.0.{nth} CPUs=4 RealMemory=100\n"
        )
    });
    format!(
        "ClusterName=petasos
SlurmctldHost={short}(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={at}/munge
CredType=cred/munge
StateSaveLocation={at}/state
SlurmdSpoolDir={at}/%n
SlurmctldPidFile={at}/slurmctld.pid
SlurmdPidFile={at}/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SchedulerType=sched/builtin
SlurmdParameters=config_overrides
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MpiDefault=none
ReturnToService=2
MessageTimeout=90
SlurmdTimeout=0
BatchStartTimeout=60
{}PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
",
        nodes.concat()
    )
}

#[test]
fn a_job_takes_the_hosts_of_its_allocation() {
    let name = "slurm::a_job_takes_the_hosts_of_its_allocation";
    if role().is_some() {
        let job = Job::init().unwrap();
        job.fence().unwrap();
        let node = job.map().node_of(job.rank()).unwrap();
        let told = |name: &str| std::env::var(name).unwrap_or_default();
        let at = &job.map().node(node).unwrap().name;
        println!("\nrank {} of {} at {at} {}", job.rank(), job.size(), told("SLURMD_NODENAME"));
        return job.finalize().unwrap();
    }
    let place = Place::new();
    let Some(slurm) = Slurm::start(&place) else { return };
    // From where is no node of it.
    let job = ranks(&place, &[], name);
    let output = slurm.within(&place, &["salloc", "-N2", "-n3"], &job).output().unwrap();
    let said = text(&output);
    assert!(output.status.success(), "{said}");
    for rank in ["rank 0 of 3 at n1 n1", "rank 1 of 3 at n1 n1", "rank 2 of 3 at n2 n2"] {
        assert!(said.contains(rank), "{said}");
    }
    // From its first node, whose daemon does not have to be started; and under an `srun` whose task
    // it is, and whose ranks must not take themselves for that.
    let script = place.path("script");
    let words: Vec<String> = std::iter::once(job.get_program())
        .chain(job.get_args())
        .map(|word| word.to_str().unwrap().to_owned())
        .collect();
    let of_mpich = mpi::ring(&place, &mpi::MPICH).map(|ring| {
        let petasos = env!("CARGO_BIN_EXE_petasos");
        format!("srun --mpi=pmi2 --overlap -N1 -n1 {petasos} run -n 4 {}\n", ring.display())
    });
    let lines =
        format!("#!/bin/sh\n{}\n{}", words.join(" "), of_mpich.as_deref().unwrap_or_default());
    fs::write(&script, lines).unwrap();
    let out = place.path("out");
    let (script, written) = (script.to_str().unwrap(), format!("--output={}", out.display()));
    let batch = ["sbatch", "--wait", "-N2", "-n4", "--export=ALL", &written];
    let mut submit = Command::new(script);
    job.get_envs().for_each(|(name, value)| {
        submit.env(name, value.unwrap_or_default());
    });
    submit.env_remove("XDG_RUNTIME_DIR");
    let output = slurm.within(&place, &batch, &submit).output().unwrap();
    let said = text(&output) + &fs::read_to_string(&out).unwrap();
    assert!(output.status.success(), "{said}");
    let own = rustix::system::uname();
    let own = own.nodename().to_str().unwrap();
    for (rank, at) in [(0, format!("{own} n1")), (2, "n2 n2".to_owned())] {
        assert!(said.contains(&format!("rank {rank} of 4 at {at}")), "{said}");
    }
    if of_mpich.is_some() {
        mpi::check(&said, 4);
    }
    drop(slurm);
    place.assert_clean();
}

#[test]
fn nothing_is_left_of_a_job_whose_launcher_is_killed_in_an_allocation() {
    let place = Place::new();
    let Some(slurm) = Slurm::start(&place) else { return };
    let marker = "7343.25";
    let script = format!("echo ready; sleep {marker} & sleep {marker}");
    let job = place.command(&["run", "-n", "2", "--map", "by-node", "sh", "-c", &script]);
    let allocate = ["salloc", "-N2", "-n2"];
    let mut child = slurm.within(&place, &allocate, &job).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.take(2).filter(|line| line.as_ref().unwrap() == "ready").count(), 2);
    // `ip netns exec` has become `timeout`, which has started `salloc`.
    let launcher = child_of(child.id(), "salloc").and_then(|salloc| child_of(salloc, "echo ready"));
    signal(launcher.unwrap(), "KILL");
    wait(&mut child, Duration::from_secs(60));
    until("the end of the ranks", || (!exists(marker)).then_some(()));
    let empty = || fs::read_dir(place.path("tmp")).unwrap().next().is_none().then_some(());
    until("an empty directory", empty);
    drop(slurm);
    place.assert_clean();
}

#[test]
fn programs_of_ours_wire_up_under_srun() {
    let name = "slurm::programs_of_ours_wire_up_under_srun";
    if role().is_some() {
        let job = Job::init().unwrap();
        launchers::cards(&job);
        let event = job.notify(5, Range::Local, Vec::new());
        assert!(matches!(event, Err(JobError::NotOffered { .. })), "{event:?}");
        // Slurm's PMIx publishes nothing.
        if std::env::var_os("PMIX_NAMESPACE").is_none() {
            launchers::publishes(&job);
        }
        let hosts = job.map().hosts().len();
        let host = job.get(job.rank(), "pmix.hname").unwrap();
        assert!(hosts == 1 || [Value::from("n1"), Value::from("n2")].contains(&host), "{host:?}");
        return launchers::done(&job);
    }
    let place = Place::new();
    let Some(slurm) = Slurm::start(&place) else { return };
    let program = example("all_to_all");
    let mut kinds = vec![["--mpi=pmi2", "-N2"], ["--mpi=pmi2", "-N1"]];
    // Two nodes on one machine are too close to each other for Slurm's own PMIx.
    let offered = slurm.command(&place, &["srun", "--mpi=list"]).output().unwrap();
    if text(&offered).contains("pmix") {
        kinds.push(["--mpi=pmix", "-N1"]);
    } else {
        skip("Slurm's plug-in for PMIx (package libpmix2) is not here");
    }
    for [wire, nodes] in kinds {
        let output = slurm.ranks(&place, &[wire, nodes, "-n3"], name);
        let said = text(&output);
        assert!(output.status.success(), "{wire} {nodes}: {said}");
        assert_eq!(said.matches("rank is done").count(), 3, "{wire} {nodes}: {said}");
        let mut all = Command::new(&program);
        all.arg("64");
        let output = slurm.within(&place, &["srun", wire, nodes, "-n3"], &all).output().unwrap();
        let said = text(&output);
        assert!(output.status.success(), "{wire} {nodes}: {said}");
        assert_eq!(said.matches("bytes to 2 peers").count(), 3, "{wire} {nodes}: {said}");
    }
    drop(slurm);
    place.assert_clean();
}
