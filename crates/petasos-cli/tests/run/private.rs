//! Who is no part of a job learns nothing of it, and cannot disturb it.

use crate::{
    common::{Place, until, wait},
    ranks,
};
use petasos_pmix::{Job, JobError};
use petasos_testing::{again_as_nobody, role};
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

const NAME: &str = "private::strangers_are_refused";

#[test]
fn strangers_are_refused() {
    match role().as_deref() {
        Some("rank") => {
            let job = Job::init().unwrap();
            job.fence().unwrap();
            println!("\nready {}", std::env::var("PETASOS_JOB_DIR").unwrap());
            let mut line = String::new();
            if job.rank() == 0 {
                std::io::stdin().read_line(&mut line).unwrap();
            }
            job.fence().unwrap();
            return job.finalize().unwrap();
        }
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
