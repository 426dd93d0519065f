//! rsync with a daemon of its own.

use super::{
    contender::{Access, Contender, Label, Payload, READY, Site, listens, on_free_port},
    process::{self, Daemon},
};
use crate::exit::Outcome;
use rustix::process::{getgid, getuid};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// The user of the server, authenticated by the secret.
const USER: &str = "petasos";

pub(super) struct Rsync {
    program: PathBuf,
    password: PathBuf,
    port: u16,
    export: PathBuf,
    _daemon: Daemon,
}

impl Rsync {
    pub(super) fn start(site: &Site<'_>) -> Outcome<Rsync> {
        let program = process::require("rsync", "rsync")?;
        let word = super::secret_text(site.secret)?;
        let password = site.write("password", &format!("{word}\n"))?;
        let secrets = site.write("secrets", &format!("{USER}:{word}\n"))?;
        let (secrets, export) = (secrets.display(), site.export.display());
        let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
        on_free_port(|port| {
            let text = format!(
                "address = 127.0.0.1\nport = {port}\nuse chroot = no\n[export]\npath = {export}\n\
                 read only = no\nuid = {uid}\ngid = {gid}\nauth users = {USER}\n\
                 secrets file = {secrets}\n"
            );
            let config = site.write("rsyncd.conf", &text)?;
            let mut command = Command::new(&program);
            command.args(["--daemon", "--no-detach", "--config"]).arg(config);
            let mut daemon = site.logs.daemon(&command)?;
            daemon.until(READY, |_| listens(port))?;
            let (program, password) = (program.clone(), password.clone());
            Ok(Rsync { program, password, port, export: site.export.to_owned(), _daemon: daemon })
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("-a").arg("--password-file").arg(&self.password);
        command
    }

    fn remote(&self, path: &Path, payload: Payload) -> OsString {
        let mut remote = OsString::from(format!("rsync://{USER}@127.0.0.1:{}/export/", self.port));
        remote.push(path.strip_prefix(&self.export).unwrap_or(path));
        contents(remote, payload)
    }
}

/// A slash at the end means the contents of a directory.
fn contents(mut path: OsString, payload: Payload) -> OsString {
    if payload == Payload::Tree {
        path.push("/");
    }
    path
}

impl Contender for Rsync {
    fn label(&self, access: Access) -> Option<Label> {
        (access == Access::Commands).then_some(Label::peer("rsync"))
    }

    fn put(&self, payload: Payload, from: &Path, to: &Path) -> Command {
        let mut command = self.command();
        command.arg(contents(from.into(), payload)).arg(self.remote(to, payload));
        command
    }

    fn get(&self, payload: Payload, from: &Path, to: &Path) -> Command {
        let mut command = self.command();
        command.arg(self.remote(from, payload)).arg(contents(to.into(), payload));
        command
    }

    fn list(&self, tree: &Path) -> Option<Command> {
        let mut command = self.command();
        command.arg("--list-only").arg(self.remote(tree, Payload::Tree));
        Some(command)
    }

    fn mount(&self, _: &Path) -> Option<Command> {
        None
    }

    fn by_clients(&self) -> bool {
        true
    }

    fn how(&self) -> String {
        "rsync -a with a daemon over loopback, no encryption".to_owned()
    }
}
