//! Programs that measure themselves: two processes, one of which listens.

use crate::{
    Error, Setup, Unavailable,
    process::{Order, Process, Task},
};
use std::{
    collections::HashMap,
    env,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    net::{Ipv4Addr, TcpListener},
    os::{fd::OwnedFd, unix::fs::PermissionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

/// How long a program may take to listen, and beyond its measurement to begin and to end: on a
/// machine whose processors others use, too.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long the side that answers may take to end by itself before it is ended.
const ENDING: Duration = Duration::from_secs(10);

/// The longest pause between two looks at whether a program listens.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// Another program may take the port that was found free.
const ATTEMPTS: usize = 3;

/// The most of a program's output that is read, in bytes.
const MOST_OUTPUT: u64 = 64 << 10;

/// A program and where it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// How it is installed.
    pub(crate) install: &'static str,
}

impl Program {
    /// Where it is.
    pub(crate) fn find(&self) -> Result<PathBuf, Unavailable> {
        self.find_in(&env::var_os("PATH").unwrap_or_default())
    }

    fn find_in(&self, path: &OsString) -> Result<PathBuf, Unavailable> {
        let executable = |path: &PathBuf| {
            fs::metadata(path)
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        };
        let mut candidates = env::split_paths(path).map(|directory| directory.join(self.name));
        candidates.find(executable).ok_or_else(|| {
            let Program { name, install } = self;
            Unavailable(format!("{name} is not installed: {install}"))
        })
    }

    /// What it prints with these arguments: a few lines. It is ended if it takes too long.
    pub(crate) fn says(&self, arguments: &[&str]) -> Result<String, Unavailable> {
        let failed = |e: io::Error| Unavailable(format!("running {}: {e}", self.name));
        let mut command = Command::new(self.find()?);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut running = command.spawn().map_err(failed)?;
        let end = Instant::now() + ENDING;
        while running.try_wait().map_err(failed)?.is_none() {
            if Instant::now() > end {
                let _ = running.kill();
                let _ = running.wait();
                let Program { name, .. } = self;
                return Err(Unavailable(format!("{name} said nothing within {ENDING:?}")));
            }
            std::thread::sleep(LONGEST_PAUSE);
        }
        let mut said = Vec::new();
        if let Some(stdout) = running.stdout.take() {
            stdout.take(MOST_OUTPUT).read_to_end(&mut said).map_err(failed)?;
        }
        Ok(String::from_utf8_lossy(&said).into_owned())
    }
}

/// A program's two sides, to be run again and again.
pub(crate) struct Sides {
    name: &'static str,
    client: PathBuf,
    server: PathBuf,
    meeting: Meeting,
    setup: Setup,
    /// Environment of both.
    variables: Vec<(String, String)>,
    /// How long an iteration took, in seconds, by what was measured.
    usual: HashMap<(&'static str, usize), f64>,
}

/// How the client finds the server, and so, when the server is ready for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// At a port, on which the server listens.
    Port,
    /// By a file, into which the server writes where it is.
    File,
}

/// Where they meet in one run.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// A port that was free.
    pub(crate) port: u16,
    /// A file that is not there yet.
    pub(crate) file: PathBuf,
}

impl Place {
    fn find(setup: &Setup) -> io::Result<Place> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        Ok(Place { port, file: setup.scratch.join(format!("at-{port}")) })
    }

    /// Whether the server is ready. That it listens is not found by connecting: the first
    /// connection is taken for the client's.
    fn is_ready(&self, meeting: Meeting) -> bool {
        match meeting {
            Meeting::Port => is_listening(self.port),
            Meeting::File => {
                fs::read(&self.file).is_ok_and(|written| written.last() == Some(&b'\n'))
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// Arguments of both sides for a place and a number of iterations.
pub(crate) struct Arguments {
    pub(crate) server: Vec<String>,
    pub(crate) client: Vec<String>,
}

impl Sides {
    pub(crate) fn new(
        program: &Program,
        setup: &Setup,
        variables: &[(&str, &str)],
    ) -> Result<Sides, Unavailable> {
        let variables = variables.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        let (name, path) = (program.name, program.find()?);
        if setup.alone() {
            return Err(Unavailable(format!("{name} spins on both sides: it needs two cores")));
        }
        Ok(Sides {
            name,
            client: path.clone(),
            server: path,
            meeting: Meeting::Port,
            setup: setup.clone(),
            variables,
            usual: HashMap::new(),
        })
    }

    /// The same with a program of its own for the server, which writes a file.
    pub(crate) fn with_server(mut self, program: &Program) -> Result<Sides, Unavailable> {
        (self.server, self.meeting) = (program.find()?, Meeting::File);
        Ok(self)
    }

    /// Runs both sides for about `time`, with as many iterations as that allows: what `read` finds
    /// in the client's output. `seconds` says how long an iteration of such a result took.
    pub(crate) fn measure<T>(
        &mut self,
        (what, bytes): (&'static str, usize),
        time: Duration,
        arguments: impl Fn(&Place, u64) -> Arguments,
        read: impl Fn(&str) -> Option<T>,
        seconds: impl Fn(&T) -> f64,
    ) -> Result<T, Error> {
        // So few that they take no time, and are not to be believed: all is cold.
        const PROBE: f64 = 50.0;
        // How often to find out how long an iteration takes in a longer run.
        const LONGER: usize = 4;
        let run = |iterations| self.run_once(time, |place| arguments(place, iterations), &read);
        let mut usual = match self.usual.get(&(what, bytes)) {
            Some(usual) => *usual,
            None => seconds(&run(PROBE as u64)?),
        };
        let mut runs = 0;
        loop {
            runs += 1;
            let iterations = (time.as_secs_f64() / usual.max(1e-9)).clamp(PROBE, 1e8);
            let result = run(iterations as u64)?;
            usual = seconds(&result);
            if runs == LONGER || iterations * usual > time.as_secs_f64() / 2.0 {
                self.usual.insert((what, bytes), usual);
                return Ok(result);
            }
        }
    }

    /// Runs both sides once, for about `time`: what `read` finds in the client's output.
    pub(crate) fn run_once<T>(
        &self,
        time: Duration,
        arguments: impl Fn(&Place) -> Arguments,
        read: impl Fn(&str) -> Option<T>,
    ) -> Result<T, Error> {
        let output = self.run(time, arguments)?;
        read(&output).ok_or_else(|| Error::Output { program: self.name, output: tail(&output) })
    }

    /// Runs both sides once: the client's output.
    fn run(
        &self,
        time: Duration,
        arguments: impl Fn(&Place) -> Arguments,
    ) -> Result<String, Error> {
        let mut failure = None;
        for _ in 0..ATTEMPTS {
            let place =
                Place::find(&self.setup).map_err(Error::system("looking for a free port"))?;
            let Arguments { server, client } = arguments(&place);
            let mut server = self.start(&self.server, self.setup.server, server)?;
            if let Err(error) = self.wait_until_ready(&mut server, &place) {
                failure = Some(error);
                continue;
            }
            let mut client = self.start(&self.client, self.setup.client, client)?;
            let limit = time * 10 + PATIENCE;
            let Some(status) = client.wait(limit) else {
                return Err(Error::TooLong { program: self.name, limit });
            };
            let [output, errors] = read_all(client.outputs())?;
            if !status.success() {
                let said = format!("{status}: {}", tail(&errors));
                return Err(client.failed(said));
            }
            // It ends by itself, and takes with it what it has in /dev/shm.
            server.wait(ENDING);
            return Ok(output);
        }
        Err(failure.unwrap_or(Error::TooLong { program: self.name, limit: PATIENCE }))
    }

    fn start(
        &self,
        program: &Path,
        core: Option<usize>,
        arguments: Vec<String>,
    ) -> Result<Process, Error> {
        let arguments = arguments.into_iter().map(OsString::from).collect();
        let (program, variables) = (program.to_owned(), self.variables.clone());
        let order = Order { core, task: Task::Run { program, arguments, variables } };
        Process::run(self.name, &self.setup, &order)
    }

    fn wait_until_ready(&self, server: &mut Process, place: &Place) -> Result<(), Error> {
        let end = Instant::now() + PATIENCE;
        let mut pause = Duration::from_millis(2);
        while !place.is_ready(self.meeting) {
            if let Some(status) = server.wait(Duration::ZERO) {
                let [_, errors] = read_all(server.outputs())?;
                return Err(server.failed(format!("{status}: {}", tail(&errors))));
            }
            if Instant::now() > end {
                return Err(Error::TooLong { program: self.name, limit: PATIENCE });
            }
            std::thread::sleep(pause);
            // The kernel walks its whole table of connections for each look.
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
        Ok(())
    }
}

/// Whether a process listens on this port.
fn is_listening(port: u16) -> bool {
    ["/proc/net/tcp", "/proc/net/tcp6"]
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok())
        .any(|table| lists_listener(&table, port))
}

/// Whether a table as in `/proc/net/tcp` has a listening socket with this port.
fn lists_listener(table: &str, port: u16) -> bool {
    table.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let (local, state) = (words.next().unwrap_or_default(), words.nth(1));
        let at = local.rsplit(':').next().and_then(|hex| u16::from_str_radix(hex, 16).ok());
        state == Some("0A") && at == Some(port)
    })
}

/// What ended programs have printed.
fn read_all(outputs: [Option<OwnedFd>; 2]) -> Result<[String; 2], Error> {
    let read = |output: Option<OwnedFd>| {
        let mut bytes = Vec::new();
        if let Some(output) = output {
            let read = File::from(output).take(MOST_OUTPUT).read_to_end(&mut bytes);
            read.map_err(Error::system("reading a program's output"))?;
        }
        Ok::<_, Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let [out, err] = outputs;
    Ok([read(out)?, read(err)?])
}

/// The last line that says something, for messages.
fn tail(output: &str) -> String {
    let last = output.lines().rev().map(str::trim).find(|line| !line.is_empty());
    last.unwrap_or("nothing").chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let program = Program { name: "fi_pingpong", install: "apt-get install libfabric-bin" };
        let nowhere = tempfile::tempdir().unwrap();
        let path = nowhere.path().as_os_str().to_owned();
        let why = program.find_in(&path).unwrap_err().to_string();
        assert_eq!(why, "fi_pingpong is not installed: apt-get install libfabric-bin");
        // A file of that name that cannot be run is not it.
        fs::write(nowhere.path().join("fi_pingpong"), "").unwrap();
        assert!(program.find_in(&path).is_err());
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let begin = Instant::now();
        let sleep = Program { name: "sleep", install: "" };
        let why = sleep.says(&["60"]).unwrap_err().to_string();
        assert_eq!(why, "sleep said nothing within 10s");
        assert!(begin.elapsed() >= ENDING);
        assert_eq!(Program { name: "echo", install: "" }.says(&["a", "b"]).unwrap(), "a b\n");
    }

    #[test]
    fn listeners() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(is_listening(port));
        drop(listener);
        // What another thread starts meanwhile has it for a moment.
        let until = Instant::now() + Duration::from_secs(10);
        while is_listening(port) {
            assert!(Instant::now() < until, "it listens for ever");
            std::thread::sleep(Duration::from_millis(1));
        }
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n\
                     0: 0100007F:A029 00000000:0000 0A 00000000:00000000 00:00000000 00000000\n\
                     1: 0100007F:A02A 0100007F:A029 01 00000000:00000000 00:00000000 00000000\n";
        assert!(lists_listener(table, 0xa029) && !lists_listener(table, 0xa02a));
    }

    #[test]
    fn messages_have_the_last_line_only() {
        assert_eq!(tail("a\nb \n\n"), "b");
        assert_eq!(tail(""), "nothing");
        assert_eq!(tail(&"x".repeat(1000)).len(), 200);
    }
}
