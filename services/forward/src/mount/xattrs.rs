//! Extended attributes of users. Those of the system stay on either side: what they mean depends on
//! the machine.

use super::{files::Open, fs::Fs};
use crate::protocol::XattrMode;
use bytes::Bytes;
use rustix::{fs::XattrFlags, io::Errno};
use std::rc::Rc;

const OURS: &[u8] = b"user.";

impl Fs {
    fn open_of(&self, ino: u64) -> Option<Rc<Open>> {
        self.files.known(ino)?.open_for(Open::is_alive)
    }

    pub(super) async fn get_xattr(&self, ino: u64, name: &[u8]) -> Result<Bytes, Errno> {
        if !name.starts_with(OURS) {
            // Without the server: `attach::is_dead` counts on it.
            return Err(Errno::OPNOTSUPP);
        }
        if let Some(open) = self.open_of(ino) {
            let value = open.file.get_xattr(name).await;
            return value.map_err(|error| self.file_errno(&open, &error));
        }
        let path = self.path(ino)?;
        self.again(async |remote| remote.get_xattr(&path, name).await).await
    }

    /// The names, each with a zero at its end.
    pub(super) async fn list_xattr(&self, ino: u64) -> Result<Vec<u8>, Errno> {
        let names = match self.open_of(ino) {
            Some(open) => {
                let names = open.file.list_xattr().await;
                names.map_err(|error| self.file_errno(&open, &error))
            }
            None => {
                let path = self.path(ino)?;
                self.again(async |remote| remote.list_xattr(&path).await).await
            }
        };
        let names = match names {
            Err(Errno::OPNOTSUPP) => Vec::new(),
            names => names?,
        };
        let ours = names.into_iter().filter(|name| name.starts_with(OURS));
        Ok(ours.flat_map(|name| name.into_iter().chain([0])).collect())
    }

    pub(super) async fn set_xattr(
        &self,
        ino: u64,
        name: &[u8],
        value: Bytes,
        flags: i32,
    ) -> Result<(), Errno> {
        if !name.starts_with(OURS) {
            return Err(Errno::OPNOTSUPP);
        }
        let flags = XattrFlags::from_bits_retain(flags as u32);
        let mode = match () {
            () if flags.is_empty() => XattrMode::Any,
            () if flags == XattrFlags::CREATE => XattrMode::Create,
            () if flags == XattrFlags::REPLACE => XattrMode::Replace,
            () => return Err(Errno::INVAL),
        };
        if let Some(open) = self.open_of(ino) {
            let set = open.file.set_xattr(name, value, mode).await;
            return set.map_err(|error| self.file_errno(&open, &error));
        }
        let path = self.path(ino)?;
        self.table.borrow_mut().untell(ino);
        self.once(async |remote| remote.set_xattr(&path, name, value, mode).await).await
    }

    pub(super) async fn remove_xattr(&self, ino: u64, name: &[u8]) -> Result<(), Errno> {
        if !name.starts_with(OURS) {
            return Err(Errno::OPNOTSUPP);
        }
        if let Some(open) = self.open_of(ino) {
            let removed = open.file.remove_xattr(name).await;
            return removed.map_err(|error| self.file_errno(&open, &error));
        }
        let path = self.path(ino)?;
        self.table.borrow_mut().untell(ino);
        self.once(async |remote| remote.remove_xattr(&path, name).await).await
    }
}
