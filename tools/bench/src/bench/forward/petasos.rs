//! Petasos itself: `petasos forward`, as a user runs it, by this executable.

use super::{
    contender::{Access, Contender, Kind, Label, Payload, READY, Site},
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
    label: Label,
    /// As the server prints it.
    url: String,
    export: PathBuf,
    secret: PathBuf,
    _server: Daemon,
}

impl Petasos {
    /// Starts a server that listens over one transport.
    pub(super) fn start(site: &Site<'_>, transport: &'static Transport) -> Outcome<Petasos> {
        let scheme = transport.scheme;
        // Leaked: each is started once, and its name is used as long as the command runs.
        let name = format!("petasos {scheme}").leak();
        let label = Label { name, kind: Kind::Ours, over: scheme };
        let mut command = process::command(&["forward", "serve", "--listen", transport.any]);
        if wants_secret(scheme) {
            command.arg("--secret").arg(site.secret);
        }
        command.arg(site.export);
        let mut server = site.logs.daemon(&command)?;
        let url = server.until(READY, |out| url_in(&fs::read_to_string(out).ok()?, scheme))?;
        let (export, secret) = (site.export.to_owned(), site.secret.to_owned());
        Ok(Petasos { label, url, export, secret, _server: server })
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = process::command(&["forward"]);
        command.args(words);
        if wants_secret(self.label.over) {
            command.arg("--secret").arg(&self.secret);
        }
        command
    }

    /// A path in the export, in the form that the commands take.
    fn remote(&self, path: &Path) -> OsString {
        let mut remote = OsString::from(&self.url);
        remote.push("//");
        remote.push(path.strip_prefix(&self.export).unwrap_or(path));
        remote
    }
}

/// Whether both sides need a secret: over shared memory the system authenticates them.
fn wants_secret(scheme: &str) -> bool {
    scheme != "shm"
}

/// The URL in a full line of the server's output.
fn url_in(said: &str, scheme: &str) -> Option<String> {
    let begin = said.find(&format!("{scheme}://"))?;
    let end = begin + said[begin..].find(char::is_whitespace)?;
    Some(said[begin..end].to_owned())
}

impl Contender for Petasos {
    fn label(&self, _: Access) -> Option<Label> {
        Some(self.label)
    }

    fn put(&self, _: Payload, from: &Path, to: &Path) -> Command {
        let mut command = self.command(&["put", "--quiet"]);
        command.arg(from).arg(self.remote(to));
        command
    }

    fn get(&self, _: Payload, from: &Path, to: &Path) -> Command {
        let mut command = self.command(&["get", "--quiet"]);
        command.arg(self.remote(from)).arg(to);
        command
    }

    fn list(&self, tree: &Path) -> Option<Command> {
        let mut command = self.command(&["ls", "-R"]);
        command.arg(self.remote(tree));
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
        "petasos forward put, get, ls -R and mount, with a server of its own, in their defaults"
            .to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::url_in;

    #[test]
    fn the_url_of_a_server() {
        assert_eq!(url_in("listening at shm://a", "shm"), None, "the line is not complete");
        assert_eq!(url_in("listening at shm://a\n", "shm").unwrap(), "shm://a");
        let both = "listening at shm://a\nlistening at tcp://127.0.0.1:9\n";
        assert_eq!(url_in(both, "tcp").unwrap(), "tcp://127.0.0.1:9");
    }
}
