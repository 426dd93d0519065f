//! Calls that make little sense, made from a seed.

use super::Client;
use bytes::Bytes;
use petasos::{
    BulkHandle, CallError, CallOptions,
    fabric::{Access, Region},
    wire::{Encoding, from_bytes, to_vec},
};
use petasos_forward::{
    FsResult,
    protocol::{
        Allocation, Creation, Extent, Finish, Kind, Lock, Node, OpenFlags, RenameMode, SetAttr,
        SetTime, Timestamp, XattrMode,
    },
};
use petasos_testing::Xorshift;
use std::{pin::Pin, time::Duration};

/// Numbers that look random, the same from the same seed.
pub(crate) struct Random(Xorshift);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(Xorshift::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.draw().wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Less than `most`.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        (self.next() >> 11) % most
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    pub(crate) fn bytes(&mut self, most: u64) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next() as u8).collect()
    }

    /// Any number, the borders among them.
    pub(crate) fn number(&mut self) -> u64 {
        let near = self.below(5);
        let border =
            self.pick(&[0, 4096, 1 << 20, 64 << 20, 1 << 31, 1 << 32, 1 << 62, 1 << 63, u64::MAX]);
        match self.below(4) {
            0 => self.next(),
            1 => self.below(1 << 16),
            _ => border.wrapping_add(near).wrapping_sub(2),
        }
    }

    fn path(&mut self) -> Vec<u8> {
        match self.below(8) {
            0 => self.bytes(40),
            1 => vec![b'x'; self.pick(&[255, 256, 4095, 4096, 9000])],
            2 => self.pick(&["..", "a/../b", ".petasos/x", "a\0b", "/", "", "//./"]).into(),
            _ => self.pick(&["a", "b", "c", "d/e"]).into(),
        }
    }

    fn file(&mut self, files: &[u64]) -> u64 {
        match self.below(6) {
            0 => self.number(),
            1 => self.pick(files) ^ 1 << self.below(64),
            _ => self.pick(files),
        }
    }

    fn creation(&mut self) -> Creation {
        let owner = (self.number() as u32, self.number() as u32);
        Creation { mode: self.number() as u32, owner: (self.below(2) == 0).then_some(owner) }
    }

    fn set_time(&mut self) -> SetTime {
        let at = Timestamp { seconds: self.number() as i64, nanos: self.number() as u32 };
        self.pick(&[SetTime::Keep, SetTime::Now, SetTime::At(at)])
    }

    fn set_attr(&mut self) -> SetAttr {
        let some = |this: &mut Random| (this.below(3) == 0).then(|| this.number());
        SetAttr {
            mode: some(self).map(|n| n as u32),
            uid: some(self).map(|n| n as u32),
            gid: some(self).map(|n| n as u32),
            size: some(self),
            atime: self.set_time(),
            mtime: self.set_time(),
        }
    }

    fn finish(&mut self) -> Finish {
        Finish {
            size: self.pick(&[0, 10, 1000]) ^ if self.below(3) == 0 { self.number() } else { 0 },
            set: self.set_attr(),
            hash: (self.below(3) == 0).then_some([1; 32]),
            durable: self.below(2) == 0,
            replace: self.below(2) == 0,
        }
    }

    fn lock(&mut self) -> Lock {
        let (start, end) = match self.below(3) {
            0 => (self.number(), self.number()),
            _ => (self.below(50), 50 + self.below(50)),
        };
        Lock { owner: self.below(3), pid: 1, exclusive: self.below(2) == 0, start, end }
    }

    fn extent(&mut self) -> Extent {
        Extent { offset: self.number(), len: self.number() }
    }

    /// Bulk memory: as it should be, or damaged; then it may name a peer that is not there.
    fn lent(&mut self, client: &Client, access: Access) -> (petasos::Bulk, BulkHandle) {
        let len = self.pick(&[0, 1, 300, 100_000, 3 << 20, 17 << 20]);
        let bulk = client.engine.bulk(Region::zeroed(len), access).unwrap();
        let handle = bulk.handle();
        if self.below(2) == 0 {
            return (bulk, handle);
        }
        let mut bytes = to_vec(Encoding::Native, &handle);
        let at = self.below(bytes.len() as u64) as usize;
        bytes[at] ^= 1 << self.below(8);
        (bulk, from_bytes(Encoding::Native, &bytes).unwrap_or(handle))
    }
}

/// A call under way.
pub(crate) type Any = Pin<Box<dyn Future<Output = Result<FsResult<()>, CallError>>>>;

/// Methods with memory that is lent, among those of [`any_call`].
pub(crate) const LENDING: [u64; 4] = [20, 21, 24, 25];

/// Methods that [`any_call`] knows.
pub(crate) const METHODS: u64 = 34;

/// A call of method number `method`. Keeps out of the way of the session itself.
pub(crate) fn any_call(client: &Client, random: &mut Random, method: u64, files: &[u64]) -> Any {
    let (calls, r) = (&client.calls, random);
    let id = if r.below(30) == 0 { r.next() } else { client.session };
    macro_rules! plain {
        ($call:expr) => {{
            let call = $call;
            Box::pin(async move { call.await.map(|result| result.map(drop)) })
        }};
    }
    let short = calls.with(CallOptions::default().timeout(Duration::from_millis(500)));
    let node = |r: &mut Random| match r.below(2) {
        0 => Node::Path(r.path()),
        _ => Node::File(r.file(files)),
    };
    let follow = r.below(2) == 0;
    match method {
        0 => plain!(calls.stat(id, node(r), follow)),
        1 => plain!(calls.set_attr(id, node(r), r.set_attr(), follow)),
        2 => plain!(calls.open_dir(id, r.path())),
        3 => plain!(calls.read_dir(id, r.file(files))),
        4 => plain!(calls.make_dir(id, r.path(), r.creation())),
        5 => plain!(calls.make_symlink(id, r.path(), r.bytes(9000))),
        6 => {
            let kind = r.pick(&[Kind::Fifo, Kind::File, Kind::BlockDevice, Kind::Directory]);
            plain!(calls.make_node(id, r.path(), kind, r.creation()))
        }
        7 => plain!(calls.read_link(id, r.path())),
        8 => plain!(calls.hard_link(id, r.path(), r.path())),
        9 => {
            let mode = r.pick(&[RenameMode::Replace, RenameMode::Keep, RenameMode::Exchange]);
            plain!(calls.rename(id, r.path(), r.path(), mode))
        }
        10 => plain!(calls.remove(id, r.path(), follow)),
        11 => plain!(calls.stat_fs(id)),
        12 => plain!(calls.get_xattr(id, node(r), r.bytes(300))),
        13 => plain!(calls.list_xattr(id, node(r))),
        14 => {
            let value = Bytes::from(r.bytes(70_000));
            plain!(calls.set_xattr(id, node(r), r.bytes(300), value, XattrMode::Any))
        }
        15 => plain!(calls.remove_xattr(id, node(r), r.bytes(300))),
        16 => {
            let flags = OpenFlags(r.pick(&[1, 2, 3, 7, 16, 35, 32, 127, 128, u32::MAX]));
            plain!(calls.open(id, r.path(), flags, r.creation()))
        }
        17 => plain!(calls.close(id, r.file(&[0]))),
        18 | 19 => plain!(calls.read(id, r.file(files), r.number(), r.number())),
        20 | 21 => {
            let (bulk, handle) = r.lent(client, Access::WRITE);
            let call = short.read_into(id, r.file(files), r.number(), handle);
            Box::pin(async move {
                let result = call.await;
                drop(bulk);
                result.map(|result| result.map(drop))
            })
        }
        22 | 23 => {
            let data = Bytes::from(r.bytes(9000));
            let data = if r.below(9) == 0 { vec![7; 300_000].into() } else { data };
            plain!(calls.write(id, r.file(files), r.number(), data))
        }
        24 | 25 => {
            let (bulk, handle) = r.lent(client, Access::READ);
            let call = short.write_from(id, r.file(files), r.number(), handle);
            Box::pin(async move {
                let result = call.await;
                drop(bulk);
                result.map(|result| result.map(drop))
            })
        }
        26 => plain!(calls.sync(id, r.file(files), follow)),
        27 => plain!(calls.allocate(id, r.file(files), Allocation::Reserve, r.extent())),
        28 => plain!(calls.extents(id, r.file(files), r.number())),
        29 => plain!(calls.hashes(id, r.file(files), r.extent(), r.number())),
        30 => match r.below(3) {
            0 => plain!(calls.test_lock(id, r.file(files), r.lock())),
            1 => plain!(calls.unlock(id, r.file(files), r.lock())),
            _ => plain!(calls.lock(id, r.file(files), r.lock(), false)),
        },
        31 => plain!(calls.put(id, r.path(), r.bytes(1000).into(), r.finish())),
        32 => plain!(calls.get(id, r.path(), r.number())),
        33 => match r.below(3) {
            0 => plain!(calls.publish(id, r.file(files), r.path(), r.finish())),
            1 => plain!(calls.discard(id, r.file(&[0]))),
            _ => plain!(calls.stage(id, [r.below(3) as u8; 16], r.path())),
        },
        _ => unreachable!("there are {METHODS} methods"),
    }
}
