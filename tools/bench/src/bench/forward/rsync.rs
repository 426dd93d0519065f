//! rsync with a daemon of its own.

use super::{
    contender::{Contender, READY, Site, Way, What, Who, listens, on_free_port},
    process::{self, Daemon},
};
use crate::exit::Outcome;
use rustix::process::{getgid, getuid};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

/// Who may come in, with the secret.
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
        let program = process::need("rsync", "rsync")?;
        let word = super::word_of(site.secret)?;
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

    fn place(&self, path: &Path, what: What) -> OsString {
        let mut place = OsString::from(format!("rsync://{USER}@127.0.0.1:{}/export/", self.port));
        place.push(path.strip_prefix(&self.export).unwrap_or(path));
        contents(place, what)
    }
}

/// With a slash at the end, what is in a directory is meant.
fn contents(mut path: OsString, what: What) -> OsString {
    if what == What::Tree {
        path.push("/");
    }
    path
}

impl Contender for Rsync {
    fn who(&self, way: Way) -> Option<Who> {
        (way == Way::Commands).then_some(Who::peer("rsync"))
    }

    fn put(&self, what: What, from: &Path, to: &Path) -> Command {
        let mut command = self.command();
        command.arg(contents(from.into(), what)).arg(self.place(to, what));
        command
    }

    fn get(&self, what: What, from: &Path, to: &Path) -> Command {
        let mut command = self.command();
        command.arg(self.place(from, what)).arg(contents(to.into(), what));
        command
    }

    fn list(&self, tree: &Path) -> Option<Command> {
        let mut command = self.command();
        command.arg("--list-only").arg(self.place(tree, What::Tree));
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
