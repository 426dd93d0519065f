//! The client: calls like those of POSIX, asynchronous, on an engine of the caller's.
//!
//! ```no_run
//! # use petasos_forward::{RelPath, client::{ConnectOptions, Remote}, protocol::OpenFlags};
//! # use petasos::{Engine, EngineConfig, OpenOptions, fabric::{Address, Region}};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = petasos::open("shm://*", &OpenOptions::default())?;
//! let engine = Engine::new(endpoint, EngineConfig::default());
//! let server = Address::parse("shm://files")?;
//! engine.block_on(async {
//!     let remote = Remote::connect(&engine, &server, ConnectOptions::default()).await?;
//!     let path = RelPath::parse(b"results/step-7.dat")?;
//!     let file = remote.open(&path, OpenFlags::READ, 0).await?;
//!     let memory = Region::zeroed(16 << 20);
//!     let got = file.read_at(0, memory.whole()).await?;
//!     println!("{got} bytes of {}", file.attr().size);
//!     Ok(())
//! })
//! # }
//! ```

mod error;
mod file;
mod silence;

pub use error::RemoteError;
pub use file::RemoteFile;
use silence::Liveness;

use crate::{
    FsResult, RelPath,
    protocol::{
        Attr, Creation, DirEntry, Finish, ForwardClient, Hello, Kind, Node, OpenFlags, RenameMode,
        SetAttr, StageKey, StatFs, Status, VERSION, Welcome, XattrMode,
    },
    timer::TimerThread,
};
use bytes::Bytes;
use futures_channel::oneshot;
use petasos::{CallOptions, Engine, TypedCall, fabric::Address, wire::Wire};
use rustix::io::Errno;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    fmt,
    rc::Rc,
    time::Duration,
};

/// How to connect.
///
/// ```
/// use petasos_forward::client::ConnectOptions;
/// use std::time::Duration;
///
/// let mut options = ConnectOptions::default().name("rank 17").timeout(Duration::from_secs(300));
/// // A server that is not there is noticed within seconds, one that hangs within a minute.
/// options.patience = Some(Duration::from_secs(5));
/// options.silence = Some(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectOptions {
    /// What the server's status calls this client. Default: the process' number.
    pub name: String,
    /// Time limit of each operation. Default: 60 s, as a disk may be slow.
    pub timeout: Duration,
    /// Time limit of the first call, `hello`. Default: that of operations.
    pub patience: Option<Duration>,
    /// A session whose server sends nothing for so long, while operations are under way, is given
    /// up, and they fail with [`RemoteError::Ended`]: the process may be stopped, or the network
    /// broken. A server whose disk is slow does answer, as it is asked from time to time.
    /// Default: never; then each operation fails for itself, at its time limit.
    pub silence: Option<Duration>,
    /// Whether answers that give or take a name are to tell what its directory is then.
    pub(crate) directories: bool,
}

impl Default for ConnectOptions {
    fn default() -> ConnectOptions {
        let name = format!("process {}", std::process::id());
        let timeout = Duration::from_secs(60);
        ConnectOptions { name, timeout, patience: None, silence: None, directories: false }
    }
}

impl ConnectOptions {
    /// Sets the name.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> ConnectOptions {
        self.name = name.into();
        self
    }

    /// Sets the time limit of each operation.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> ConnectOptions {
        self.timeout = timeout;
        self
    }
}

/// How often a client renews its lease within it.
const RENEWALS: u32 = 4;

/// What was made, and what its directory is with it, where the session asks for that.
type Made = Result<(Attr, Option<Attr>), RemoteError>;

/// A session with a server. Cheap to clone; belongs to its engine's thread.
///
/// The session ends with the last clone and the last file, or when the server goes away: then all
/// operations fail with [`RemoteError::Ended`], and a new one can be begun.
///
/// Operations are `async fn`s: nothing is sent before their future is polled, unlike the calls of a
/// service's own client, which are under way when the method has returned. Several at a time go on
/// side by side when they are polled together, as by `futures_util::future::join_all`, or each in a
/// task of the engine. Dropping the future cancels the operation, and leaves open whether it was
/// done.
///
/// ```
/// use petasos_forward::{RelPath, client::{ConnectOptions, Remote}, protocol::OpenFlags};
/// use petasos::Region;
///
/// # use petasos_forward::{server::{Server, ServerConfig}, storage::Local};
/// # use petasos::{Engine, EngineConfig, OpenOptions};
/// # use std::sync::Arc;
/// # let folder = tempfile::tempdir()?;
/// # let storage = Arc::new(Local::open(folder.path())?);
/// # let server =
/// #     Server::listen(storage, &["self://*"], &OpenOptions::default(), ServerConfig::default())?;
/// # let address = &server.addresses()[0];
/// # let endpoint = petasos::open("self://*", &OpenOptions::default())?;
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// engine.block_on(async {
///     let remote = Remote::connect(&engine, address, ConnectOptions::default()).await?;
///     let path = RelPath::parse(b"hello.txt")?;
///     let flags = OpenFlags::READ.with(OpenFlags::WRITE).with(OpenFlags::CREATE);
///     let file = remote.open(&path, flags, 0o644).await?;
///     let end = file.write_at(0, Region::from_vec(b"hello".to_vec()).whole()).await?;
///     assert_eq!((end, remote.stat(&path, true).await?.size), (5, 5));
///     file.close().await?;
///     remote.disconnect().await?;
///     Ok(())
/// })
/// # .map_err(|error: Box<dyn std::error::Error>| error)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Remote {
    session: Rc<Session>,
}

struct Session {
    engine: Engine,
    client: ForwardClient,
    peer: Address,
    welcome: Welcome,
    /// Why it ended, if it did.
    ended: RefCell<Option<String>>,
    /// What is known of whether the server is there.
    liveness: Liveness,
    /// Calls under way.
    calls: Cell<usize>,
    /// Calls that the server had no room for: each begins again when another one has ended.
    refused: RefCell<VecDeque<oneshot::Sender<()>>>,
    /// Taken away when the session is dropped, which gives the call up that keeps it.
    hold: Cell<Option<oneshot::Sender<()>>>,
}

impl Remote {
    /// Begins a session with the server at `address`.
    ///
    /// Dropping the future gives up: a session begins when this is ready.
    ///
    /// # Errors
    /// If there is no server, it has another version, or it has no room for another client.
    pub async fn connect(
        engine: &Engine,
        address: &Address,
        options: ConnectOptions,
    ) -> Result<Remote, RemoteError> {
        let base = ForwardClient::new(engine, address);
        let client = base.with(CallOptions::default().timeout(options.timeout));
        let hello = Hello { version: VERSION };
        let patience = options.patience.unwrap_or(options.timeout);
        let first = base.with(CallOptions::default().timeout(patience));
        let welcome = first.hello(hello).await?;
        let welcome = refused("connecting to", || address.to_string(), welcome)?;
        let (hold, dropped) = oneshot::channel();
        let session = Rc::new(Session {
            engine: engine.clone(),
            client,
            peer: address.clone(),
            welcome,
            ended: RefCell::default(),
            liveness: Liveness::default(),
            calls: Cell::new(0),
            refused: RefCell::default(),
            hold: Cell::new(Some(hold)),
        });
        let forever = base.with(CallOptions::default().timeout(Duration::MAX));
        let Welcome { session: id, ticket, .. } = session.welcome;
        let held = forever.hold(id, ticket, options.name, options.directories);
        if session.welcome.lease_ms > 0 {
            renew(&session);
        }
        if let Some(longest) = options.silence {
            silence::watch(&session, longest);
        }
        let weak = Rc::downgrade(&session);
        engine.spawn(async move {
            let reason = match futures_util::future::select(held, dropped).await {
                futures_util::future::Either::Left((Ok(Ok(())), _)) => {
                    "the server ended it".to_owned()
                }
                futures_util::future::Either::Left((Ok(Err(error)), _)) => error.to_string(),
                futures_util::future::Either::Left((Err(error), _)) => error.to_string(),
                futures_util::future::Either::Right(_) => return,
            };
            if let Some(session) = weak.upgrade() {
                session.ended.replace(Some(reason));
            }
        });
        Ok(Remote { session })
    }

    /// The server's answer to `hello`: limits, and what it can do.
    #[must_use]
    pub fn welcome(&self) -> &Welcome {
        &self.session.welcome
    }

    /// The server.
    #[must_use]
    pub fn peer(&self) -> &Address {
        &self.session.peer
    }

    /// Whether both are of one session.
    #[must_use]
    pub fn is_same(&self, other: &Remote) -> bool {
        Rc::ptr_eq(&self.session, &other.session)
    }

    /// The engine on which all this runs.
    #[must_use]
    pub fn engine(&self) -> &Engine {
        &self.session.engine
    }

    /// Why the session has ended, if it has.
    #[must_use]
    pub fn ended(&self) -> Option<String> {
        self.session.ended.borrow().clone()
    }

    /// For how long the server has sent nothing, while operations were under way: as
    /// [`ConnectOptions::silence`] counts.
    #[must_use]
    pub fn silent_for(&self) -> Duration {
        self.session.liveness.silence()
    }

    /// Whether the server has answered anything in this session, beyond its beginning.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.session.liveness.ever()
    }

    /// Ends the session, and waits until the server has closed what was open.
    ///
    /// Dropping the future leaves the rest to the server, which notices the end of the session.
    ///
    /// # Errors
    /// If the server does not answer: it then notices by itself, and closes what was open.
    pub async fn disconnect(self) -> Result<(), RemoteError> {
        self.done("ending the session with", || self.peer().to_string(), |c, id| c.goodbye(id))
            .await
    }

    /// What the server does, and for which clients.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// [`RemoteError::Call`] if there was no answer.
    pub async fn status(&self) -> Result<Status, RemoteError> {
        Ok(self.session.client.status().await?)
    }

    /// The attributes of a path. A symbolic link at the end is followed only with `follow`.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// [`RemoteError::Refused`] with the number that the system call gave at the server
    /// ([`RemoteError::errno`]): `NOENT` if there is no such name. [`RemoteError::Call`] if there
    /// was no answer, [`RemoteError::Ended`] if the session has ended.
    pub async fn stat(&self, path: &RelPath, follow: bool) -> Result<Attr, RemoteError> {
        self.done(
            "reading attributes of",
            || path.to_string(),
            |c, id| c.stat(id, node(path), follow),
        )
        .await
    }

    /// Changes attributes.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// `PERM` or `ACCESS` without the right. For the rest as [`Remote::stat`].
    pub async fn set_attr(
        &self,
        path: &RelPath,
        set: SetAttr,
        follow: bool,
    ) -> Result<Attr, RemoteError> {
        let call = |c: &ForwardClient, id| c.set_attr(id, node(path), set, follow);
        self.done("changing", || path.to_string(), call).await
    }

    /// All that is in a directory, in no order.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// `NOTDIR` if it is no directory. For the rest as [`Remote::stat`].
    pub async fn read_dir(&self, path: &RelPath) -> Result<Vec<DirEntry>, RemoteError> {
        let mut dir = self.open_dir(path).await?;
        let mut entries = Vec::new();
        while let Some(mut page) = dir.next_page().await? {
            entries.append(&mut page);
        }
        Ok(entries)
    }

    /// Opens a directory, to be read page by page.
    ///
    /// Dropping the future gives the call up; what the server had opened is closed with the session
    /// at the latest.
    ///
    /// # Errors
    /// `NOTDIR` if it is no directory. For the rest as [`Remote::stat`].
    pub async fn open_dir(&self, path: &RelPath) -> Result<RemoteDir, RemoteError> {
        let subject = path.to_string();
        let call = |c: &ForwardClient, id| c.open_dir(id, bytes(path));
        let (number, page) = self.done("opening", || subject.clone(), call).await?;
        let more = page.more;
        let first = Some(page.entries);
        Ok(RemoteDir { remote: self.clone(), subject, number, first, more })
    }

    /// Makes a directory.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// `EXIST` if there is something of that name. For the rest as [`Remote::stat`].
    pub async fn make_dir(&self, path: &RelPath, creation: Creation) -> Result<Attr, RemoteError> {
        Ok(self.make_dir_in(path, creation).await?.0)
    }

    /// The same, with the attributes of the directory of the new one is then.
    pub(crate) async fn make_dir_in(&self, path: &RelPath, creation: Creation) -> Made {
        let call = |c: &ForwardClient, id| c.make_dir(id, bytes(path), creation);
        self.done("making the directory", || path.to_string(), call).await
    }

    /// Makes a symbolic link to `target`.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// `EXIST` if there is something of that name. For the rest as [`Remote::stat`].
    pub async fn make_symlink(&self, path: &RelPath, target: &[u8]) -> Result<Attr, RemoteError> {
        Ok(self.make_symlink_in(path, target).await?.0)
    }

    /// The same, with the attributes of the directory of the link is then.
    pub(crate) async fn make_symlink_in(&self, path: &RelPath, target: &[u8]) -> Made {
        let call = |c: &ForwardClient, id| c.make_symlink(id, bytes(path), target.to_vec());
        self.done("making the link", || path.to_string(), call).await
    }

    /// Makes a FIFO or a socket.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// `EXIST` if there is something of that name, `PERM` for a device. For the rest as
    /// [`Remote::stat`].
    pub async fn make_node(
        &self,
        path: &RelPath,
        kind: Kind,
        creation: Creation,
    ) -> Result<Attr, RemoteError> {
        Ok(self.make_node_in(path, kind, creation).await?.0)
    }

    /// The same, with the attributes of the directory of the new one is then.
    pub(crate) async fn make_node_in(
        &self,
        path: &RelPath,
        kind: Kind,
        creation: Creation,
    ) -> Made {
        let call = |c: &ForwardClient, id| c.make_node(id, bytes(path), kind, creation);
        self.done("making", || path.to_string(), call).await
    }

    /// The target of a symbolic link.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// `INVAL` if it is no symbolic link. For the rest as [`Remote::stat`].
    pub async fn read_link(&self, path: &RelPath) -> Result<Vec<u8>, RemoteError> {
        self.done("reading the link", || path.to_string(), |c, id| c.read_link(id, bytes(path)))
            .await
    }

    /// Makes a hard link: another name of a file.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// `EXIST` if there is something named `to`. For the rest as [`Remote::stat`].
    pub async fn hard_link(&self, from: &RelPath, to: &RelPath) -> Result<Attr, RemoteError> {
        Ok(self.hard_link_in(from, to).await?.0)
    }

    /// The same, with the attributes of the directory of the new name is then.
    pub(crate) async fn hard_link_in(&self, from: &RelPath, to: &RelPath) -> Made {
        let call = |c: &ForwardClient, id| c.hard_link(id, bytes(from), bytes(to));
        self.done("linking", || format!("{from} to {to}"), call).await
    }

    /// Renames something.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// `EXIST` if `mode` forbids to replace what is there, `NOTEMPTY` for a directory that is not
    /// empty. For the rest as [`Remote::stat`].
    pub async fn rename(
        &self,
        from: &RelPath,
        to: &RelPath,
        mode: RenameMode,
    ) -> Result<(), RemoteError> {
        self.rename_in(from, to, mode).await.map(drop)
    }

    /// The same, with what the former directory is then, and the new one.
    pub(crate) async fn rename_in(
        &self,
        from: &RelPath,
        to: &RelPath,
        mode: RenameMode,
    ) -> Result<(Option<Attr>, Option<Attr>), RemoteError> {
        let call = |c: &ForwardClient, id| c.rename(id, bytes(from), bytes(to), mode);
        self.done("renaming", || format!("{from} to {to}"), call).await
    }

    /// Removes a file.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// `ISDIR` for a directory. For the rest as [`Remote::stat`].
    pub async fn remove_file(&self, path: &RelPath) -> Result<(), RemoteError> {
        self.remove_in(path, false).await.map(drop)
    }

    /// Removes an empty directory.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// `NOTEMPTY` if there is something in it, `NOTDIR` if it is no directory. For the rest as
    /// [`Remote::stat`].
    pub async fn remove_dir(&self, path: &RelPath) -> Result<(), RemoteError> {
        self.remove_in(path, true).await.map(drop)
    }

    /// Removes a file or a directory, and gives what the directory is then that it was in.
    pub(crate) async fn remove_in(
        &self,
        path: &RelPath,
        directory: bool,
    ) -> Result<Option<Attr>, RemoteError> {
        let call = |c: &ForwardClient, id| c.remove(id, bytes(path), directory);
        self.done("removing", || path.to_string(), call).await
    }

    /// How full the file system is.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// As [`Remote::stat`].
    pub async fn stat_fs(&self) -> Result<StatFs, RemoteError> {
        self.done("asking for the room of", || self.peer().to_string(), |c, id| c.stat_fs(id)).await
    }

    /// An extended attribute.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// `NODATA` if there is none of that name. For the rest as [`Remote::stat`].
    pub async fn get_xattr(&self, path: &RelPath, name: &[u8]) -> Result<Bytes, RemoteError> {
        let call = |c: &ForwardClient, id| c.get_xattr(id, node(path), name.to_vec());
        self.done("reading an attribute of", || path.to_string(), call).await
    }

    /// The names of all extended attributes.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// As [`Remote::stat`].
    pub async fn list_xattr(&self, path: &RelPath) -> Result<Vec<Vec<u8>>, RemoteError> {
        let call = |c: &ForwardClient, id| c.list_xattr(id, node(path));
        self.done("reading the attributes of", || path.to_string(), call).await
    }

    /// Sets an extended attribute.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// `EXIST` or `NODATA`, as `mode` says. For the rest as [`Remote::stat`].
    pub async fn set_xattr(
        &self,
        path: &RelPath,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<(), RemoteError> {
        let call =
            |c: &ForwardClient, id| c.set_xattr(id, node(path), name.to_vec(), value.clone(), mode);
        self.done("setting an attribute of", || path.to_string(), call).await
    }

    /// Removes an extended attribute.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// `NODATA` if there is none of that name. For the rest as [`Remote::stat`].
    pub async fn remove_xattr(&self, path: &RelPath, name: &[u8]) -> Result<(), RemoteError> {
        let call = |c: &ForwardClient, id| c.remove_xattr(id, node(path), name.to_vec());
        self.done("removing an attribute of", || path.to_string(), call).await
    }

    /// Opens a file. A new one has these permissions, exactly.
    ///
    /// Dropping the future leaves open whether a new file was made; what the server had opened is
    /// closed with the session at the latest.
    ///
    /// # Errors
    /// `EXIST` as the flags say, `ISDIR` for a directory, `MFILE` if the session has as many files
    /// open as it may. For the rest as [`Remote::stat`].
    pub async fn open(
        &self,
        path: &RelPath,
        flags: OpenFlags,
        mode: u32,
    ) -> Result<RemoteFile, RemoteError> {
        self.open_as(path, flags, Creation { mode, owner: None }).await
    }

    /// The same, where a new file may belong to another user.
    ///
    /// A future that is dropped leaves the same as that of [`Remote::open`].
    ///
    /// # Errors
    /// As [`Remote::open`].
    pub async fn open_as(
        &self,
        path: &RelPath,
        flags: OpenFlags,
        creation: Creation,
    ) -> Result<RemoteFile, RemoteError> {
        let subject = path.to_string();
        let call = |c: &ForwardClient, id| c.open(id, bytes(path), flags, creation);
        let (number, attr, directory) = self.done("opening", || subject.clone(), call).await?;
        let mut file = RemoteFile::new(self.clone(), subject, number, attr);
        file.directory = directory;
        Ok(file)
    }

    /// A whole small file at once, in one step: at most `Welcome::inline` bytes.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// `TOOBIG` for more data than a call carries. For the rest as [`Remote::stat`].
    pub async fn put(
        &self,
        path: &RelPath,
        data: Bytes,
        finish: Finish,
    ) -> Result<Attr, RemoteError> {
        let call = |c: &ForwardClient, id| c.put(id, bytes(path), data.clone(), finish);
        self.done("writing", || path.to_string(), call).await
    }

    /// A whole small file at once, if it has at most `most` bytes; else only its attributes.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// As [`Remote::stat`].
    pub async fn get(
        &self,
        path: &RelPath,
        most: u64,
    ) -> Result<(Attr, Option<Bytes>), RemoteError> {
        self.done("reading", || path.to_string(), |c, id| c.get(id, bytes(path), most)).await
    }

    /// Begins or resumes a file that gets the name `path` when it is complete.
    ///
    /// Dropping the future gives the call up; what is staged stays at the server.
    ///
    /// # Errors
    /// `MFILE` if the session has as many files open as it may. For the rest as [`Remote::stat`].
    pub async fn stage(&self, key: StageKey, path: &RelPath) -> Result<RemoteFile, RemoteError> {
        let subject = path.to_string();
        let call = |c: &ForwardClient, id| c.stage(id, key, bytes(path));
        let (number, attr) = self.done("beginning", || subject.clone(), call).await?;
        Ok(RemoteFile::new(self.clone(), subject, number, attr))
    }

    /// Makes a call in this session: again, if the server has no room for it while others of ours
    /// are under way.
    async fn done<T: Wire>(
        &self,
        operation: &'static str,
        subject: impl FnOnce() -> String,
        call: impl Fn(&ForwardClient, u64) -> TypedCall<FsResult<T>>,
    ) -> Result<T, RemoteError> {
        let session = &*self.session;
        let answer = loop {
            // The peer is gone: it would be looked for once more.
            if let Some(reason) = self.ended() {
                return Err(RemoteError::Ended { peer: session.peer.to_string(), reason });
            }
            let under_way = UnderWay::new(session);
            let call = call(&session.client, session.welcome.session);
            let Some(answer) = session.liveness.until_given_up(call).await else { continue };
            drop(under_way);
            if answer.is_ok() {
                session.liveness.hear();
            }
            match &answer {
                Ok(Err(error)) if error.errno() == Errno::NOBUFS && session.calls.get() > 0 => {
                    let (sender, another_ended) = oneshot::channel();
                    session.refused.borrow_mut().push_back(sender);
                    let _ = another_ended.await;
                }
                _ => break answer,
            }
        };
        if !matches!(answer, Ok(Ok(_)))
            && let Some(reason) = self.ended()
        {
            return Err(RemoteError::Ended { peer: session.peer.to_string(), reason });
        }
        refused(operation, subject, answer?)
    }
}

/// A call under way. When it ends, or is given up, one that was refused may try again.
struct UnderWay<'a>(&'a Session);

impl UnderWay<'_> {
    fn new(session: &Session) -> UnderWay<'_> {
        session.calls.set(session.calls.get() + 1);
        UnderWay(session)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let session = self.0;
        session.calls.set(session.calls.get() - 1);
        let mut refused = session.refused.borrow_mut();
        while let Some(sender) = refused.pop_front() {
            // A call that does not wait any more leaves it to the next; the last call wakes all.
            if sender.send(()).is_ok() && session.calls.get() > 0 {
                break;
            }
        }
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({})", self.session.peer)
    }
}

/// Renews the lease, several times within it.
fn renew(session: &Rc<Session>) {
    let Welcome { session: id, lease_ms, .. } = session.welcome;
    let pause = Duration::from_millis(lease_ms) / RENEWALS;
    let Some(timer) = TimerThread::of_process() else { return };
    let weak = Rc::downgrade(session);
    session.engine.spawn(async move {
        loop {
            timer.sleep(pause).await;
            let Some(session) = weak.upgrade() else { return };
            let renewal = session.client.renew(id);
            drop(session);
            // An end is told by the call that keeps the session.
            if !matches!(renewal.await, Ok(Ok(()))) {
                return;
            }
        }
    });
}

impl Drop for Session {
    fn drop(&mut self) {
        // Wakes the task that holds the session at the server, which then gives that call up.
        self.hold.take();
    }
}

/// An open directory. Dropping it closes it, some time later.
///
/// What is in the directory all the time comes exactly once, in no order; what is made or removed
/// meanwhile may come.
///
/// ```
/// use petasos_forward::{RelPath, client::{ConnectOptions, Remote}};
///
/// # use petasos_forward::{server::{Server, ServerConfig}, storage::Local};
/// # use petasos::{Engine, EngineConfig, OpenOptions};
/// # use std::sync::Arc;
/// # let folder = tempfile::tempdir()?;
/// # let storage = Arc::new(Local::open(folder.path())?);
/// # let server =
/// #     Server::listen(storage, &["self://*"], &OpenOptions::default(), ServerConfig::default())?;
/// # let address = &server.addresses()[0];
/// # let endpoint = petasos::open("self://*", &OpenOptions::default())?;
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// # for name in ["a", "b"] { std::fs::write(folder.path().join(name), b"")?; }
/// engine.block_on(async {
///     let remote = Remote::connect(&engine, address, ConnectOptions::default()).await?;
///     let mut directory = remote.open_dir(&RelPath::root()).await?;
///     let mut names = Vec::new();
///     while let Some(entries) = directory.next_page().await? {
///         names.extend(entries.into_iter().map(|entry| entry.name));
///     }
///     names.sort();
///     assert_eq!(names, [b"a", b"b"]);
///     Ok(())
/// })
/// # .map_err(|error: Box<dyn std::error::Error>| error)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RemoteDir {
    remote: Remote,
    subject: String,
    number: u64,
    first: Option<Vec<DirEntry>>,
    more: bool,
}

impl RemoteDir {
    /// Its session.
    #[must_use]
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// The next entries, at most 1,024 with this crate's server; `None` after the last.
    ///
    /// Dropping the future gives the call up: the entries of that page may be lost.
    ///
    /// # Errors
    /// As [`Remote::stat`].
    pub async fn next_page(&mut self) -> Result<Option<Vec<DirEntry>>, RemoteError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if !self.more {
            return Ok(None);
        }
        let (number, subject) = (self.number, || self.subject.clone());
        let page = self.remote.done("reading", subject, |c, id| c.read_dir(id, number)).await?;
        self.more = page.more;
        Ok(Some(page.entries))
    }
}

impl Drop for RemoteDir {
    fn drop(&mut self) {
        // The server has closed it already where the first page was all.
        if self.number != 0 {
            file::close_later(&self.remote, self.number);
        }
    }
}

fn refused<T>(
    operation: &'static str,
    subject: impl FnOnce() -> String,
    answer: FsResult<T>,
) -> Result<T, RemoteError> {
    answer.map_err(|error| RemoteError::Refused { operation, subject: subject(), error })
}

fn bytes(path: &RelPath) -> Vec<u8> {
    path.as_bytes().to_vec()
}

fn node(path: &RelPath) -> Node {
    Node::Path(bytes(path))
}
