//! The limit on open files.

use crate::{
    common::{Place, until, wait},
    outsiders::awake_while,
    ranks,
};
use petasos_pmix::Job;
use petasos_testing::role;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

const FULL: &str = "limits::who_takes_all_descriptors_neither_ends_a_job_nor_has_it_spin";

/// The same command, with these limits: soft and hard.
fn limited(command: &Command, soft: u32, hard: u32) -> Command {
    let mut limited = Command::new("sh");
    limited.args(["-c", &format!("ulimit -Sn {soft} && ulimit -Hn {hard} && exec \"$0\" \"$@\"")]);
    limited.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited.current_dir(command.get_current_dir().unwrap()).stdin(Stdio::null());
    limited
}

/// The daemon raises its own; a program that goes by the limit finds what it was.
#[test]
fn ranks_have_the_limit_of_who_started_the_job() {
    let place = Place::new();
    let hosts = ["--hosts", "localhost:1,x:1", "--remote-start", "env X={host}"];
    let words = ["sh", "-c", "echo $(ulimit -Sn) $(ulimit -Hn)"];
    let command = place.command(&[&["run", "-n", "2"], &hosts[..], &words].concat());
    let output = limited(&command, 300, 700).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "300 700\n300 700\n", "{output:?}");
    place.assert_clean();
}

fn a_rank() {
    let job = Job::init().unwrap();
    println!("\nready {}", std::env::var("PETASOS_JOB_DIR").unwrap());
    if job.rank() == 0 {
        std::io::stdin().read_line(&mut String::new()).unwrap();
    }
    job.fence().unwrap();
    job.finalize().unwrap();
}

#[test]
fn who_takes_all_descriptors_neither_ends_a_job_nor_has_it_spin() {
    if role().is_some() {
        return a_rank();
    }
    let place = Place::new();
    let mut command = limited(&ranks(&place, &["-n", "2"], FULL), 128, 128);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut line = || lines.find_map(|line| Some(PathBuf::from(line.strip_prefix("ready ")?)));
    let directory = line().unwrap();
    line().unwrap();
    // They are more than there is room for; those beyond wait in the kernel's queue.
    let server = directory.join("server");
    let many: Vec<_> = (0..160).map_while(|_| connected(&server)).collect();
    assert!(many.len() > 100, "{} connections", many.len());
    let fds = format!("/proc/{}/fd", child.id());
    let count = || fs::read_dir(&fds).unwrap().count();
    let mut before = 0;
    until("no more to be taken", || {
        let now = count();
        (std::mem::replace(&mut before, now) == now && now > 60).then_some(())
    });
    // Some are kept for what the daemon itself has to do, and it does not ask again and again.
    let share = awake_while(child.id(), || std::thread::sleep(Duration::from_secs(1)));
    assert!(share < 0.5, "awake {share} of the time");
    assert!(count() < 128 - 16, "{} descriptors of 128", count());
    // When they are gone there is room for others.
    drop(many);
    until("room", || {
        let ps = place.run(&["query", "pmix.job.size"]);
        (ps.code == Some(0)).then_some(())
    });
    writeln!(child.stdin.take().unwrap(), "go on").unwrap();
    let status = wait(&mut child, Duration::from_secs(30));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.success(), "{said}");
    assert_eq!(said.matches("limit of 128 on open files").count(), 1, "{said}");
    place.assert_clean();
}

/// `None` where the queue is full, in which a blocking connection would wait.
fn connected(path: &Path) -> Option<UnixStream> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let kind = (AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK);
    let socket = rustix::net::socket_with(kind.0, kind.1, kind.2, None).unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).ok()?;
    Some(socket.into())
}
