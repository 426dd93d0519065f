//! The protocol, method by method.

use super::{
    call::Call,
    core::Core,
    errors::stopped,
    session::{End, Introduction},
};
use crate::{
    FsResult,
    protocol::{
        Allocation, Attr, Creation, Extent, Finish, Forward, Hash, Hello, Kind, Lock, Node,
        OpenFlags, Page, RenameMode, SetAttr, StageKey, StatFs, Status, Ticket, Welcome, XattrMode,
    },
};
use bytes::Bytes;
use petasos::{BulkHandle, Context};
use std::sync::Arc;

/// The longest path, in bytes.
const LONGEST: usize = 4096;

/// What one endpoint serves.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) core: Arc<Core>,
}

impl Service {
    /// Serves one call of a session.
    async fn serve<T>(
        &self,
        session: u64,
        work: impl AsyncFnOnce(&Call) -> FsResult<T>,
    ) -> FsResult<T> {
        self.serve_with(session, 0, work).await
    }

    /// The same where so many bytes came within the call.
    async fn serve_with<T>(
        &self,
        session: u64,
        carried: usize,
        work: impl AsyncFnOnce(&Call) -> FsResult<T>,
    ) -> FsResult<T> {
        let call = Call::begin(&self.core, session, carried).await?;
        let result = work(&call).await;
        call.end(result)
    }
}

/// Ends a session when it is dropped, as one whose client is gone.
#[derive(Debug)]
struct SessionGuard {
    session: u64,
    core: Arc<Core>,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.core.sessions.end(self.session, End::Lost);
    }
}

/// Paths and names of any sense are not worth counting; longer ones, which will be refused, are.
fn long(len: usize) -> usize {
    if len > 3 * LONGEST { len } else { 0 }
}

fn path_len(node: &Node) -> usize {
    match node {
        Node::Path(path) => path.len(),
        Node::File(_) => 0,
    }
}

impl Forward for Service {
    async fn hello(&self, context: Context, hello: Hello) -> FsResult<Welcome> {
        self.core.offer(&hello, &context.peer())
    }

    async fn hold(
        &self,
        context: Context,
        session: u64,
        ticket: Ticket,
        name: String,
        directories: bool,
    ) -> FsResult<()> {
        let client = Introduction { name, peer: context.peer(), directories };
        let ended = self.core.sessions.begin(session, &ticket, client)?;
        let _guard = SessionGuard { session, core: Arc::clone(&self.core) };
        ended.await.unwrap_or_else(|_| Err(stopped()))
    }

    async fn renew(&self, session: u64) -> FsResult<()> {
        self.core.sessions.get(session)?.hear();
        Ok(())
    }

    async fn goodbye(&self, session: u64) -> FsResult<()> {
        self.core.sessions.get(session)?;
        self.core.sessions.end(session, End::Goodbye);
        Ok(())
    }

    async fn status(&self) -> Status {
        self.core.status()
    }

    async fn stat(&self, session: u64, node: Node, follow: bool) -> FsResult<Attr> {
        let carried = long(path_len(&node));
        self.serve_with(session, carried, async |call| call.stat(node, follow).await).await
    }

    async fn set_attr(
        &self,
        session: u64,
        node: Node,
        set: SetAttr,
        follow: bool,
    ) -> FsResult<Attr> {
        let carried = long(path_len(&node));
        self.serve_with(session, carried, async |call| call.set_attr(node, set, follow).await).await
    }

    async fn open_dir(&self, session: u64, path: Vec<u8>) -> FsResult<(u64, Page)> {
        let carried = long(path.len());
        self.serve_with(session, carried, async |call| call.open_dir(&path).await).await
    }

    async fn read_dir(&self, session: u64, dir: u64) -> FsResult<Page> {
        self.serve(session, async |call| call.read_dir(dir).await).await
    }

    async fn make_dir(
        &self,
        session: u64,
        path: Vec<u8>,
        creation: Creation,
    ) -> FsResult<(Attr, Option<Attr>)> {
        let carried = long(path.len());
        self.serve_with(session, carried, async |call| call.make_dir(&path, creation).await).await
    }

    async fn make_symlink(
        &self,
        session: u64,
        path: Vec<u8>,
        target: Vec<u8>,
    ) -> FsResult<(Attr, Option<Attr>)> {
        let carried = long(path.len() + target.len());
        self.serve_with(session, carried, async |call| call.make_symlink(&path, target).await).await
    }

    async fn make_node(
        &self,
        session: u64,
        path: Vec<u8>,
        kind: Kind,
        creation: Creation,
    ) -> FsResult<(Attr, Option<Attr>)> {
        let carried = long(path.len());
        self.serve_with(session, carried, async |call| call.make_node(&path, kind, creation).await)
            .await
    }

    async fn read_link(&self, session: u64, path: Vec<u8>) -> FsResult<Vec<u8>> {
        let carried = long(path.len());
        self.serve_with(session, carried, async |call| call.read_link(&path).await).await
    }

    async fn hard_link(
        &self,
        session: u64,
        from: Vec<u8>,
        to: Vec<u8>,
    ) -> FsResult<(Attr, Option<Attr>)> {
        let carried = long(from.len() + to.len());
        self.serve_with(session, carried, async |call| call.hard_link(&from, &to).await).await
    }

    async fn rename(
        &self,
        session: u64,
        from: Vec<u8>,
        to: Vec<u8>,
        mode: RenameMode,
    ) -> FsResult<(Option<Attr>, Option<Attr>)> {
        let carried = long(from.len() + to.len());
        self.serve_with(session, carried, async |call| call.rename(&from, &to, mode).await).await
    }

    async fn remove(&self, session: u64, path: Vec<u8>, directory: bool) -> FsResult<Option<Attr>> {
        let carried = long(path.len());
        self.serve_with(session, carried, async |call| call.remove(&path, directory).await).await
    }

    async fn stat_fs(&self, session: u64) -> FsResult<StatFs> {
        self.serve(session, async |call| call.stat_fs().await).await
    }

    async fn get_xattr(&self, session: u64, node: Node, name: Vec<u8>) -> FsResult<Bytes> {
        let carried = long(path_len(&node) + name.len());
        self.serve_with(session, carried, async |call| call.get_xattr(node, name).await).await
    }

    async fn list_xattr(&self, session: u64, node: Node) -> FsResult<Vec<Vec<u8>>> {
        let carried = long(path_len(&node));
        self.serve_with(session, carried, async |call| call.list_xattr(node).await).await
    }

    async fn set_xattr(
        &self,
        session: u64,
        node: Node,
        name: Vec<u8>,
        value: Bytes,
        mode: XattrMode,
    ) -> FsResult<()> {
        let carried = value.len() + long(path_len(&node) + name.len());
        self.serve_with(session, carried, async |call| {
            call.set_xattr(node, name, value, mode).await
        })
        .await
    }

    async fn remove_xattr(&self, session: u64, node: Node, name: Vec<u8>) -> FsResult<()> {
        let carried = long(path_len(&node) + name.len());
        self.serve_with(session, carried, async |call| call.remove_xattr(node, name).await).await
    }

    async fn open(
        &self,
        session: u64,
        path: Vec<u8>,
        flags: OpenFlags,
        creation: Creation,
    ) -> FsResult<(u64, Attr, Option<Attr>)> {
        let carried = long(path.len());
        self.serve_with(session, carried, async |call| call.open(&path, flags, creation).await)
            .await
    }

    async fn reopen(&self, session: u64, file: u64, flags: OpenFlags) -> FsResult<(u64, Attr)> {
        self.serve(session, async |call| call.reopen(file, flags).await).await
    }

    async fn close(&self, session: u64, file: u64) -> FsResult<()> {
        self.serve(session, async |call| call.close(file).await).await
    }

    async fn read(&self, session: u64, file: u64, offset: u64, len: u64) -> FsResult<Bytes> {
        self.serve(session, async |call| call.read(file, offset, len).await).await
    }

    async fn read_into(
        &self,
        context: Context,
        session: u64,
        file: u64,
        offset: u64,
        into: BulkHandle,
    ) -> FsResult<u64> {
        self.serve(session, async |call| call.read_into(&context, file, offset, &into).await).await
    }

    async fn write(&self, session: u64, file: u64, offset: u64, data: Bytes) -> FsResult<u64> {
        let carried = data.len();
        self.serve_with(session, carried, async |call| call.write(file, offset, data).await).await
    }

    async fn write_from(
        &self,
        context: Context,
        session: u64,
        file: u64,
        offset: u64,
        data: BulkHandle,
    ) -> FsResult<u64> {
        self.serve(session, async |call| call.write_from(&context, file, offset, &data).await).await
    }

    async fn sync(&self, session: u64, file: u64, data_only: bool) -> FsResult<()> {
        self.serve(session, async |call| call.sync(file, data_only).await).await
    }

    async fn allocate(
        &self,
        session: u64,
        file: u64,
        how: Allocation,
        range: Extent,
    ) -> FsResult<()> {
        self.serve(session, async |call| call.allocate(file, how, range).await).await
    }

    async fn extents(&self, session: u64, file: u64, offset: u64) -> FsResult<Vec<Extent>> {
        self.serve(session, async |call| call.extents(file, offset).await).await
    }

    async fn hashes(
        &self,
        session: u64,
        file: u64,
        range: Extent,
        block: u64,
    ) -> FsResult<Vec<Hash>> {
        self.serve(session, async |call| call.hashes(file, range, block).await).await
    }

    async fn lock(&self, session: u64, file: u64, lock: Lock, wait: bool) -> FsResult<()> {
        self.serve(session, async |call| call.lock(file, lock, wait).await).await
    }

    async fn unlock(&self, session: u64, file: u64, lock: Lock) -> FsResult<()> {
        self.serve(session, async |call| call.unlock(file, lock)).await
    }

    async fn test_lock(&self, session: u64, file: u64, lock: Lock) -> FsResult<Option<Lock>> {
        self.serve(session, async |call| call.test_lock(file, lock)).await
    }

    async fn put(
        &self,
        session: u64,
        path: Vec<u8>,
        data: Bytes,
        finish: Finish,
    ) -> FsResult<Attr> {
        let carried = data.len() + long(path.len());
        self.serve_with(session, carried, async |call| call.put(&path, data, finish).await).await
    }

    async fn get(&self, session: u64, path: Vec<u8>, most: u64) -> FsResult<(Attr, Option<Bytes>)> {
        let carried = long(path.len());
        self.serve_with(session, carried, async |call| call.get(&path, most).await).await
    }

    async fn stage(&self, session: u64, key: StageKey, path: Vec<u8>) -> FsResult<(u64, Attr)> {
        let carried = long(path.len());
        self.serve_with(session, carried, async |call| call.stage(key, &path).await).await
    }

    async fn publish(
        &self,
        session: u64,
        file: u64,
        path: Vec<u8>,
        finish: Finish,
    ) -> FsResult<Attr> {
        let carried = long(path.len());
        self.serve_with(session, carried, async |call| call.publish(file, &path, finish).await)
            .await
    }

    async fn discard(&self, session: u64, file: u64) -> FsResult<()> {
        self.serve(session, async |call| call.discard(file).await).await
    }
}
