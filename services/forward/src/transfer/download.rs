//! A large file from a server: piece by piece into a hidden file beside its place, resumed
//! where an earlier transfer was interrupted.

use super::{
    Cause,
    disk::pause,
    get::{Getting, Place},
    job::{
        BLOCK, HASHES, Job, Memory, PIECES, TRIES, block_of, blocks, either, extents, hashes,
        pieces, runs,
    },
    local::{self, Partial},
    source::unchanged,
};
use crate::{
    client::{RemoteError, RemoteFile},
    protocol::{Attr, Extent, Hash, OpenFlags},
};
use futures_util::{StreamExt, stream};
use rustix::{
    fs::{AtFlags, OFlags, openat, statat},
    io::Errno,
};
use std::{
    collections::HashSet,
    ffi::OsStr,
    fs::File,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    sync::Arc,
    time::{Duration, Instant},
};

/// How long another transfer may have the file.
const TAKEN: Duration = Duration::from_secs(5);

/// A file that is coming.
struct Download<'a> {
    job: &'a Job,
    place: &'a Place,
    file: &'a RemoteFile,
}

impl Getting {
    /// Fetches a large file.
    pub(super) async fn download(
        &self,
        place: &Place,
        listed: &Attr,
        compare: bool,
    ) -> Result<(), Cause> {
        let job = &*self.job;
        let mut tries = 0;
        loop {
            let flags = OpenFlags::READ.with(OpenFlags::NO_FOLLOW);
            let from = &place.from;
            let file =
                job.connection.with(async |remote| remote.open(from, flags, 0).await).await?;
            let download = Download { job, place, file: &file };
            let fetched = async {
                let there = compare && download.is_there().await?;
                if compare && !there && self.dry {
                    self.would(place);
                    return Ok(());
                }
                if there && self.dry {
                    job.same(listed.size);
                    return Ok(());
                }
                if there {
                    let set = self.kept(file.attr());
                    place.there(job, "changing", move |d, n| local::dress(d, n, &set)).await?;
                    job.same(listed.size);
                    return Ok::<_, Cause>(());
                }
                download.fetch(self).await?;
                job.file();
                Ok(())
            };
            match fetched.await {
                // The session that comes next opens it again.
                Err(cause) if cause.lost() && tries < TRIES => tries += 1,
                fetched => return fetched,
            }
        }
    }
}

impl Download<'_> {
    /// One try, in one session.
    async fn fetch(&self, getting: &Getting) -> Result<(), Cause> {
        let Download { job, place, file } = self;
        let attr = *file.attr();
        let (key, size) = (place.key(), attr.size);
        let resume = job.options.resume || job.connection.reconnected() > 0;
        let end = Instant::now() + TAKEN;
        let partial = loop {
            let partial = place.there(job, "making the file", move |directory, name| {
                Partial::open(directory, name, key, size, resume)
            });
            match partial.await {
                // Threads may still write for the session before.
                Err(Cause::Local { error: Errno::WOULDBLOCK, .. }) if Instant::now() < end => {
                    pause(Duration::from_millis(20)).await;
                }
                Err(Cause::Local { error: Errno::WOULDBLOCK, .. }) => return Err(Cause::InUse),
                partial => break Arc::new(partial?),
            }
        };
        let filled = self.fill(&partial, &attr).await;
        let (set, durable) = (getting.kept(&attr), job.options.durable);
        let done = match filled {
            Ok(()) => {
                let complete = Arc::clone(&partial);
                let finish = move || complete.finish(&set, durable);
                job.disk.run(finish).await.map_err(Cause::local("giving it its name"))
            }
            Err(cause) => Err(cause),
        };
        if let Err(cause) = &done
            && !cause.lost()
        {
            // The first error is the one to tell.
            let _ = job.disk.run(move || partial.remove()).await;
        }
        done
    }

    async fn fill(&self, partial: &Arc<Partial>, attr: &Attr) -> Result<(), Cause> {
        let Download { job, file, .. } = self;
        let size = attr.size;
        let holes = file.remote().welcome().abilities.holes && local::has_holes(attr);
        let parts = match holes {
            true => extents(file, size).await?,
            false => vec![Extent { offset: 0, len: size }],
        };
        let there = self.compare(partial, &parts, size).await?;
        let missing = |piece: &Extent| !there.contains(&block_of(piece.offset));
        let resumed: u64 = pieces(&parts, BLOCK)
            .iter()
            .filter(|piece| !missing(piece))
            .map(|piece| piece.len)
            .sum();
        job.report().resumed += resumed;
        job.progress.done(resumed);
        let all = pieces(&parts, job.piece()).into_iter().filter(missing);
        let fetched = stream::iter(all).map(|piece| self.piece(partial, piece));
        let mut fetched = std::pin::pin!(fetched.buffer_unordered(PIECES));
        while let Some(piece) = fetched.next().await {
            piece?;
        }
        unchanged(attr, &file.stat().await?)?;
        if job.options.checksum {
            self.verify(partial, size).await?;
        }
        Ok(())
    }

    async fn piece(&self, partial: &Arc<Partial>, piece: Extent) -> Result<(), Cause> {
        let Download { job, file, .. } = self;
        let Memory { region, len, share } = job.memory(piece.len).await;
        let slice = region.slice(0, len).expect("a piece fits its memory");
        let got = match piece.len <= file.remote().welcome().inline {
            true => file.read_at(piece.offset, slice).await?,
            false => file.read_lent(piece.offset, slice).await?,
        };
        if got < piece.len {
            return Err(Cause::Changed);
        }
        let (partial, rate) = (Arc::clone(partial), job.rate.clone());
        let write = move || {
            if let Some(rate) = rate {
                rate.pay(piece.len);
            }
            let own = region.into_exclusive().map_err(|_| Errno::BUSY)?;
            partial.write_at(piece.offset, &own[..len])?;
            Ok::<_, Errno>(own.into_region())
        };
        let region = job.disk.run(write).await.map_err(Cause::local("writing"))?;
        job.moved(piece.len);
        job.reuse(Memory { region, len, share });
        Ok(())
    }

    /// The blocks that are here already. What is here and differs is made a hole, unless all of it
    /// will be written.
    async fn compare(
        &self,
        partial: &Arc<Partial>,
        parts: &[Extent],
        size: u64,
    ) -> Result<HashSet<u64>, Cause> {
        let mut same = HashSet::new();
        let found = blocks(&partial.before, size);
        for run in runs(&found, HASHES) {
            let (ours, theirs) = self.both(partial, run).await?;
            for (at, block) in run.iter().enumerate() {
                if theirs.get(at).is_some_and(|theirs| *theirs == ours[at]) {
                    same.insert(block.offset);
                    continue;
                }
                let covered = parts.iter().any(|part| {
                    part.offset <= block.offset
                        && part.offset + part.len >= block.offset + block.len
                });
                if !covered {
                    let (partial, block) = (Arc::clone(partial), *block);
                    let cleared = self.job.disk.run(move || partial.clear(block)).await;
                    cleared.map_err(Cause::local("writing"))?;
                }
            }
        }
        Ok(same)
    }

    /// Hashes of a run of blocks, here and there.
    async fn both(
        &self,
        partial: &Arc<Partial>,
        run: &[Extent],
    ) -> Result<(Vec<Hash>, Vec<Hash>), Cause> {
        let (partial, asked) = (Arc::clone(partial), run.to_vec());
        let ours =
            self.job.disk.run(move || hashed(&asked, |offset, into| partial.read_at(offset, into)));
        let (ours, theirs) = futures_util::future::join(ours, hashes(self.file, run)).await;
        Ok((ours.map_err(Cause::local("reading"))?, theirs?))
    }

    /// What was written here, read again, is what the server reads.
    async fn verify(&self, partial: &Arc<Partial>, size: u64) -> Result<(), Cause> {
        let all = blocks(&[Extent { offset: 0, len: size }], size);
        for run in runs(&all, HASHES) {
            let (ours, theirs) = self.both(partial, run).await?;
            let differs = |(at, _): &(usize, &Extent)| theirs.get(*at) != Some(&ours[*at]);
            if let Some((_, block)) = run.iter().enumerate().find(differs) {
                return Err(Cause::Mismatch(block.offset));
            }
        }
        Ok(())
    }

    /// Whether the very file is here under its name.
    async fn is_there(&self) -> Result<bool, Cause> {
        let size = self.file.attr().size;
        let opened = self.place.there(self.job, "opening", |directory, name| {
            let name = OsStr::from_bytes(name);
            let found = local::attr(&statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)?);
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
            Ok((found, openat(&directory, name, flags, rustix::fs::Mode::empty())?))
        });
        let Ok((found, fd)) = opened.await else { return Ok(false) };
        if (found.kind, found.size) != (crate::protocol::Kind::File, size) {
            return Ok(false);
        }
        let here = Arc::new(File::from(fd));
        // Where neither has data both have zeroes.
        let mut parts = vec![Extent { offset: 0, len: size }];
        if self.file.remote().welcome().abilities.holes {
            let file = Arc::clone(&here);
            let ours = self.job.disk.run(move || local::data(&*file, size)).await;
            let ours = ours.map_err(Cause::local("looking for holes"))?;
            parts = either(ours, extents(self.file, size).await?);
        }
        let all = blocks(&parts, size);
        for run in runs(&all, HASHES) {
            let (here, asked) = (Arc::clone(&here), run.to_vec());
            let ours = self.job.disk.run(move || {
                hashed(&asked, |offset, into| {
                    let read = here.read_exact_at(into, offset);
                    read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NODATA))
                })
            });
            let (ours, theirs) = futures_util::future::join(ours, hashes(self.file, run)).await;
            match (ours, theirs) {
                (Ok(ours), Ok(theirs)) if ours == theirs => {}
                (_, Err(error)) if !matches!(error, RemoteError::Refused { .. }) => {
                    return Err(error.into());
                }
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}

/// Hashes of blocks, read in order.
fn hashed(
    blocks: &[Extent],
    read: impl Fn(u64, &mut [u8]) -> Result<(), Errno>,
) -> Result<Vec<Hash>, Errno> {
    let mut memory = vec![0; BLOCK as usize];
    let hash = |block: &Extent| {
        let part = &mut memory[..block.len as usize];
        read(block.offset, part)?;
        Ok(*blake3::hash(part).as_bytes())
    };
    blocks.iter().map(hash).collect()
}
