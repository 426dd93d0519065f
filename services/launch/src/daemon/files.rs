//! What a job has in files on this node: its private directory, and the one to which files are
//! brought for its ranks.

use super::directory::{self, JobDirectory};
use crate::launch::{FileMover, Key, Receiving};
use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
};

#[derive(Debug, Default)]
pub(super) struct JobFiles {
    /// The private directory.
    directory: Option<JobDirectory>,
    /// Where files of the job are brought to.
    stage: Option<JobDirectory>,
    /// They may come.
    receiving: Option<Receiving>,
}

impl JobFiles {
    /// Makes the private directory. Gives what is to be said if it is not where it is to be.
    pub(super) fn make(&mut self, name: &str) -> io::Result<Option<String>> {
        let (directory, instead) = JobDirectory::make(name)?;
        self.directory = Some(directory);
        Ok(instead)
    }

    /// Makes the directory for files that are brought, below this one or where temporary files are.
    /// Gives what is to be said if it is not where it is to be.
    pub(super) fn make_stage(
        &mut self,
        directory: Option<&Path>,
        name: &str,
    ) -> Result<Option<String>, String> {
        let base = directory::files_base(directory);
        let made = JobDirectory::below(&base, name);
        let (stage, instead) =
            made.map_err(|error| format!("files, in {}: {error}", base.display()))?;
        self.stage = Some(stage);
        Ok(instead)
    }

    /// Takes files from now on; gives where.
    pub(super) fn receive(
        &mut self,
        mover: &dyn FileMover,
        own: Option<IpAddr>,
        key: &Key,
    ) -> Result<Vec<u8>, String> {
        let Some(stage) = &self.stage else { return Ok(Vec::new()) };
        let receiving = mover.receive(stage.path(), own, key)?;
        let address = receiving.address.clone();
        self.receiving = Some(receiving);
        Ok(address)
    }

    /// No more files come.
    pub(super) fn all_received(&mut self) {
        self.receiving = None;
    }

    /// The private directory, if there is one.
    pub(super) fn directory(&self) -> Option<&JobDirectory> {
        self.directory.as_ref()
    }

    /// The directory for files, if any are brought.
    pub(super) fn stage(&self) -> Option<&Path> {
        self.stage.as_ref().map(JobDirectory::path)
    }

    /// All directories.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let all = [&self.directory, &self.stage].into_iter().flatten();
        all.map(|directory| directory.path().to_owned()).collect()
    }

    /// Removes all of it.
    pub(super) fn remove(&mut self) {
        (self.directory, self.stage) = (None, None);
    }
}
