//! One tree made like another.

use super::{
    Cause, Connection, Event, Observer, Options, Problem, Progress, Report, SyncOptions,
    get::{GetJob, Target},
    index::Index,
    job::Job,
    local::{self, Root},
    put::{PutJob, tree},
};
use crate::{
    RelPath,
    protocol::{Attr, Creation, Kind},
};
use futures_util::{StreamExt, stream};
use rustix::{
    fs::{AtFlags, Dir, statat, unlinkat},
    io::Errno,
};
use std::{collections::HashMap, os::unix::ffi::OsStrExt, path::Path, rc::Rc, sync::Arc};

/// Makes a tree at a server like one here: what differs in length or time (with
/// [`Options::checksum`]: in hash) is sent, as a whole.
///
/// Dropping the future leaves the files that are complete; the next synchronisation continues from
/// there.
///
/// # Errors
/// Where nothing could be begun: the source is not there, the target cannot be looked at.
pub async fn sync_to(
    connection: &Rc<Connection>,
    from: &Path,
    to: &RelPath,
    options: &Options,
    sync: SyncOptions,
    progress: &Arc<Progress>,
    watch: Observer,
) -> Result<Report, Cause> {
    let job = Job::new(connection, options, progress, watch)?;
    let tree = tree(from, to)?;
    let (listing, there) = (Rc::clone(&job), to.clone());
    let entries = remote_tree(&listing, &there).await?;
    if !sync.dry_run {
        make_parents(connection, to).await?;
    }
    let attributes = connection.remote().welcome().abilities.attributes;
    let index = Index::new(entries, options.checksum, options.owner, attributes);
    let index = Arc::new(index);
    let putting = PutJob::new(job, Some(Arc::clone(&index)), sync.delete, sync.dry_run);
    putting.send(vec![tree]).await?;
    let job = &putting.job;
    if sync.delete && ready_to_delete(job, &index, from.as_os_str().as_bytes()) {
        for (path, kind) in to_delete(&index, options) {
            if job.is_over() {
                job.report().unreached += 1;
                continue;
            }
            job.say(Event::Delete(&path));
            if sync.dry_run {
                job.report().deleted += 1;
                continue;
            }
            let removed = async {
                let path = RelPath::parse(&[to.as_bytes(), b"/", &path].concat())?;
                let gone = connection.with(async |remote| match kind {
                    Kind::Directory => remote.remove_dir(&path).await,
                    _ => remote.remove_file(&path).await,
                });
                Ok::<_, Cause>(gone.await?)
            };
            match removed.await {
                Ok(()) => job.report().deleted += 1,
                Err(Cause::Remote(error)) if may_stay(error.errno()) => {}
                Err(cause) => job.failed(Problem { path, cause }),
            }
        }
    }
    if !sync.dry_run {
        putting.finish().await;
    }
    Ok(putting.job.finish())
}

/// Makes a tree here like one at a server: what differs in length or time (with
/// [`Options::checksum`]: in hash) is fetched, as a whole.
///
/// Dropping the future leaves the files that are complete; the next synchronisation continues from
/// there.
///
/// # Errors
/// Where nothing could be begun: the source is not there, the target cannot be looked at.
pub async fn sync_from(
    connection: &Rc<Connection>,
    from: &RelPath,
    to: &Path,
    options: &Options,
    sync: SyncOptions,
    progress: &Arc<Progress>,
    watch: Observer,
) -> Result<Report, Cause> {
    let job = Job::new(connection, options, progress, watch)?;
    connection.with(async |remote| remote.stat(from, false).await).await?;
    let target = Target::open(from, to)?;
    let looked = to.to_owned();
    let entries = job.disk.run(move || local_tree(&looked)).await;
    let entries = entries.map_err(Cause::local("listing what is there"))?;
    let index = Arc::new(Index::new(entries, options.checksum, options.owner, true));
    let getting = GetJob::new(job, Some(Arc::clone(&index)), sync.delete, sync.dry_run);
    getting.fetch(vec![target]).await;
    let job = &getting.job;
    if sync.delete && ready_to_delete(job, &index, from.as_bytes()) {
        for (path, kind) in to_delete(&index, options) {
            job.say(Event::Delete(&path));
            if sync.dry_run {
                job.report().deleted += 1;
                continue;
            }
            let (root, below) = (to.to_owned(), path.clone());
            let removed = job.disk.run(move || {
                let path = RelPath::parse(&below).map_err(|_| Errno::INVAL)?;
                let (parent, name) = path.split().ok_or(Errno::ISDIR)?;
                let flags = match kind {
                    Kind::Directory => AtFlags::REMOVEDIR,
                    _ => AtFlags::empty(),
                };
                unlinkat(Root::open(&root)?.directory(&parent)?, name, flags)
            });
            match removed.await {
                Ok(()) => job.report().deleted += 1,
                Err(error) if may_stay(error) => {}
                Err(error) => {
                    let cause = Cause::Local { doing: "removing", error };
                    job.failed(Problem { path, cause });
                }
            }
        }
    }
    if !sync.dry_run {
        getting.finish().await;
    }
    Ok(getting.job.finish())
}

/// What was not all seen is not judged by what is missing in it.
fn ready_to_delete(job: &Job, index: &Index, path: &[u8]) -> bool {
    if !index.is_complete() {
        let cause = Cause::Incomplete;
        job.failed(Problem { path: path.to_vec(), cause });
    }
    index.is_complete()
}

/// What the source does not have, but for what is left out, and the target itself.
fn to_delete(index: &Index, options: &Options) -> Vec<(Vec<u8>, Kind)> {
    let excluded = |path: &[u8], kind| {
        let above = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
        options.excludes(path, kind == Kind::Directory)
            || above.into_iter().any(|(at, _)| options.excludes(&path[..at], true))
    };
    let mut left = index.left_over();
    left.retain(|(path, kind)| !path.is_empty() && !excluded(path, *kind));
    left
}

/// It is gone, maybe with a directory that a file has replaced, or something is in it that is left
/// out.
fn may_stay(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::EXIST)
}

/// Makes the directories that lead to a place.
async fn make_parents(connection: &Connection, path: &RelPath) -> Result<(), Cause> {
    let mut above = Vec::new();
    let mut at = path.clone();
    while let Some((parent, _)) = at.split() {
        above.push(parent.clone());
        at = parent;
    }
    for path in above.iter().rev().filter(|path| !path.is_root()) {
        let creation = Creation { mode: 0o755, owner: None };
        match connection.with(async |remote| remote.make_dir(path, creation).await).await {
            Err(error) if error.errno() != Errno::EXIST => return Err(error.into()),
            _ => {}
        }
    }
    Ok(())
}

/// All that is at the server below a path, by the path within; nothing where nothing is.
async fn remote_tree(job: &Job, path: &RelPath) -> Result<HashMap<Vec<u8>, Attr>, Cause> {
    /// Directories that are read at a time.
    const AT_A_TIME: usize = 16;
    let mut entries = HashMap::new();
    match job.connection.with(async |remote| remote.stat(path, false).await).await {
        Err(error) if error.errno() == Errno::NOENT => return Ok(entries),
        attr => drop(entries.insert(Vec::new(), attr?)),
    }
    if entries.values().any(|attr| attr.kind != Kind::Directory) {
        return Ok(entries);
    }
    let mut level = vec![Vec::new()];
    while !level.is_empty() {
        let listings = stream::iter(std::mem::take(&mut level)).map(|within: Vec<u8>| async move {
            let directory = RelPath::parse(&[path.as_bytes(), b"/", &within].concat())?;
            let listed =
                job.connection.with(async |remote| remote.read_dir(&directory).await).await;
            match listed {
                // Gone meanwhile.
                Err(error) if error.errno() == Errno::NOENT => Ok((within, Vec::new())),
                listed => Ok::<_, Cause>((within, listed?)),
            }
        });
        let mut listings = std::pin::pin!(listings.buffer_unordered(AT_A_TIME));
        while let Some(listing) = listings.next().await {
            let (within, found) = listing?;
            for entry in found {
                // A name that is none would be no file's of ours either.
                if RelPath::root().join(&entry.name).is_err() {
                    continue;
                }
                let slash = if within.is_empty() { &b""[..] } else { b"/" };
                let path = [&within[..], slash, &entry.name].concat();
                if entry.attr.kind == Kind::Directory {
                    level.push(path.clone());
                }
                entries.insert(path, entry.attr);
            }
        }
    }
    Ok(entries)
}

/// All that is here below a path, by the path within; nothing where nothing is.
fn local_tree(path: &Path) -> Result<HashMap<Vec<u8>, Attr>, Errno> {
    let mut entries = HashMap::new();
    let found = match statat(rustix::fs::CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => return Ok(entries),
        found => local::attr(&found?),
    };
    entries.insert(Vec::new(), found);
    if found.kind != Kind::Directory {
        return Ok(entries);
    }
    let root = Root::open(path)?;
    let mut open = vec![RelPath::root()];
    while let Some(directory) = open.pop() {
        let fd = match root.directory(&directory) {
            Err(Errno::NOENT) => continue,
            fd => fd?,
        };
        for entry in Dir::read_from(&fd)? {
            let entry = entry?;
            let name = entry.file_name();
            let Ok(path) = directory.join(name.to_bytes()) else { continue };
            match statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    let attr = local::attr(&stat);
                    entries.insert(path.as_bytes().to_vec(), attr);
                    if attr.kind == Kind::Directory {
                        open.push(path);
                    }
                }
                Err(Errno::NOENT) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::symlink};

    #[test]
    fn links_and_files_are_listed() {
        let place = tempfile::tempdir().unwrap();
        let keep = place.path().join("keep");
        fs::create_dir(&keep).unwrap();
        fs::write(keep.join("x"), "x").unwrap();
        symlink(&keep, place.path().join("link")).unwrap();
        let tree = local_tree(place.path()).unwrap();
        let mut paths: Vec<_> = tree.keys().map(|p| String::from_utf8_lossy(p)).collect();
        paths.sort();
        assert_eq!(paths, ["", "keep", "keep/x", "link"]);
    }
}
