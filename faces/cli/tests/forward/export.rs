//! A server process for a test.

use crate::common::{Place, Ran, signal, wait};
use std::{
    io::{BufRead, BufReader},
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// How tests reach their servers.
pub(crate) const TRANSPORTS: [&str; 2] = ["shm", "tcp"];

/// A running server; killed when dropped.
pub(crate) struct Export {
    child: Child,
    pub(crate) url: String,
    pub(crate) directory: PathBuf,
}

impl Export {
    /// Exports `exp` in this place, which is made if it is not there.
    pub(crate) fn start(place: &Place, transport: &str, arguments: &[&str]) -> Export {
        let url = if transport == "tcp" { "tcp://127.0.0.1:0" } else { "shm://*" };
        Export::at(place, url, arguments)
    }

    /// The same, at a URL of one's own.
    pub(crate) fn at(place: &Place, url: &str, arguments: &[&str]) -> Export {
        let directory = place.path("exp");
        std::fs::create_dir_all(&directory).unwrap();
        let begin = ["forward", "serve", "exp", "--listen", url];
        // These tests share their machine with no user that they would have to keep out.
        let open = !url.starts_with("shm") && !arguments.contains(&"--secret");
        let open: &[&str] = if open { &["--open"] } else { &[] };
        Export::of(place.command(&[&begin[..], open, arguments].concat()), directory)
    }

    /// The server of this command.
    pub(crate) fn of(mut command: Command, directory: PathBuf) -> Export {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let url = line.strip_prefix("listening at ").expect("a URL").trim_end().to_owned();
        Export { child, url, directory }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, as Ctrl-C does, and says how it ended.
    pub(crate) fn interrupt(&mut self) -> Option<i32> {
        signal(self.child.id(), "INT");
        wait(&mut self.child, Duration::from_secs(10)).code()
    }

    /// What is staged there.
    pub(crate) fn staged(&self) -> usize {
        let stage = self.directory.join(".petasos/stage");
        std::fs::read_dir(stage).map_or(0, Iterator::count)
    }

    /// Runs `petasos forward …`, where `@` stands for the URL.
    pub(crate) fn run(&self, place: &Place, arguments: &[&str]) -> Ran {
        let arguments: Vec<_> = arguments.iter().map(|a| a.replace('@', &self.url)).collect();
        let all: Vec<&str> =
            ["forward"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
        place.run(&all)
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits until it ends, or so long at most; true if it ended.
pub(crate) fn ended(child: &mut Child, patience: Duration) -> bool {
    let end = Instant::now() + patience;
    while Instant::now() < end {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    false
}
