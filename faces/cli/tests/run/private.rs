//! A process that is no part of a job learns nothing of it, and cannot disturb it.

use crate::{
    common::{Place, until, wait},
    outsiders::OfUser,
    ranks, text,
};
use petasos_pmix::{Job, JobError};
use petasos_testing::{again_as_nobody, is_root, role, skip};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{Shutdown, TcpStream},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

const NAME: &str = "private::strangers_are_refused";
const CLOSED: &str = "private::the_job_of_an_ordinary_user_is_closed_to_others";
/// An ordinary user, not necessarily in any list.
pub(crate) const USER: u32 = 61_234;
/// `nobody`, on Debian and most others.
pub(crate) const NOBODY: u32 = 65_534;

/// A rank that waits for a word on the standard input of rank 0.
pub(crate) fn waits_for_a_word() {
    let job = Job::init().unwrap();
    job.fence().unwrap();
    let space = std::env::var("PMIX_NAMESPACE").unwrap_or_default();
    println!("\nspace {space}\nready {}", std::env::var("PETASOS_JOB_DIR").unwrap());
    let mut line = String::new();
    if job.rank() == 0 {
        std::io::stdin().read_line(&mut line).unwrap();
    }
    job.fence().unwrap();
    job.finalize().unwrap();
}

/// What a port answers to these bytes, until it closes the connection.
fn answer_of(port: u16, bytes: &[u8]) -> Vec<u8> {
    answer(TcpStream::connect(("127.0.0.1", port)).unwrap(), bytes)
}

/// What is answered to these bytes, until the connection is closed.
pub(crate) fn answer(mut stream: TcpStream, bytes: &[u8]) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // It may be closed already.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    let mut said = Vec::new();
    match stream.read_to_end(&mut said) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("it stays open"),
        _ => said,
    }
}

/// How the client library of OpenPMIx greets the server of a job as one of its ranks.
pub(crate) fn greeting(job: &str, rank: u32) -> Vec<u8> {
    let mut said = b"native\0".to_vec();
    said.extend([0, 0, 0, 8].iter().chain(&[0; 8]).chain(&[0]));
    said.extend([job.as_bytes(), b"\0", &rank.to_be_bytes(), b"4.2.2\0v41\0\x01hash\0"].concat());
    let header = [-1, -1, said.len() as i32, 0].map(i32::to_le_bytes).concat();
    [header, said].concat()
}

/// Where the daemons of this process, and of those that it has started, listen.
pub(crate) fn ports_of(process: u32) -> Vec<u16> {
    let sockets: Vec<String> = fs::read_dir(format!("/proc/{process}/fd"))
        .unwrap()
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok()?.into_os_string().into_string().ok())
        .collect();
    let tables = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/net/{name}")));
    let tables = tables.into_iter().map(Result::unwrap_or_default).collect::<String>();
    let listens = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let socket = format!("socket:[{}]", words.get(9)?);
        let (_, port) = words.get(1)?.rsplit_once(':')?;
        (words[3] == "0A" && sockets.contains(&socket))
            .then(|| u16::from_str_radix(port, 16).ok())?
    };
    tables.lines().filter_map(listens).collect()
}

/// Both users have no rights of root: the owner of the job, and one that tries to look into it.
#[test]
fn the_job_of_an_ordinary_user_is_closed_to_others() {
    match role().as_deref() {
        Some("rank") => return waits_for_a_word(),
        Some("stranger") => return looks_into_it(true),
        Some("owner") => return looks_into_it(false),
        _ => {}
    }
    if !is_root() {
        return skip("only root can run programs as two other users");
    }
    // A daemon of another host, on this one: so those of the job have ports for each other.
    let options = ["-n", "2", "--hosts", "localhost:1,x:1", "--remote-start", "env X={host}"];
    let job = OfUser::start(CLOSED, &options);
    let ports: Vec<String> = ports_of(job.child.id()).iter().map(u16::to_string).collect();
    for directory in &job.directories {
        for (user, role) in [(NOBODY, "stranger"), (USER, "owner")] {
            let mut looks = job.visits(CLOSED, user, role, directory);
            let said = looks.env("PORTS", ports.join(" ")).output().unwrap();
            assert!(said.status.success(), "{role}: {}", text(&said));
        }
    }
    let said = job.ends_well();
    for word in ["refused a client: it is another user's", "refused a connection: "] {
        assert!(said.contains(word), "`{word}` is not in {said}");
    }
}

/// Another user that by chance knows everything but the secrets; and the owner of the job, of which
/// a program may be wrong.
fn looks_into_it(is_stranger: bool) {
    let variable = |name: &str| std::env::var(name).unwrap();
    let directory = PathBuf::from(variable("DIRECTORY"));
    let job = variable("SPACE");
    let port = variable("PMIX_PORT").parse().unwrap();
    for bytes in [greeting("other", 0), vec![0xff; 300], greeting(&job, 0)[..40].to_vec()] {
        assert!(answer_of(port, &bytes).is_empty(), "{bytes:?}");
    }
    if !is_stranger {
        // The greeting is a good one: it is told that this rank is there already.
        assert_eq!(answer_of(port, &greeting(&job, 0)).len(), 8);
        return;
    }
    assert!(answer_of(port, &greeting(&job, 0)).is_empty());
    assert!(fs::read_dir(&directory).is_err());
    for file in ["token", "secret", "job", "pmix41"] {
        assert!(fs::read(directory.join(file)).is_err(), "{file}");
    }
    assert!(UnixStream::connect(directory.join("server")).is_err());
    assert!(matches!(Job::attach(directory), Err(JobError::Io(..))));
    let mut daemons = 0;
    for port in variable("PORTS").split(' ').map(|port| port.parse().unwrap()) {
        let said = answer_of(port, &[7; 90]);
        // A word on the protocol and a number that no process has seen: no proof of anything.
        assert!(said.is_empty() || said.len() == 40, "{said:?}");
        daemons += usize::from(said.len() == 40);
    }
    assert!(daemons > 0, "no daemon listens for others");
}

#[test]
fn strangers_are_refused() {
    match role().as_deref() {
        Some("rank") => return waits_for_a_word(),
        Some("stranger") => {
            let directory = PathBuf::from(std::env::var("DIRECTORY").unwrap());
            assert!(fs::read(directory.join("token")).is_err());
            assert!(UnixStream::connect(directory.join("server")).is_err());
            assert!(matches!(Job::attach(directory), Err(JobError::Io(..))));
            println!("\nrefused");
            return;
        }
        _ => {}
    }
    let place = Place::new();
    let mut command = ranks(&place, &["-n", "2"], NAME);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let directory = lines.find_map(|line| Some(line.strip_prefix("ready ")?.to_owned())).unwrap();
    let directory = PathBuf::from(directory);
    // Only this user gets in.
    let mode =
        |name: &str| fs::metadata(directory.join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(""), 0o700);
    for file in ["token", "secret", "job"] {
        assert_eq!(mode(file), 0o600, "{file}");
    }
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(place.directory.path(), open.clone()).unwrap();
    fs::set_permissions(place.path("tmp"), open).unwrap();
    if let Some(stranger) = again_as_nobody(NAME, "stranger") {
        let mut stranger = stranger.env("DIRECTORY", directory.to_str().unwrap()).start();
        stranger.line("refused");
    }
    // Neither secret is where others look: in command lines or environments.
    let hex = fs::read_to_string(directory.join("secret")).unwrap();
    let token = fs::read(directory.join("token")).unwrap();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        for file in ["cmdline", "environ"] {
            let bytes = fs::read(process.path().join(file)).unwrap_or_default();
            let has = |secret: &[u8]| bytes.windows(secret.len()).any(|part| part == secret);
            assert!(!has(hex.as_bytes()) && !has(&token), "{:?}", process.path());
        }
    }
    // A wrong token, garbage in place of one, garbage after one: the connection is closed.
    let frame = |bytes: &[u8]| [&(bytes.len() as u32).to_le_bytes()[..], bytes].concat();
    let garbage =
        [frame(&[7; 32]), frame(b"x"), vec![0xff; 64], [frame(&token), frame(b"?")].concat()];
    for bytes in garbage {
        let mut stream = UnixStream::connect(directory.join("server")).unwrap();
        stream.write_all(&bytes).unwrap();
        let mut answer = Vec::new();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The end of the stream, or its breaking off where bytes were not read.
        let _ = stream.read_to_end(&mut answer);
        assert!(answer.is_empty(), "{bytes:?}");
    }
    // The job did not notice.
    writeln!(child.stdin.take().unwrap(), "go on").unwrap();
    let status = wait(&mut child, Duration::from_secs(20));
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(status.success(), "{said}");
    assert!(said.contains("a client is cut off"), "{said}");
    until("a clean place", || (!directory.exists()).then_some(()));
    place.assert_clean();
}
