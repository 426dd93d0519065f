//! The limit: the same work on the local file system, which is to say the system's page cache.

use super::{
    contender::{Contender, Kind, Way, What, Who},
    process,
};
use crate::exit::Outcome;
use std::{
    path::{Path, PathBuf},
    process::Command,
};

pub(super) struct Local {
    cp: PathBuf,
    ls: PathBuf,
}

impl Local {
    pub(super) fn new() -> Outcome<Local> {
        let standard = |name: &str| {
            let usual = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(name));
            let found = process::find(name).or_else(|| usual.into_iter().find(|at| at.is_file()));
            found.map_or_else(|| process::need(name, "coreutils"), Ok)
        };
        Ok(Local { cp: standard("cp")?, ls: standard("ls")? })
    }

    fn copy(&self, from: &Path, to: &Path) -> Command {
        let mut command = Command::new(&self.cp);
        // A real copy, also where two files could share their blocks; it is the faster way as well.
        command.args(["-a", "--reflink=never"]).arg(from).arg(to);
        command
    }
}

impl Contender for Local {
    fn who(&self, way: Way) -> Option<Who> {
        let name = if way == Way::Commands { "cp" } else { "local" };
        Some(Who { name, kind: Kind::Limit, over: "disk" })
    }

    fn put(&self, _: What, from: &Path, to: &Path) -> Command {
        self.copy(from, to)
    }

    fn get(&self, _: What, from: &Path, to: &Path) -> Command {
        self.copy(from, to)
    }

    fn list(&self, tree: &Path) -> Option<Command> {
        let mut command = Command::new(&self.ls);
        command.arg("-R").arg(tree);
        Some(command)
    }

    fn mount(&self, _: &Path) -> Option<Command> {
        None
    }

    fn by_clients(&self) -> bool {
        true
    }

    fn how(&self) -> String {
        "cp -a, and calls on the file system itself; nothing waits for the disk, so that it is the \
         limit of the page cache"
            .to_owned()
    }
}
