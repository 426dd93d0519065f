//! We ourselves: `petasos forward`, as anybody would run it, which this very executable is, too.

use super::{
    contender::{Contender, Kind, READY, Site, Way, What, Who},
    process::{self, Daemon},
};
use crate::exit::Outcome;
use petasos::Transport;
use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

pub(super) struct Petasos {
    who: Who,
    /// As the server says it.
    url: String,
    export: PathBuf,
    secret: PathBuf,
    _server: Daemon,
}

impl Petasos {
    /// Starts a server that listens over one transport.
    pub(super) fn start(site: &Site<'_>, transport: &'static Transport) -> Outcome<Petasos> {
        let scheme = transport.scheme;
        // Each is started once, and named as long as the command runs.
        let name = format!("petasos {scheme}").leak();
        let who = Who { name, kind: Kind::Ours, over: scheme };
        let mut command = process::command(&["forward", "serve", "--listen", transport.any]);
        if wants_secret(scheme) {
            command.arg("--secret").arg(site.secret);
        }
        command.arg(site.export);
        let mut server = site.logs.daemon(&command)?;
        let url = server.until(READY, |out| url_in(&fs::read_to_string(out).ok()?, scheme))?;
        let (export, secret) = (site.export.to_owned(), site.secret.to_owned());
        Ok(Petasos { who, url, export, secret, _server: server })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = process::command(&["forward"]);
        command.args(words);
        if wants_secret(self.who.over) {
            command.arg("--secret").arg(&self.secret);
        }
        command
    }

    /// A place in the export, as the commands want it.
    fn place(&self, path: &Path) -> OsString {
        let mut place = OsString::from(&self.url);
        place.push("//");
        place.push(path.strip_prefix(&self.export).unwrap_or(path));
        place
    }
}

/// Whether both sides are told a secret: over shared memory the system vouches for them.
fn wants_secret(scheme: &str) -> bool {
    scheme != "shm"
}

/// The URL in a full line of what the server has said.
fn url_in(said: &str, scheme: &str) -> Option<String> {
    let begin = said.find(&format!("{scheme}://"))?;
    let end = begin + said[begin..].find(char::is_whitespace)?;
    Some(said[begin..end].to_owned())
}

impl Contender for Petasos {
    fn who(&self, _: Way) -> Option<Who> {
        Some(self.who)
    }

    fn put(&self, _: What, from: &Path, to: &Path) -> Command {
        let mut command = self.command(&["put", "--quiet"]);
        command.arg(from).arg(self.place(to));
        command
    }

    fn get(&self, _: What, from: &Path, to: &Path) -> Command {
        let mut command = self.command(&["get", "--quiet"]);
        command.arg(self.place(from)).arg(to);
        command
    }

    fn list(&self, tree: &Path) -> Option<Command> {
        let mut command = self.command(&["ls", "-R"]);
        command.arg(self.place(tree));
        Some(command)
    }

    fn mount(&self, at: &Path) -> Option<Command> {
        let mut command = self.command(&["mount", "--foreground"]);
        command.arg(&self.url).arg(at);
        Some(command)
    }

    fn by_clients(&self) -> bool {
        true
    }

    fn how(&self) -> String {
        "petasos forward put, get, ls -R and mount, with a server of its own; as they come"
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::url_in;

    #[test]
    fn the_url_of_a_server() {
        assert_eq!(url_in("listening at shm://a", "shm"), None, "not all is there yet");
        assert_eq!(url_in("listening at shm://a\n", "shm").unwrap(), "shm://a");
        let both = "listening at shm://a\nlistening at tcp://127.0.0.1:9\n";
        assert_eq!(url_in(both, "tcp").unwrap(), "tcp://127.0.0.1:9");
    }
}
