//! What a job has in files on this node: its private directory, and the one to which files are brought for its ranks.

use super::place::{self, Place};
use crate::launch::{FileMover, Key, Receiving};
use std::{
    io,
    net::IpAddr,
    path::{Path, PathBuf},
};

#[derive(Debug, Default)]
pub(super) struct JobFiles {
    place: Option<Place>,
    /// Where files of the job are brought to.
    stage: Option<Place>,
    /// They may come.
    receiving: Option<Receiving>,
}

impl JobFiles {
    /// Makes the private directory. Gives what is to be said if it is not where it is to be.
    pub(super) fn make(&mut self, name: &str) -> io::Result<Option<String>> {
        let (place, instead) = Place::make(name)?;
        self.place = Some(place);
        Ok(instead)
    }

    /// Makes the directory for files that are brought, below this one or where temporary files are. Gives what is to be
    /// said if it is not where it is to be.
    pub(super) fn make_stage(
        &mut self,
        directory: Option<&Path>,
        name: &str,
    ) -> Result<Option<String>, String> {
        let base = place::files_base(directory);
        let made = Place::below(&base, name);
        let (place, instead) =
            made.map_err(|error| format!("files, in {}: {error}", base.display()))?;
        self.stage = Some(place);
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
    pub(super) fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// The directory for files, if any are brought.
    pub(super) fn stage(&self) -> Option<&Path> {
        self.stage.as_ref().map(Place::path)
    }

    /// All directories.
    pub(super) fn directories(&self) -> Vec<PathBuf> {
        let all = [&self.place, &self.stage].into_iter().flatten();
        all.map(|place| place.path().to_owned()).collect()
    }

    /// Removes all of it.
    pub(super) fn remove(&mut self) {
        (self.place, self.stage) = (None, None);
    }
}
