//! The limit: the same work on the local file system, that is, the system's page cache.

use super::{
    contender::{Access, Contender, Kind, Label, Payload},
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
            let usual = ["/usr/bin", "/bin"].map(|directory| Path::new(directory).join(name));
            let found = process::find(name).or_else(|| usual.into_iter().find(|at| at.is_file()));
            found.map_or_else(|| process::require(name, "coreutils"), Ok)
        };
        Ok(Local { cp: standard("cp")?, ls: standard("ls")? })
    }

    fn copy(&self, from: &Path, to: &Path) -> Command {
        let mut command = Command::new(&self.cp);
        // A real copy, also where two files could share their blocks; it is faster as well.
        command.args(["-a", "--reflink=never"]).arg(from).arg(to);
        command
    }
}

impl Contender for Local {
    fn label(&self, access: Access) -> Option<Label> {
        let name = if access == Access::Commands { "cp" } else { "local" };
        Some(Label { name, kind: Kind::Limit, over: "disk" })
    }

    fn put(&self, _: Payload, from: &Path, to: &Path) -> Command {
        self.copy(from, to)
    }

    fn get(&self, _: Payload, from: &Path, to: &Path) -> Command {
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
