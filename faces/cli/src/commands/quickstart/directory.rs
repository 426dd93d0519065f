//! The server's directory, for this command alone while it runs.
//!
//! The server is one of `petasos-forward`. A lock on a file of the directory says that it is in
//! use: the lock is free when its owner has gone, however that was. Its next owner empties the
//! directory first, of the copy that a command left that was killed; what such a command was
//! sending is staged, and the server discards it.

use super::{
    source::Source,
    tree::{Entry, Kind},
};
use crate::{
    exit::{Code, Failure, Outcome},
    pair::ServerConnection,
};
use futures_util::{StreamExt, TryStreamExt, stream, stream::FuturesUnordered};
use petasos::CallError;
use petasos_forward::{
    RelPath,
    client::{ConnectOptions, Remote, RemoteError, RemoteFile},
    protocol::{self, Lock, OpenFlags, SetAttr},
    transfer::{Connection, remove_tree},
};
use rustix::io::Errno;
use std::{rc::Rc, time::Duration};

/// An operation may wait for a slow disk.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A server that says nothing for so long, while it is asked, is given up.
const SILENCE: Duration = Duration::from_secs(20);

/// How long the server may take to begin a session.
const PATIENCE: Duration = Duration::from_secs(20);

/// Calls on the way while the directory is emptied, or listed.
const PARALLEL: usize = 64;

const LOCK: &[u8] = b"lock";
const COPY: &[u8] = b"copy";

/// The directory, ours until this is dropped.
pub(super) struct ServerDirectory {
    connection: Rc<Connection>,
    lock: RemoteFile,
}

impl ServerDirectory {
    pub(super) async fn begin(connection: &ServerConnection) -> Outcome<ServerDirectory> {
        // A server that is there answers this one, with files or without.
        connection.bench().null().await?;
        let name = format!("petasos quickstart, process {}", std::process::id());
        let mut options = ConnectOptions::default().name(name).timeout(TIMEOUT);
        options.silence = Some(SILENCE);
        options.patience = Some(PATIENCE);
        // Another session would have another lock: what is lost stays lost.
        let connection =
            Connection::connect(&connection.engine, &connection.address, options, Duration::ZERO);
        let connection = Rc::new(connection.await.map_err(without_files)?);
        let flags = OpenFlags::READ.with(OpenFlags::WRITE).with(OpenFlags::CREATE);
        let lock = connection.remote().open(&path(LOCK)?, flags, 0o600).await?;
        let pid = std::process::id();
        let whole = Lock { owner: 1, pid, exclusive: true, start: 0, end: u64::MAX };
        lock.lock(whole, false).await.map_err(taken)?;
        let directory = ServerDirectory { connection, lock };
        directory.empty().await?;
        Ok(directory)
    }

    pub(super) fn connection(&self) -> &Rc<Connection> {
        &self.connection
    }

    pub(super) fn remote(&self) -> Remote {
        self.connection.remote()
    }

    /// Where the copy is.
    pub(super) fn copy(&self) -> Outcome<RelPath> {
        path(COPY)
    }

    /// Where an entry of the source is in the copy.
    pub(super) fn path_of(&self, source: &Source, entry: &Entry) -> Outcome<RelPath> {
        match source.is_tree() {
            true => path(&[COPY, b"/", &entry.path[..]].concat()),
            false => self.copy(),
        }
    }

    /// What the copy consists of, in the words of the source.
    pub(super) async fn list(&self, source: &Source) -> Outcome<Vec<Entry>> {
        let (remote, root) = (self.remote(), self.copy()?);
        if !source.is_tree() {
            let name = source.entries.first().map(|entry| entry.path.clone()).unwrap_or_default();
            let attr = remote.stat(&root, false).await?;
            return Ok(vec![entry(&remote, root, name, attr).await?]);
        }
        // A round trip for each directory, and for each link: many at a time.
        let (mut open, mut coming) = (vec![(root, Vec::new())], FuturesUnordered::new());
        let mut found = Vec::new();
        loop {
            while coming.len() < PARALLEL
                && let Some((path, within)) = open.pop()
            {
                coming.push(names(&remote, path, within));
            }
            let Some(names) = coming.next().await.transpose()? else { break };
            let directories = names.iter().filter(|(.., it)| it.kind == protocol::Kind::Directory);
            open.extend(directories.map(|(path, name, _)| (path.clone(), name.clone())));
            found.extend(names);
        }
        let entries =
            stream::iter(found).map(|(path, name, attr)| entry(&remote, path, name, attr));
        let mut entries: Vec<_> = entries.buffer_unordered(PARALLEL).try_collect().await?;
        entries.sort();
        Ok(entries)
    }

    /// Removes everything but the lock.
    async fn empty(&self) -> Outcome {
        let remote = self.remote();
        for item in remote.read_dir(&RelPath::root()).await? {
            let path = path(&item.name)?;
            match item.attr.kind {
                protocol::Kind::Directory => {
                    open_up(&remote, &path).await?;
                    remove_tree(&remote, &path, PARALLEL).await?;
                }
                _ if item.name == LOCK => {}
                _ => remote.remove_file(&path).await?,
            }
        }
        Ok(())
    }

    /// Removes the copy and gives the directory back.
    pub(super) async fn end(self) -> Outcome {
        let emptied = self.empty().await;
        // Where one of these fails, the session has ended, and the lock with it.
        let _ = self.lock.close().await;
        if let Ok(connection) = Rc::try_unwrap(self.connection) {
            connection.disconnect().await;
        }
        emptied
    }
}

/// Something in the copy: where it is, and by which name within.
type Named = (RelPath, Vec<u8>, protocol::Attr);

/// What a directory of the copy has.
async fn names(remote: &Remote, directory: RelPath, within: Vec<u8>) -> Outcome<Vec<Named>> {
    let items = remote.read_dir(&directory).await?.into_iter().map(|item| {
        let path = directory.join(&item.name).map_err(odd)?;
        let name = match within.is_empty() {
            true => item.name,
            false => [&within[..], b"/", &item.name[..]].concat(),
        };
        Ok((path, name, item.attr))
    });
    items.collect()
}

/// What something in the copy is.
async fn entry(
    remote: &Remote,
    path: RelPath,
    name: Vec<u8>,
    attr: protocol::Attr,
) -> Outcome<Entry> {
    let (kind, mode) = match attr.kind {
        protocol::Kind::Directory => (Kind::Directory, attr.mode),
        protocol::Kind::Symlink => (Kind::Link(remote.read_link(&path).await?), 0),
        _ => (Kind::File(attr.size), attr.mode),
    };
    Ok(Entry { path: name, mode, kind })
}

/// Lets the server remove what is in directories that are closed to writing.
async fn open_up(remote: &Remote, path: &RelPath) -> Outcome {
    let mut left = vec![path.clone()];
    while let Some(directory) = left.pop() {
        let open = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        remote.set_attr(&directory, open, false).await?;
        for item in remote.read_dir(&directory).await? {
            if item.attr.kind == protocol::Kind::Directory {
                left.push(directory.join(&item.name).map_err(odd)?);
            }
        }
    }
    Ok(())
}

fn path(bytes: &[u8]) -> Outcome<RelPath> {
    RelPath::parse(bytes).map_err(odd)
}

fn odd(error: petasos_forward::PathError) -> Failure {
    Failure::new(Code::Failed, error)
}

/// What is wrong with a server that was reached and keeps no files.
fn without_files(error: RemoteError) -> Failure {
    match error {
        RemoteError::Call(CallError::NoSuchMethod { peer, .. }) => {
            Failure::new(Code::Failed, format!("{peer} keeps no files"))
                .advise("start it with --files: petasos serve --files --listen URL --secret FILE")
        }
        error => error.into(),
    }
}

fn taken(error: RemoteError) -> Failure {
    if error.errno() == Errno::AGAIN {
        return Failure::new(Code::Failed, "the server: another client has its files there")
            .advise("run it again when that one has done");
    }
    error.into()
}
