//! rclone, with its own server for SFTP: its only configuration is in its environment.
//!
//! Its servers for HTTP take some 30 ms for each small file that is written, and cannot be written
//! to as a stream.

use super::{
    contender::{Access, Contender, Label, Payload, READY, Site, listens, on_free_port},
    process::{self, Daemon},
};
use crate::exit::{Code, Failure, Outcome};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// The user of the server, authenticated by the secret.
const USER: &str = "petasos";

pub(super) struct Rclone {
    program: PathBuf,
    own: PathBuf,
    /// The secret in rclone's own form.
    password: String,
    port: u16,
    export: PathBuf,
    _server: Daemon,
}

impl Rclone {
    pub(super) fn start(site: &Site<'_>) -> Outcome<Rclone> {
        let program = process::require("rclone", "rclone")?;
        let word = super::secret_text(site.secret)?;
        let password = obscured(site, &program, &word)?;
        on_free_port(|port| {
            let mut command = bare(&program, &site.own);
            command.args(["serve", "sftp", "--addr", &format!("127.0.0.1:{port}")]);
            // Not as arguments, which every user can read.
            command.arg(site.export).env("RCLONE_USER", USER).env("RCLONE_PASS", &word);
            let mut server = site.logs.daemon(&command)?;
            server.until(READY, |_| listens(port))?;
            Ok(Rclone {
                program: program.clone(),
                own: site.own.clone(),
                password: password.clone(),
                port,
                export: site.export.to_owned(),
                _server: server,
            })
        })
    }

    fn command(&self, word: &str) -> Command {
        let mut command = bare(&self.program, &self.own);
        command
            .arg(word)
            .env("RCLONE_SFTP_HOST", "127.0.0.1")
            .env("RCLONE_SFTP_PORT", self.port.to_string())
            .env("RCLONE_SFTP_SHELL_TYPE", "none")
            .env("RCLONE_SFTP_USER", USER)
            .env("RCLONE_SFTP_PASS", &self.password);
        command
    }

    fn remote(&self, path: &Path) -> OsString {
        let mut remote = OsString::from(":sftp:");
        remote.push(path.strip_prefix(&self.export).unwrap_or(path));
        remote
    }

    fn copy(&self, payload: Payload, from: OsString, to: OsString) -> Command {
        let mut command = self.command(if payload == Payload::File { "copyto" } else { "copy" });
        command.arg(from).arg(to);
        command
    }
}

/// rclone without the user's configuration, with its files in a directory.
fn bare(program: &Path, own: &Path) -> Command {
    let mut command = Command::new(program);
    command.arg("--config").arg("/dev/null").arg("--cache-dir").arg(own.join("cache"));
    command.env("TMPDIR", own).env("HOME", own);
    command
}

/// A secret in the form in which rclone takes it from its environment.
fn obscured(site: &Site<'_>, program: &Path, word: &str) -> Outcome<String> {
    let input = site.write("password", word)?;
    let out = site.logs.fresh();
    // Commands here have no standard input: the shell redirects the file.
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "exec \"$0\" --config /dev/null obscure - < \"$1\""]);
    command.arg(program).arg(input);
    let running = site.logs.start(command, Some(&out))?;
    process::wait_all(vec![running], Instant::now(), READY)?;
    let found = std::fs::read_to_string(&out).map_err(|e| Failure::file("reading", &out, &e))?;
    match found.trim() {
        "" => Err(Failure::new(Code::Failed, "rclone obscure printed nothing")),
        found => Ok(found.to_owned()),
    }
}

impl Contender for Rclone {
    fn label(&self, access: Access) -> Option<Label> {
        Some(Label::peer(if access == Access::Commands { "rclone copy" } else { "rclone mount" }))
    }

    fn put(&self, payload: Payload, from: &Path, to: &Path) -> Command {
        self.copy(payload, from.into(), self.remote(to))
    }

    fn get(&self, payload: Payload, from: &Path, to: &Path) -> Command {
        self.copy(payload, self.remote(from), to.into())
    }

    fn list(&self, tree: &Path) -> Option<Command> {
        let mut command = self.command("lsf");
        command.arg("-R").arg(self.remote(tree));
        Some(command)
    }

    fn mount(&self, at: &Path) -> Option<Command> {
        let mut command = self.command("mount");
        command.arg(self.remote(&self.export)).arg(at);
        Some(command)
    }

    fn by_clients(&self) -> bool {
        false
    }

    fn how(&self) -> String {
        "rclone copy and rclone mount of rclone serve sftp over loopback, encrypted; a close after \
         writing waits until the server has the file, as --vfs-cache-mode is off"
            .to_owned()
    }
}
