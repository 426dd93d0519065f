//! sshfs and scp, with an sshd of their own: its keys, its configuration, its port.

use super::{
    contender::{Access, Contender, Label, Payload, READY, Site, listens, on_free_port},
    process::{self, Daemon},
};
use crate::{
    exit::{Code, Failure, Outcome},
    scratch,
};
use rustix::process::geteuid;
use std::{
    ffi::OsString,
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// The name of the server in the client's configuration.
const HOST: &str = "bench";

/// A fast cipher that both sides have: the default is slower on many machines.
const CIPHER: &str = "aes128-gcm@openssh.com";

/// The empty directory in which an sshd that root starts confines its unprivileged processes.
const PRIVILEGE_SEPARATION: &str = "/run/sshd";

pub(super) struct Ssh {
    sshfs: Option<PathBuf>,
    scp: Option<PathBuf>,
    config: PathBuf,
    export: PathBuf,
    _server: Daemon,
    _separation: Option<Separation>,
}

impl Ssh {
    pub(super) fn start(site: &Site<'_>) -> Outcome<Ssh> {
        let sshd = process::require("sshd", "openssh-server")?;
        let keygen = process::require("ssh-keygen", "openssh-client")?;
        let (sshfs, scp) = (process::find("sshfs"), process::find("scp"));
        if sshfs.is_none() && scp.is_none() {
            process::require("sshfs", "sshfs")?;
        }
        let separation = Separation::make()?;
        let (host, user) = (key(site, &keygen, "host-key")?, key(site, &keygen, "user-key")?);
        let own = site.own.display();
        let authorized = public(&user)?;
        site.write("authorized_keys", &authorized)?;
        let (server, port) = on_free_port(|port| {
            let text = format!(
                "ListenAddress 127.0.0.1\nPort {port}\nHostKey {}\nAuthorizedKeysFile \
                 {own}/authorized_keys\nStrictModes no\nUsePAM no\nPidFile none\n\
                 PermitRootLogin prohibit-password\nPasswordAuthentication no\n\
                 KbdInteractiveAuthentication no\nMaxStartups 100\nSubsystem sftp internal-sftp\n",
                host.display()
            );
            let config = site.write("sshd_config", &text)?;
            let mut command = Command::new(&sshd);
            command.args(["-D", "-e", "-f"]).arg(config);
            let mut server = site.logs.daemon(&command)?;
            server.until(READY, |_| listens(port))?;
            Ok((server, port))
        })?;
        let known = public(&host)?;
        site.write("known_hosts", &format!("[127.0.0.1]:{port} {known}"))?;
        let text = format!(
            "Host {HOST}\nHostName 127.0.0.1\nPort {port}\nUser {}\nIdentityFile {}\n\
             IdentitiesOnly yes\nIdentityAgent none\nUserKnownHostsFile {own}/known_hosts\n\
             StrictHostKeyChecking yes\nBatchMode yes\nLogLevel ERROR\nCompression no\n\
             Ciphers {CIPHER}\n",
            user_name()?,
            user.display()
        );
        let config = site.write("config", &text)?;
        let export = site.export.to_owned();
        Ok(Ssh { sshfs, scp, config, export, _server: server, _separation: separation })
    }

    fn remote(&self, path: &Path) -> OsString {
        let mut remote = OsString::from(format!("{HOST}:"));
        remote.push(path);
        remote
    }

    fn copy(&self, payload: Payload, from: OsString, to: OsString) -> Command {
        let mut command = Command::new(self.scp.as_deref().unwrap_or(Path::new("scp")));
        command.arg("-q").arg("-p").arg("-F").arg(&self.config);
        if payload == Payload::Tree {
            command.arg("-r");
        }
        command.arg(from).arg(to);
        command
    }
}

/// Makes a pair of keys; returns the path of the private one.
fn key(site: &Site<'_>, keygen: &Path, name: &str) -> Outcome<PathBuf> {
    let path = site.own.join(name);
    let mut command = Command::new(keygen);
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "petasos-bench", "-f"]).arg(&path);
    let running = site.logs.start(command, None)?;
    process::wait_all(vec![running], Instant::now(), READY)?;
    Ok(path)
}

fn public(key: &Path) -> Outcome<String> {
    let path = key.with_extension("pub");
    fs::read_to_string(&path).map_err(|error| Failure::file("reading", &path, &error))
}

/// The name of this process's user.
fn user_name() -> Outcome<String> {
    let uid = geteuid().as_raw().to_string();
    let known = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let of = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2) == Some(&&*uid)).then(|| fields[0].to_owned())
    };
    let named = known.lines().find_map(of).or_else(|| std::env::var("USER").ok());
    named.ok_or_else(|| Failure::new(Code::Unavailable, format!("user {uid} has no name")))
}

/// The directory that sshd needs, if it did not exist; removed when dropped.
struct Separation;

impl Separation {
    fn make() -> Outcome<Option<Separation>> {
        let path = Path::new(PRIVILEGE_SEPARATION);
        if !geteuid().is_root() || path.exists() {
            return Ok(None);
        }
        fs::DirBuilder::new()
            .mode(0o755)
            .create(path)
            .map_err(|e| Failure::file("making", path, &e))?;
        scratch::watch(path);
        Ok(Some(Separation))
    }
}

impl Drop for Separation {
    fn drop(&mut self) {
        scratch::unwatch(Path::new(PRIVILEGE_SEPARATION));
        // Only while it is empty, as it was made.
        let _ = fs::remove_dir(PRIVILEGE_SEPARATION);
    }
}

impl Contender for Ssh {
    fn label(&self, access: Access) -> Option<Label> {
        match access {
            Access::Commands => self.scp.as_ref().map(|_| Label::peer("scp")),
            Access::Mount => self.sshfs.as_ref().map(|_| Label::peer("sshfs")),
        }
    }

    fn put(&self, payload: Payload, from: &Path, to: &Path) -> Command {
        self.copy(payload, from.into(), self.remote(to))
    }

    fn get(&self, payload: Payload, from: &Path, to: &Path) -> Command {
        self.copy(payload, self.remote(from), to.into())
    }

    fn list(&self, _: &Path) -> Option<Command> {
        None
    }

    fn mount(&self, at: &Path) -> Option<Command> {
        let mut command = Command::new(self.sshfs.as_ref()?);
        command.arg("-f").arg("-F").arg(&self.config).arg(self.remote(&self.export)).arg(at);
        Some(command)
    }

    fn by_clients(&self) -> bool {
        false
    }

    fn how(&self) -> String {
        format!("sshfs and scp -p, with an sshd of their own and its SFTP, encrypted by {CIPHER}")
    }
}
