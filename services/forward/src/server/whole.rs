//! Calls about whole files: small ones at once, large ones staged until they are complete.

use super::{
    call::{Call, entry, short_enough, within_reach},
    config::INLINE,
    files::{Open, OpenFile, Staged},
    gather::read_alone,
    names::checked_attr,
};
use crate::{
    FsError, FsResult, RelPath,
    protocol::{Attr, Creation, Finish, Hash, Kind, OpenFlags, SetAttr, StageKey},
};
use bytes::Bytes;
use rustix::io::Errno;
use std::sync::Arc;

impl Call {
    pub(super) async fn put(&self, path: &[u8], data: Bytes, finish: Finish) -> FsResult<Attr> {
        self.to_change()?;
        let (path, finish) = (entry(path)?, checked_finish(finish)?);
        short_enough(data.len())?;
        let len = data.len() as u64;
        long_enough(len, finish.size)?;
        self.earn(len).await;
        let memory = self.admit(len).await?;
        let put = self.run(len, move |storage| {
            let _memory = memory;
            if let Some(hash) = finish.hash {
                // A hole at the end is hashed as what it reads as.
                same(hash, hash_with_hole(&data, finish.size)?)?;
            }
            storage.put(&path, &data, &finish)
        });
        let attr = put.await?;
        self.count_written(len);
        Ok(attr)
    }

    pub(super) async fn get(&self, path: &[u8], most: u64) -> FsResult<(Attr, Option<Bytes>)> {
        let path = RelPath::parse(path)?;
        let most = most.min(INLINE);
        let memory = self.memory(most).await?;
        let got = self.run(most, move |storage| {
            let _memory = memory;
            let file = match storage.open(&path, OpenFlags::READ, &Creation::default()) {
                Ok(file) => file,
                Err(error) => {
                    // What is no file cannot be opened, but something can be said of it.
                    let attr = storage.stat(&path, true);
                    let other = attr.ok().filter(|attr| attr.kind != Kind::File);
                    return other.map(|attr| (attr, None)).ok_or(error);
                }
            };
            let mut attr = file.attr()?;
            if attr.size > most {
                return Ok((attr, None));
            }
            let data = read_alone(&*file, 0, attr.size as usize)?;
            if (data.len() as u64) < attr.size {
                // It became shorter meanwhile.
                attr = Attr { size: data.len() as u64, ..file.attr()? };
            }
            Ok((attr, Some(data)))
        });
        let (attr, data) = got.await?;
        let len = data.as_ref().map_or(0, |data| data.len() as u64);
        self.count_read(len);
        // How much it is was not known before.
        self.earn(len).await;
        Ok((attr, data))
    }

    pub(super) async fn stage(&self, key: StageKey, path: &[u8]) -> FsResult<(u64, Attr)> {
        self.to_change()?;
        entry(path)?;
        let (place, descriptor) = self.reserve()?;
        let core = &self.core;
        let discard_from = (!core.config.keep_staged).then(|| Arc::clone(core.workers.storage()));
        let staged = Staged::take(&core.keys, key, self.session.id, discard_from)?;
        let opened = self.run(0, move |storage| {
            let file = storage.stage(&key)?;
            let attr = file.attr()?;
            let flags = OpenFlags::READ.with(OpenFlags::WRITE);
            let (ino, staged) = (attr.ino, Some(staged));
            Ok((OpenFile::new(file, flags, ino, staged, false, descriptor), attr))
        });
        let (file, attr) = opened.await?;
        Ok((place.fill(Open::File(Arc::new(file)))?, attr))
    }

    pub(super) async fn publish(&self, number: u64, path: &[u8], finish: Finish) -> FsResult<Attr> {
        self.to_change()?;
        let (path, finish) = (entry(path)?, checked_finish(finish)?);
        let file = self.file(number)?;
        let key = file.stage_key()?;
        let whole = Arc::clone(&file);
        self.run(0, move |_| {
            let len = whole.file.attr()?.size;
            long_enough(len, finish.size)?;
            if len < finish.size {
                whole.file.set_attr(&SetAttr { size: Some(finish.size), ..SetAttr::default() })?;
            }
            Ok(())
        })
        .await?;
        if let Some(hash) = finish.hash {
            same(hash, self.hash_of(&file, finish.size).await?)?;
        }
        drop(file);
        let attr = self.run(0, move |storage| storage.publish(&key, &path, &finish)).await?;
        // It may have been closed meanwhile.
        let _ = self.close(number).await;
        Ok(attr)
    }

    pub(super) async fn discard(&self, number: u64) -> FsResult<()> {
        self.to_change()?;
        let key = self.file(number)?.stage_key()?;
        let open = self.session.files().remove(number)?;
        self.run(0, move |storage| {
            let discarded = storage.discard(&key);
            drop(open);
            discarded
        })
        .await
    }
}

fn checked_finish(mut finish: Finish) -> FsResult<Finish> {
    within_reach(finish.size, 0)?;
    finish.set = checked_attr(SetAttr { size: None, ..finish.set })?;
    Ok(finish)
}

/// More than what is to be there must not have come.
fn long_enough(len: u64, size: u64) -> FsResult<()> {
    match len <= size {
        true => Ok(()),
        false => Err(FsError::new(Errno::INVAL, format!("{len} bytes came of {size}"))),
    }
}

fn same(expected: Hash, found: Hash) -> FsResult<()> {
    match expected == found {
        true => Ok(()),
        false => {
            Err(FsError::new(Errno::BADMSG, "what came is not what was sent: the hashes differ"))
        }
    }
}

/// The hash of data and zeroes up to `size`.
fn hash_with_hole(data: &[u8], size: u64) -> FsResult<Hash> {
    const ZEROES: [u8; 4096] = [0; 4096];
    if size > data.len() as u64 + INLINE {
        return Err(FsError::new(Errno::INVAL, "too long a hole to be hashed in one call"));
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(data);
    let mut left = (size - data.len() as u64) as usize;
    while left > 0 {
        let now = left.min(ZEROES.len());
        hasher.update(&ZEROES[..now]);
        left -= now;
    }
    Ok(*hasher.finalize().as_bytes())
}
