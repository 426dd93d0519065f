//! An open file.

use super::{Remote, RemoteError};
use crate::{
    RelPath,
    protocol::{
        Allocation, Attr, Extent, Finish, ForwardClient, Hash, Lock, Node, OpenFlags, SetAttr,
        XattrMode,
    },
};
use bytes::Bytes;
use petasos::{
    CallOptions,
    fabric::{Access, Slice},
};
use std::{cell::Cell, time::Duration};

/// Pieces of memory that are lent with one descriptor.
const PIECES: usize = 64;

/// A file that is open at the server. Dropping it closes it, some time later;
/// [`RemoteFile::close`] waits for that.
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
/// # std::fs::write(folder.path().join("numbers"), b"0123456789")?;
/// engine.block_on(async {
///     let remote = Remote::connect(&engine, address, ConnectOptions::default()).await?;
///     let file = remote.open(&RelPath::parse(b"numbers")?, OpenFlags::READ, 0).await?;
///     let memory = Region::zeroed(100);
///     // Less than asked for: the end of the file.
///     assert_eq!(file.read_at(4, memory.whole()).await?, 6);
///     assert_eq!(memory.slice(0, 6).unwrap().to_vec(), b"456789");
///     Ok(())
/// })
/// # .map_err(|error: Box<dyn std::error::Error>| error)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RemoteFile {
    remote: Remote,
    subject: String,
    number: u64,
    attr: Attr,
    /// What its directory was when it was opened, which may have made it, where the session asks.
    pub(crate) directory: Option<Attr>,
    open: Cell<bool>,
}

impl RemoteFile {
    pub(super) fn new(remote: Remote, subject: String, number: u64, attr: Attr) -> RemoteFile {
        RemoteFile { remote, subject, number, attr, directory: None, open: Cell::new(true) }
    }

    /// Its attributes when it was opened.
    #[must_use]
    pub fn attr(&self) -> &Attr {
        &self.attr
    }

    /// What it is called in errors: the path by which it was opened.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Its session.
    #[must_use]
    pub fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Reads as much as `into` holds; less only at the end of the file. Gives how much there was.
    ///
    /// What is longer than a call carries is lent, and filled by the server. When this returns
    /// without an error, the memory is the caller's alone again. Dropping the future asks for the
    /// end of that; the engine keeps the memory until the network let go.
    ///
    /// # Errors
    /// [`RemoteError::Refused`] with the number that the system call gave at the server
    /// ([`RemoteError::errno`]), [`RemoteError::Call`] if there was no answer,
    /// [`RemoteError::Bulk`] if the memory cannot be lent, [`RemoteError::Ended`] if the session
    /// has ended, and with it the file is closed.
    pub async fn read_at(&self, offset: u64, into: Slice) -> Result<u64, RemoteError> {
        let (inline, window) = self.sizes();
        if into.len() <= inline {
            let data = self.read_bytes(offset, into.len() as u64).await?;
            let data = &data[..data.len().min(into.len())];
            into.part(0, data.len()).expect("no more than asked for").write(0, data);
            return Ok(data.len() as u64);
        }
        let mut done = 0;
        while done < into.len() {
            let part = into.part(done, (into.len() - done).min(window)).expect("a part");
            let asked = part.len();
            let lent = self.remote.engine().bulk(part, Access::WRITE)?;
            let at = offset + done as u64;
            let call = |c: &ForwardClient, id| c.read_into(id, self.number, at, lent.handle());
            let got = self.done("reading", call).await?.min(asked as u64) as usize;
            lent.close().await?;
            done += got;
            if got < asked {
                break;
            }
        }
        Ok(done as u64)
    }

    /// Reads up to `len` bytes, in one call: at most `Welcome::inline` come. Fewer than asked for
    /// come at the end of the file only, or beyond that limit.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn read_bytes(&self, offset: u64, len: u64) -> Result<Bytes, RemoteError> {
        let len = len.min(self.remote.welcome().inline);
        self.done("reading", |c, id| c.read(id, self.number, offset, len)).await
    }

    /// Writes all of `from`; gives where it ended, which with `APPEND` only the server knows.
    ///
    /// Dropping the future leaves open how much was written.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`]; how much was written is not known then.
    pub async fn write_at(&self, offset: u64, from: Slice) -> Result<u64, RemoteError> {
        let (inline, window) = self.sizes();
        if from.len() <= inline {
            return self.write_bytes(offset, Bytes::from(from.to_vec())).await;
        }
        let (mut done, mut end) = (0, offset);
        while done < from.len() {
            let part = from.part(done, (from.len() - done).min(window)).expect("a part");
            let len = part.len();
            let lent = self.remote.engine().bulk(part, Access::READ)?;
            let at = offset + done as u64;
            let call = |c: &ForwardClient, id| c.write_from(id, self.number, at, lent.handle());
            end = self.done("writing", call).await?;
            lent.close().await?;
            done += len;
        }
        Ok(end)
    }

    /// Lends memory of at most `Welcome::window` bytes, which the server fills as far as there is
    /// data; gives how much there was. The memory is the caller's own again then.
    ///
    /// Dropping the future asks for its end; the engine keeps the memory until the network let go.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn read_lent(&self, offset: u64, into: Slice) -> Result<u64, RemoteError> {
        let most = into.len() as u64;
        let lent = self.remote.engine().bulk(into, Access::WRITE)?;
        let call = |c: &ForwardClient, id| c.read_into(id, self.number, offset, lent.handle());
        let got = self.done("reading", call).await?;
        lent.close().await?;
        Ok(got.min(most))
    }

    /// Lends memory of at most `Welcome::window` bytes, all of which the server writes. The memory
    /// is the caller's own again then.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// As [`RemoteFile::write_at`].
    pub async fn write_lent(&self, offset: u64, from: Slice) -> Result<(), RemoteError> {
        let lent = self.remote.engine().bulk(from, Access::READ)?;
        let call = |c: &ForwardClient, id| c.write_from(id, self.number, offset, lent.handle());
        self.done("writing", call).await?;
        lent.close().await?;
        Ok(())
    }

    /// Reads into several pieces of memory, one after the other, as much as they hold; less only at
    /// the end of the file. Gives how much there was. Empty pieces are passed over.
    ///
    /// As many pieces are lent at once as fit `Welcome::window` and one descriptor; of more, one
    /// lot after the other. When this returns without an error, the memory is the caller's alone
    /// again. Dropping the future asks for the end of that; the engine keeps the memory until the
    /// network let go.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn read_vectored(&self, offset: u64, into: &[Slice]) -> Result<u64, RemoteError> {
        let mut done = 0;
        for lot in lots(into, self.sizes().1) {
            let asked: u64 = lot.iter().map(|piece| piece.len() as u64).sum();
            let lent = self.remote.engine().bulk_of(&lot, Access::WRITE)?;
            let at = offset + done;
            let call = |c: &ForwardClient, id| c.read_into(id, self.number, at, lent.handle());
            let got = self.done("reading", call).await?.min(asked);
            lent.close().await?;
            done += got;
            if got < asked {
                break;
            }
        }
        Ok(done)
    }

    /// Writes several pieces of memory, one after the other; gives where that ended, which with
    /// `APPEND` only the server knows. Empty pieces are passed over.
    ///
    /// They are lent as in [`RemoteFile::read_vectored`]. Dropping the future leaves open how much
    /// was written. With `APPEND`, what others append may come between two lots.
    ///
    /// # Errors
    /// As [`RemoteFile::write_at`].
    pub async fn write_vectored(&self, offset: u64, from: &[Slice]) -> Result<u64, RemoteError> {
        let (mut done, mut end) = (0, offset);
        for lot in lots(from, self.sizes().1) {
            let len: u64 = lot.iter().map(|piece| piece.len() as u64).sum();
            let lent = self.remote.engine().bulk_of(&lot, Access::READ)?;
            let at = offset + done;
            let call = |c: &ForwardClient, id| c.write_from(id, self.number, at, lent.handle());
            end = self.done("writing", call).await?;
            lent.close().await?;
            done += len;
        }
        Ok(end)
    }

    /// Writes data that travels within the call: at most `Welcome::inline` bytes.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// As [`RemoteFile::write_at`].
    pub async fn write_bytes(&self, offset: u64, data: Bytes) -> Result<u64, RemoteError> {
        self.done("writing", |c, id| c.write(id, self.number, offset, data.clone())).await
    }

    /// Puts what was written onto the disk.
    ///
    /// Dropping the future leaves open whether it is on the disk.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`]; what was written may then not be on the disk.
    pub async fn sync(&self, data_only: bool) -> Result<(), RemoteError> {
        self.done("putting onto the disk", |c, id| c.sync(id, self.number, data_only)).await
    }

    /// Its attributes now.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn stat(&self) -> Result<Attr, RemoteError> {
        self.done("reading attributes of", |c, id| c.stat(id, Node::File(self.number), true)).await
    }

    /// Changes attributes, its length among them.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn set_attr(&self, set: SetAttr) -> Result<Attr, RemoteError> {
        self.done("changing", |c, id| c.set_attr(id, Node::File(self.number), set, true)).await
    }

    /// Where there is data, from `offset` on: in order, at most 1,024 pieces.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn extents(&self, offset: u64) -> Result<Vec<Extent>, RemoteError> {
        self.done("finding holes of", |c, id| c.extents(id, self.number, offset)).await
    }

    /// BLAKE3 of each `block` bytes of a part.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn hashes(&self, range: Extent, block: u64) -> Result<Vec<Hash>, RemoteError> {
        self.done("hashing", |c, id| c.hashes(id, self.number, range, block)).await
    }

    /// Reserves room, or makes a hole.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`]; `NOSPC` if there is no room, `NOTSUP` where the file system
    /// cannot do it.
    pub async fn allocate(&self, how: Allocation, range: Extent) -> Result<(), RemoteError> {
        self.done("reserving room for", |c, id| c.allocate(id, self.number, how, range)).await
    }

    /// Locks a part, among the clients of the server. With `wait` for as long as the time limit of
    /// an operation allows; dropping the future gives up.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`]; `AGAIN` if it is taken and `wait` is not asked for, `TIMEDOUT`
    /// if it was not free in time.
    pub async fn lock(&self, lock: Lock, wait: bool) -> Result<(), RemoteError> {
        self.done("locking", |c, id| c.lock(id, self.number, lock, wait)).await
    }

    /// Locks a part; waits for so long at most, where a time is given: then the call's deadline
    /// ends it. Dropping the future gives up.
    ///
    /// # Errors
    /// As [`RemoteFile::lock`].
    pub async fn lock_within(
        &self,
        lock: Lock,
        longest: Option<Duration>,
    ) -> Result<(), RemoteError> {
        let Some(longest) = longest else { return self.lock(lock, false).await };
        let limited = CallOptions::default().timeout(longest);
        self.done("locking", |c, id| c.with(limited.clone()).lock(id, self.number, lock, true))
            .await
    }

    /// Frees a part.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn unlock(&self, lock: Lock) -> Result<(), RemoteError> {
        self.done("unlocking", |c, id| c.unlock(id, self.number, lock)).await
    }

    /// The first lock that would be in the way of this one.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn test_lock(&self, lock: Lock) -> Result<Option<Lock>, RemoteError> {
        self.done("looking for locks of", |c, id| c.test_lock(id, self.number, lock)).await
    }

    /// An extended attribute.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`]; `NODATA` if there is none of that name.
    pub async fn get_xattr(&self, name: &[u8]) -> Result<Bytes, RemoteError> {
        let node = Node::File(self.number);
        self.done("reading an attribute of", |c, id| c.get_xattr(id, node.clone(), name.to_vec()))
            .await
    }

    /// Sets an extended attribute.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn set_xattr(
        &self,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
    ) -> Result<(), RemoteError> {
        let node = Node::File(self.number);
        let call = |c: &ForwardClient, id| {
            c.set_xattr(id, node.clone(), name.to_vec(), value.clone(), mode)
        };
        self.done("setting an attribute of", call).await
    }

    /// The names of all extended attributes.
    ///
    /// Dropping the future gives the call up.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn list_xattr(&self) -> Result<Vec<Vec<u8>>, RemoteError> {
        let node = Node::File(self.number);
        self.done("reading the attributes of", |c, id| c.list_xattr(id, node.clone())).await
    }

    /// Removes an extended attribute.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`]; `NODATA` if there is none of that name.
    pub async fn remove_xattr(&self, name: &[u8]) -> Result<(), RemoteError> {
        let node = Node::File(self.number);
        let call = |c: &ForwardClient, id| c.remove_xattr(id, node.clone(), name.to_vec());
        self.done("removing an attribute of", call).await
    }

    /// Gives a staged file its name, and closes it.
    ///
    /// Dropping the future leaves open whether the file has its name.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`]; also if the hash of `finish` is not that of the data. The staged
    /// file stays.
    pub async fn publish(self, path: &RelPath, finish: Finish) -> Result<Attr, RemoteError> {
        let to = path.as_bytes().to_vec();
        let attr =
            self.done("completing", |c, id| c.publish(id, self.number, to.clone(), finish)).await?;
        self.open.set(false);
        Ok(attr)
    }

    /// Throws a staged file away.
    ///
    /// Dropping the future leaves open whether it is done.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn discard(self) -> Result<(), RemoteError> {
        self.done("throwing away", |c, id| c.discard(id, self.number)).await?;
        self.open.set(false);
        Ok(())
    }

    /// Opens it once more, whatever its name is by now; never makes or finds another file.
    ///
    /// Dropping the future gives the call up; what the server had opened is closed with the session
    /// at the latest.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`].
    pub async fn reopen(&self, flags: OpenFlags) -> Result<RemoteFile, RemoteError> {
        let call = |c: &ForwardClient, id| c.reopen(id, self.number, flags);
        let (number, attr) = self.done("opening", call).await?;
        Ok(RemoteFile::new(self.remote.clone(), self.subject.clone(), number, attr))
    }

    /// Closes it, and waits for that.
    ///
    /// Dropping the future leaves the rest to the session: the file is closed in any case.
    ///
    /// # Errors
    /// As [`RemoteFile::read_at`]; it is closed nevertheless.
    pub async fn close(self) -> Result<(), RemoteError> {
        self.open.set(false);
        self.done("closing", |c, id| c.close(id, self.number)).await
    }

    /// The most bytes within a call, and lent at once.
    fn sizes(&self) -> (usize, usize) {
        let welcome = self.remote.welcome();
        // A server that says zero would have us turn on the spot.
        (welcome.inline as usize, (welcome.window as usize).clamp(64 << 10, 1 << 30))
    }

    async fn done<T: petasos::wire::Wire>(
        &self,
        operation: &'static str,
        call: impl Fn(&ForwardClient, u64) -> petasos::TypedCall<crate::FsResult<T>>,
    ) -> Result<T, RemoteError> {
        self.remote.done(operation, || self.subject.clone(), call).await
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        if self.open.get() {
            close_later(&self.remote, self.number);
        }
    }
}

/// Pieces of memory in lots: each of at most `window` bytes, and of no more pieces than are lent
/// with one descriptor. What does not fit a lot is cut; what is empty is left out.
fn lots(pieces: &[Slice], window: usize) -> Vec<Vec<Slice>> {
    let (mut lots, mut lot, mut room) = (Vec::new(), Vec::new(), window);
    for piece in pieces {
        let mut at = 0;
        while at < piece.len() {
            if room == 0 || lot.len() == PIECES {
                lots.push(std::mem::take(&mut lot));
                room = window;
            }
            let part = piece.part(at, (piece.len() - at).min(room)).expect("a part");
            at += part.len();
            room -= part.len();
            lot.push(part);
        }
    }
    lots.extend(Some(lot).filter(|lot| !lot.is_empty()));
    lots
}

/// Closes a file or a directory, without waiting for that.
pub(super) fn close_later(remote: &Remote, number: u64) {
    let session = &remote.session;
    let call = session.client.close(session.welcome.session, number);
    // An error says that the session is gone, and the file with it.
    session.engine.spawn(async move {
        let _ = call.await;
    });
}
