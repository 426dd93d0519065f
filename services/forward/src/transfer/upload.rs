//! A large file to a server: staged there piece by piece, and resumed where an earlier
//! transfer of the same file was interrupted.

use super::{
    Cause,
    disk::pause,
    job::{
        BLOCK, HASHES, Job, Memory, PIECES, TRIES, block_of, blocks, either, extents, hashes,
        pieces, runs,
    },
    local::{self, Root},
    put::Putting,
    source::{Item, unchanged},
};
use crate::{
    RelPath,
    client::{RemoteError, RemoteFile},
    protocol::{Allocation, Attr, Extent, Finish, Hash, OpenFlags, StageKey},
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use rustix::{
    fs::{FileType, OFlags, fstat},
    io::Errno,
};
use std::{
    cell::Cell,
    collections::HashSet,
    fs::File,
    os::unix::fs::FileExt,
    sync::Arc,
    time::{Duration, Instant},
};

/// How long a session that is gone may still have the file at the server.
const TAKEN: Duration = Duration::from_secs(10);

/// A file that is being sent.
struct Upload<'a> {
    job: &'a Job,
    item: &'a Item,
    file: Arc<File>,
    attr: Attr,
    /// Whether it may have its name already.
    published: Cell<bool>,
}

impl Putting {
    /// Sends a large file.
    pub(super) async fn upload(
        &self,
        item: &Item,
        listed: &Attr,
        compare: bool,
    ) -> Result<(), Cause> {
        let job = &*self.job;
        let (tree, path) = (Arc::clone(&item.tree), item.path.clone());
        let opened = job.disk.run(move || open(&tree.root, &path)).await;
        let (file, attr) = opened.map_err(Cause::local("opening"))?;
        // What was found may have been listed long ago: the amount of work is another now.
        let upload = Upload { job, item, file: Arc::new(file), attr, published: Cell::default() };
        let mut tries = 0;
        let there = loop {
            match upload.is_there(compare).await {
                Err(cause) if cause.lost() && tries < TRIES => {
                    tries += 1;
                    job.next_session().await?;
                }
                there => break there?,
            }
        };
        if compare && !there && self.dry {
            self.would(item);
            return Ok(());
        }
        if there {
            if self.attributes && !self.dry {
                let set = self.kept(&attr);
                job.connection
                    .with(async |remote| remote.set_attr(&item.to, set, false).await)
                    .await?;
            }
            job.same(listed.size);
            return Ok(());
        }
        loop {
            match upload.send(self).await {
                Err(cause) if cause.lost() && tries < TRIES => {
                    tries += 1;
                    job.next_session().await?;
                    if upload.published.get() && self.is_complete(item, &attr).await {
                        break;
                    }
                }
                sent => {
                    sent?;
                    break;
                }
            }
        }
        job.file();
        Ok(())
    }

    /// Whether the file has its name already: the answer that said so was lost.
    async fn is_complete(&self, item: &Item, attr: &Attr) -> bool {
        let there =
            self.job.connection.with(async |remote| remote.stat(&item.to, false).await).await;
        self.attributes
            && there.is_ok_and(|there| (there.size, there.mtime) == (attr.size, attr.mtime))
    }
}

fn open(root: &Root, path: &RelPath) -> Result<(File, Attr), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = root.below(path, flags)?;
    let stat = fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok((file.into(), local::attr(&stat))),
        _ => Err(Errno::INVAL),
    }
}

impl Upload<'_> {
    /// First 16 bytes of BLAKE3 of path, length, time, and where it comes from.
    fn key(&self) -> StageKey {
        let Upload { item, attr, .. } = self;
        let mut hasher = blake3::Hasher::new();
        let source = std::path::absolute(self.source());
        let source = source.map(std::path::PathBuf::into_os_string).unwrap_or_default();
        for part in [item.to.as_bytes(), source.as_encoded_bytes()] {
            hasher.update(&(part.len() as u64).to_le_bytes()).update(part);
        }
        hasher.update(&attr.size.to_le_bytes()).update(&attr.mtime.seconds.to_le_bytes());
        hasher.update(&attr.mtime.nanos.to_le_bytes());
        let mut key = StageKey::default();
        key.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        key
    }

    fn source(&self) -> std::path::PathBuf {
        use std::os::unix::ffi::OsStringExt;
        std::ffi::OsString::from_vec(self.item.tree.root.describe(&self.item.path)).into()
    }

    /// One try, in one session.
    async fn send(&self, putting: &Putting) -> Result<(), Cause> {
        let Upload { job, item, file, attr, .. } = self;
        let staged = self.stage().await?;
        let sent = self.fill(&staged).await;
        let hash = match sent {
            Ok(hash) => hash,
            Err(cause) => {
                if !cause.lost() {
                    // What cannot be completed takes room there; the first error is the one to
                    // tell.
                    let _ = staged.discard().await;
                }
                return Err(cause);
            }
        };
        let (same, before) = (Arc::clone(file), *attr);
        let after = job.disk.run(move || fstat(&*same)).await.map_err(Cause::local("reading"))?;
        if let Err(cause) = unchanged(&before, &local::attr(&after)) {
            let _ = staged.discard().await;
            return Err(cause);
        }
        let finish = Finish {
            size: attr.size,
            set: putting.kept(attr),
            hash,
            durable: job.options.durable,
            replace: true,
        };
        self.published.set(true);
        let published = staged.publish(&item.to, finish).await.map_err(Cause::from);
        if let Err(cause) = &published
            && !cause.lost()
            && let Ok(staged) = self.stage().await
        {
            // It takes room there; the first error is the one to tell.
            let _ = staged.discard().await;
        }
        published.map(drop)
    }

    async fn stage(&self) -> Result<RemoteFile, Cause> {
        let (key, to, connection) = (self.key(), &self.item.to, &self.job.connection);
        let end = Instant::now() + TAKEN;
        let mut resume = self.job.options.resume || connection.reconnected() > 0;
        loop {
            match connection.remote().stage(key, to).await {
                Ok(staged) if resume || staged.attr().size == 0 => return Ok(staged),
                Ok(staged) => {
                    staged.discard().await?;
                    resume = true;
                }
                Err(error) if error.errno() == Errno::BUSY => {
                    if Instant::now() > end {
                        return Err(Cause::InUse);
                    }
                    pause(Duration::from_millis(50)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sends all that is not there yet; gives the hash of the whole, where that is wanted.
    async fn fill(&self, staged: &RemoteFile) -> Result<Option<Hash>, Cause> {
        let Upload { job, file, attr, .. } = self;
        let size = attr.size;
        let mut parts = vec![Extent { offset: 0, len: size }];
        if local::has_holes(attr) {
            let file = Arc::clone(file);
            let found = job.disk.run(move || local::data(&*file, size)).await;
            parts = found.map_err(Cause::local("looking for holes"))?;
        }
        let there = self.compare(staged, &parts).await?;
        let checksum = job.options.checksum;
        let hasher = std::cell::RefCell::new(checksum.then(blake3::Hasher::new));
        // Each with what is between the one before and it: zeroes, for the hash.
        let mut end = 0;
        let mut wanted = Vec::new();
        for piece in pieces(&parts, job.piece()) {
            if checksum || !there.contains(&block_of(piece.offset)) {
                wanted.push((piece, piece.offset - end));
                end = if checksum { piece.offset + piece.len } else { 0 };
            }
        }
        let hasher = &hasher;
        let reads = stream::iter(wanted).then(|(piece, gap)| async move {
            let memory = job.memory(piece.len).await;
            let state = hasher.borrow_mut().take();
            let (memory, state) = self.read(piece, memory, state, gap).await?;
            hasher.replace(state);
            Ok::<_, Cause>((piece, memory))
        });
        let there = &there;
        let sends = reads.map(|read| async move {
            let (piece, memory) = read?;
            match there.contains(&block_of(piece.offset)) {
                true => {
                    job.report().resumed += piece.len;
                    job.progress.done(piece.len);
                    job.reuse(memory);
                }
                false => self.write(staged, piece, memory).await?,
            }
            Ok::<_, Cause>(())
        });
        let mut sends = std::pin::pin!(sends.buffer_unordered(PIECES));
        while let Some(sent) = sends.next().await {
            sent?;
        }
        if !checksum {
            let skipped: u64 = blocks(&parts, size)
                .iter()
                .filter(|block| there.contains(&block.offset))
                .map(|block| block.len)
                .sum();
            job.report().resumed += skipped;
            job.progress.done(skipped);
        }
        let Some(mut hasher) = hasher.take() else { return Ok(None) };
        let gap = size - end;
        let whole = job.disk.run(move || {
            zeroes(&mut hasher, gap);
            *hasher.finalize().as_bytes()
        });
        Ok(Some(whole.await))
    }

    /// Reads a piece, on a thread of the disk.
    async fn read(
        &self,
        piece: Extent,
        memory: Memory,
        mut hasher: Option<blake3::Hasher>,
        gap: u64,
    ) -> Result<(Memory, Option<blake3::Hasher>), Cause> {
        let (file, rate) = (Arc::clone(&self.file), self.job.rate.clone());
        let Memory { region, len, share } = memory;
        let work = move || {
            if let Some(rate) = rate {
                rate.pay(piece.len);
            }
            let mut own = region.into_exclusive().map_err(|_| Errno::BUSY)?;
            file.read_exact_at(&mut own[..len], piece.offset)
                .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NODATA))?;
            if let Some(hasher) = &mut hasher {
                zeroes(hasher, gap);
                hasher.update(&own[..len]);
            }
            Ok::<_, Errno>((own.into_region(), hasher))
        };
        match self.job.disk.run(work).await {
            // It ended too early.
            Err(Errno::NODATA) => Err(Cause::Changed),
            Err(error) => Err(Cause::Local { doing: "reading", error }),
            Ok((region, hasher)) => Ok((Memory { region, len, share }, hasher)),
        }
    }

    /// Sends a piece.
    async fn write(&self, staged: &RemoteFile, piece: Extent, memory: Memory) -> Result<(), Cause> {
        let slice = memory.region.slice(0, memory.len).expect("a piece fits its memory");
        if piece.len <= staged.remote().welcome().inline {
            staged.write_bytes(piece.offset, Bytes::from(slice.to_vec())).await?;
        } else {
            staged.write_lent(piece.offset, slice).await?;
        }
        self.job.moved(piece.len);
        self.job.reuse(memory);
        Ok(())
    }

    /// The blocks that are at the server already. What is there and differs is made a hole, unless
    /// all of it will be written.
    async fn compare(&self, staged: &RemoteFile, parts: &[Extent]) -> Result<HashSet<u64>, Cause> {
        let mut same = HashSet::new();
        let size = self.attr.size;
        let there = staged.attr().size.min(size);
        if there == 0 {
            return Ok(same);
        }
        let found = extents(staged, there).await?;
        let found = blocks(&found, size);
        for run in runs(&found, HASHES) {
            for (block, equal) in run.iter().zip(self.equal(staged, run, there).await?) {
                if equal {
                    same.insert(block.offset);
                    continue;
                }
                let covered = parts.iter().any(|part| {
                    part.offset <= block.offset
                        && part.offset + part.len >= block.offset + block.len
                });
                if !covered {
                    self.clear(staged, *block).await?;
                }
            }
        }
        Ok(same)
    }

    /// Which of these blocks are the same here and there.
    async fn equal(
        &self,
        there: &RemoteFile,
        run: &[Extent],
        size: u64,
    ) -> Result<Vec<bool>, Cause> {
        // What is longer than what is there cannot be the same.
        let whole: Vec<Extent> =
            run.iter().copied().filter(|block| block.offset + block.len <= size).collect();
        let (file, asked) = (Arc::clone(&self.file), whole.clone());
        let ours = self.job.disk.run(move || local_hashes(&file, &asked));
        let (theirs, ours) = futures_util::future::join(hashes(there, &whole), ours).await;
        let ours = ours.map_err(Cause::local("reading"))?;
        let mut equal: Vec<bool> = theirs?.iter().zip(&ours).map(|(a, b)| a == b).collect();
        equal.resize(run.len(), false);
        Ok(equal)
    }

    async fn clear(&self, staged: &RemoteFile, block: Extent) -> Result<(), Cause> {
        match staged.allocate(Allocation::Punch, block).await {
            Err(error) if error.errno() == Errno::OPNOTSUPP => {
                let memory = self.job.memory(block.len).await;
                let slice = memory.region.slice(0, memory.len).expect("a block fits its memory");
                slice.write(0, &vec![0; memory.len]);
                staged.write_at(block.offset, slice).await?;
                self.job.reuse(memory);
                Ok(())
            }
            cleared => Ok(cleared?),
        }
    }

    /// Whether the very file is at the server under its name.
    async fn is_there(&self, compare: bool) -> Result<bool, Cause> {
        if !compare {
            return Ok(false);
        }
        let (connection, size) = (&self.job.connection, self.attr.size);
        let flags = OpenFlags::READ.with(OpenFlags::NO_FOLLOW);
        let there =
            connection.with(async |remote| remote.open(&self.item.to, flags, 0).await).await;
        let there = match there {
            Ok(there) if there.attr().size == size => there,
            Err(error) if error.is_lost() => return Err(error.into()),
            _ => return Ok(false),
        };
        // Where neither has data both have zeroes.
        let mut parts = vec![Extent { offset: 0, len: size }];
        if there.remote().welcome().abilities.holes {
            let file = Arc::clone(&self.file);
            let here = self.job.disk.run(move || local::data(&*file, size)).await;
            let here = here.map_err(Cause::local("looking for holes"))?;
            parts = either(here, extents(&there, size).await?);
        }
        let all = blocks(&parts, size);
        for run in runs(&all, HASHES) {
            match self.equal(&there, run, size).await {
                Ok(equal) if equal.iter().all(|equal| *equal) => {}
                Ok(_) => return Ok(false),
                // Sent anew, where that is possible.
                Err(Cause::Remote(RemoteError::Refused { .. })) => return Ok(false),
                Err(cause) => return Err(cause),
            }
        }
        there.close().await?;
        Ok(true)
    }
}

fn zeroes(hasher: &mut blake3::Hasher, mut len: u64) {
    static ZEROES: [u8; 64 << 10] = [0; 64 << 10];
    while len > 0 {
        let part = len.min(ZEROES.len() as u64);
        hasher.update(&ZEROES[..part as usize]);
        len -= part;
    }
}

/// Hashes of blocks of a local file.
fn local_hashes(file: &File, blocks: &[Extent]) -> Result<Vec<Hash>, Errno> {
    let mut memory = vec![0; BLOCK as usize];
    let mut hash = |block: &Extent| {
        let part = &mut memory[..block.len as usize];
        match file.read_exact_at(part, block.offset) {
            Ok(()) => Ok(*blake3::hash(part).as_bytes()),
            Err(error) => Err(Errno::from_io_error(&error).unwrap_or(Errno::NODATA)),
        }
    };
    blocks.iter().map(&mut hash).collect()
}
