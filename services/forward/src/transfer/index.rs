//! What is on the other side already, so that only what differs is sent.

use crate::protocol::{Attr, Kind};
use std::{
    collections::HashMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// What becomes of something of the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It is sent.
    Send,
    /// It is there.
    Same,
    /// It is there with other attributes.
    Attributes,
    /// Hashes must tell.
    Compare,
}

/// What there is in the target, by its path within the tree.
#[derive(Debug)]
pub(super) struct Index {
    entries: Mutex<HashMap<Vec<u8>, Attr>>,
    checksum: bool,
    owner: bool,
    /// Whether the target keeps times and modes.
    attributes: bool,
    /// The source could not be looked at as a whole.
    incomplete: AtomicBool,
}

impl Index {
    pub(super) fn new(
        entries: HashMap<Vec<u8>, Attr>,
        checksum: bool,
        owner: bool,
        attributes: bool,
    ) -> Index {
        let (entries, incomplete) = (Mutex::new(entries), AtomicBool::new(false));
        Index { entries, checksum, owner, attributes, incomplete }
    }

    /// Compares; what was decided about is no longer left over.
    pub(super) fn decide(&self, path: &[u8], source: &Attr) -> Decision {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(there) = entries.remove(path) else { return Decision::Send };
        drop(entries);
        if there.kind != source.kind {
            return Decision::Send;
        }
        let same_time = match self.attributes {
            true => there.mtime == source.mtime,
            false => there.mtime >= source.mtime,
        };
        let same_attr = !self.attributes
            || ((there.mode == source.mode || source.kind == Kind::Symlink)
                && (!self.owner || (there.uid, there.gid) == (source.uid, source.gid)));
        match source.kind {
            // Its attributes are set in any case, when all is in it.
            Kind::Directory => Decision::Same,
            Kind::File if there.size != source.size => Decision::Send,
            Kind::File if self.checksum => Decision::Compare,
            _ if !same_time || there.size != source.size => Decision::Send,
            _ if !same_attr => Decision::Attributes,
            _ => Decision::Same,
        }
    }

    /// Something of the source could not be seen: what seems to be missing there may be there.
    pub(super) fn incomplete(&self) {
        self.incomplete.store(true, Relaxed);
    }

    pub(super) fn is_complete(&self) -> bool {
        !self.incomplete.load(Relaxed)
    }

    /// What nothing was decided about; directories after what is in them.
    pub(super) fn left_over(&self) -> Vec<(Vec<u8>, Kind)> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let mut left: Vec<_> = entries.iter().map(|(path, a)| (path.clone(), a.kind)).collect();
        left.sort_by(|a, b| b.0.cmp(&a.0));
        left
    }
}
