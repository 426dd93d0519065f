//! Calls about names and attributes.

use super::{
    call::{Call, entry, fresh},
    files::{Open, OpenDir, OpenFile},
    latencies::WorkKind,
};
use crate::{
    FsError, FsResult, RelPath,
    protocol::{Attr, Creation, Kind, Node, Page, RenameMode, SetAttr, SetTime, StatFs, XattrMode},
    storage::Storage,
};
use bytes::Bytes;
use rustix::io::Errno;
use std::sync::Arc;

/// Entries of a page of a directory: some 100 bytes each.
const PAGE: usize = 1024;

/// The longest name of an extended attribute, and the longest value (Linux's limits).
const XATTR_NAME: usize = 255;
const XATTR_VALUE: usize = 64 << 10;

/// The bits of a mode that can be set.
const MODE: u32 = 0o7777;

/// What a call is about, found.
enum Found {
    Path(RelPath),
    File(Arc<OpenFile>),
}

impl Call {
    fn find(&self, node: Node) -> FsResult<Found> {
        Ok(match node {
            Node::Path(path) => Found::Path(RelPath::parse(&path)?),
            Node::File(number) => Found::File(self.file(number)?),
        })
    }

    pub(super) async fn stat(&self, node: Node, follow: bool) -> FsResult<Attr> {
        let found = self.find(node)?;
        self.run_short(WorkKind::Stat, move |storage| match found {
            Found::Path(path) => storage.stat(&path, follow),
            Found::File(file) => file.file.attr(),
        })
        .await
    }

    pub(super) async fn set_attr(&self, node: Node, set: SetAttr, follow: bool) -> FsResult<Attr> {
        self.to_change()?;
        let set = checked_attr(set)?;
        let found = self.find(node)?;
        if let (Found::File(file), Some(_)) = (&found, set.size) {
            file.to_write()?;
        }
        self.run_short(WorkKind::Change, move |storage| match found {
            Found::Path(path) => storage.set_attr(&path, &set, follow),
            Found::File(file) => file.file.set_attr(&set),
        })
        .await
    }

    pub(super) async fn open_dir(&self, path: &[u8]) -> FsResult<(u64, Page)> {
        let path = RelPath::parse(path)?;
        let (place, descriptor) = self.reserve()?;
        let opened = self.run(0, move |storage| {
            let mut directory = storage.open_dir(&path)?;
            let page = directory.next(PAGE)?;
            Ok((directory, page))
        });
        let (directory, page) = opened.await?;
        if !page.more {
            return Ok((0, page));
        }
        let open = Open::Directory(Arc::new(OpenDir::new(directory, descriptor)));
        Ok((place.fill(open)?, page))
    }

    pub(super) async fn read_dir(&self, directory: u64) -> FsResult<Page> {
        let directory = self.session.files().directory(directory)?;
        self.run(0, move |_| directory.lock().next(PAGE)).await
    }

    /// Looks at the directory that a name is in, where the client wants to know of it.
    pub(super) fn above(&self) -> ParentAttr {
        ParentAttr { wanted: self.session.directories }
    }

    pub(super) async fn make_dir(
        &self,
        path: &[u8],
        creation: Creation,
    ) -> FsResult<(Attr, Option<Attr>)> {
        self.to_change()?;
        let (path, creation, above) = (fresh(path)?, checked_creation(creation)?, self.above());
        self.run_short(WorkKind::Make, move |storage| {
            Ok((storage.make_dir(&path, &creation)?, above.of(storage, &path)))
        })
        .await
    }

    pub(super) async fn make_symlink(
        &self,
        path: &[u8],
        target: Vec<u8>,
    ) -> FsResult<(Attr, Option<Attr>)> {
        self.to_change()?;
        let path = fresh(path)?;
        if target.len() > RelPath::MAX {
            let detail = format!("{} bytes in a symbolic link", target.len());
            return Err(FsError::new(Errno::NAMETOOLONG, detail));
        }
        if target.is_empty() || target.contains(&0) {
            return Err(FsError::new(Errno::INVAL, "a symbolic link that says nothing"));
        }
        let above = self.above();
        self.run_short(WorkKind::Make, move |storage| {
            Ok((storage.make_symlink(&path, &target)?, above.of(storage, &path)))
        })
        .await
    }

    pub(super) async fn make_node(
        &self,
        path: &[u8],
        kind: Kind,
        creation: Creation,
    ) -> FsResult<(Attr, Option<Attr>)> {
        self.to_change()?;
        let (path, creation) = (fresh(path)?, checked_creation(creation)?);
        match kind {
            Kind::Fifo | Kind::Socket => {}
            Kind::CharDevice | Kind::BlockDevice => {
                return Err(FsError::new(Errno::PERM, "devices are not made for clients"));
            }
            Kind::File | Kind::Directory | Kind::Symlink => {
                return Err(FsError::new(Errno::INVAL, "made by another call"));
            }
        }
        let above = self.above();
        self.run_short(WorkKind::Make, move |storage| {
            Ok((storage.make_node(&path, kind, &creation)?, above.of(storage, &path)))
        })
        .await
    }

    pub(super) async fn read_link(&self, path: &[u8]) -> FsResult<Vec<u8>> {
        let path = RelPath::parse(path)?;
        self.run_short(WorkKind::Stat, move |storage| storage.read_link(&path)).await
    }

    pub(super) async fn hard_link(&self, from: &[u8], to: &[u8]) -> FsResult<(Attr, Option<Attr>)> {
        self.to_change()?;
        let (from, to, above) = (entry(from)?, fresh(to)?, self.above());
        self.run_short(WorkKind::Make, move |storage| {
            Ok((storage.hard_link(&from, &to)?, above.of(storage, &to)))
        })
        .await
    }

    pub(super) async fn rename(
        &self,
        from: &[u8],
        to: &[u8],
        mode: RenameMode,
    ) -> FsResult<(Option<Attr>, Option<Attr>)> {
        self.to_change()?;
        let (from, to, above) = (entry(from)?, entry(to)?, self.above());
        self.run_short(WorkKind::Rename, move |storage| {
            storage.rename(&from, &to, mode)?;
            Ok((above.of(storage, &from), above.of(storage, &to)))
        })
        .await
    }

    pub(super) async fn remove(&self, path: &[u8], directory: bool) -> FsResult<Option<Attr>> {
        self.to_change()?;
        let (path, above) = (entry(path)?, self.above());
        self.run_short(WorkKind::Remove, move |storage| {
            storage.remove(&path, directory)?;
            Ok(above.of(storage, &path))
        })
        .await
    }

    pub(super) async fn stat_fs(&self) -> FsResult<StatFs> {
        self.run_short(WorkKind::Stat, Storage::stat_fs).await
    }

    pub(super) async fn get_xattr(&self, node: Node, name: Vec<u8>) -> FsResult<Bytes> {
        check_xattr(&name)?;
        let found = self.find(node)?;
        let value = self.run_short(WorkKind::Stat, move |storage| match found {
            Found::Path(path) => storage.get_xattr(&path, &name),
            Found::File(file) => file.file.get_xattr(&name),
        });
        value.await.map(Bytes::from)
    }

    pub(super) async fn list_xattr(&self, node: Node) -> FsResult<Vec<Vec<u8>>> {
        let found = self.find(node)?;
        self.run_short(WorkKind::Stat, move |storage| match found {
            Found::Path(path) => storage.list_xattr(&path),
            Found::File(file) => file.file.list_xattr(),
        })
        .await
    }

    pub(super) async fn set_xattr(
        &self,
        node: Node,
        name: Vec<u8>,
        value: Bytes,
        mode: XattrMode,
    ) -> FsResult<()> {
        self.to_change()?;
        check_xattr(&name)?;
        if value.len() > XATTR_VALUE {
            let detail = format!("{} bytes, the longest value has {XATTR_VALUE}", value.len());
            return Err(FsError::new(Errno::TOOBIG, detail));
        }
        let found = self.find(node)?;
        self.run_short(WorkKind::Change, move |storage| match found {
            Found::Path(path) => storage.set_xattr(&path, &name, &value, mode),
            Found::File(file) => file.file.set_xattr(&name, &value, mode),
        })
        .await
    }

    pub(super) async fn remove_xattr(&self, node: Node, name: Vec<u8>) -> FsResult<()> {
        self.to_change()?;
        check_xattr(&name)?;
        let found = self.find(node)?;
        self.run_short(WorkKind::Change, move |storage| match found {
            Found::Path(path) => storage.remove_xattr(&path, &name),
            Found::File(file) => file.file.remove_xattr(&name),
        })
        .await
    }
}

/// The attributes of the directory in which a name was given or taken, for clients that ask.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParentAttr {
    wanted: bool,
}

impl ParentAttr {
    /// To be asked for after the change, which was done whatever comes of this.
    pub(super) fn of(self, storage: &dyn Storage, path: &RelPath) -> Option<Attr> {
        let (directory, _) = path.split().filter(|_| self.wanted)?;
        storage.stat(&directory, true).ok()
    }
}

fn check_xattr(name: &[u8]) -> FsResult<()> {
    if name.is_empty() || name.len() > XATTR_NAME || name.contains(&0) {
        let detail = format!("{} bytes, a name has 1 to {XATTR_NAME} and no zero", name.len());
        return Err(FsError::new(Errno::RANGE, detail));
    }
    Ok(())
}

/// The number that means "none" to the system is no user's.
fn check_owner(id: Option<u32>) -> FsResult<()> {
    match id {
        Some(u32::MAX) => Err(FsError::new(Errno::INVAL, "no user or group has this number")),
        _ => Ok(()),
    }
}

fn check_time(time: SetTime) -> FsResult<()> {
    match time {
        SetTime::At(at) if at.nanos >= 1_000_000_000 => {
            Err(FsError::new(Errno::INVAL, format!("{} nanoseconds in a second", at.nanos)))
        }
        _ => Ok(()),
    }
}

/// Attributes that can be set.
pub(super) fn checked_attr(mut set: SetAttr) -> FsResult<SetAttr> {
    set.mode = set.mode.map(|mode| mode & MODE);
    check_owner(set.uid)?;
    check_owner(set.gid)?;
    check_time(set.atime)?;
    check_time(set.mtime)?;
    if let Some(size) = set.size {
        super::call::within_reach(size, 0)?;
    }
    Ok(set)
}

/// A beginning that can be.
pub(super) fn checked_creation(mut creation: Creation) -> FsResult<Creation> {
    creation.mode &= MODE;
    check_owner(creation.owner.map(|(uid, _)| uid))?;
    check_owner(creation.owner.map(|(_, gid)| gid))?;
    Ok(creation)
}
