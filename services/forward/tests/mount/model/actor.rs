//! Does each step in a mount and in memory, and compares.

use super::{
    mapper::{Mapper, filling},
    plan::{Opening, Room, Step},
};
use rustix::{
    fs::{
        FallocateFlags, FlockOperation, OFlags, SeekFrom, copy_file_range, fallocate, flock, seek,
    },
    io::Errno,
};
use std::{
    collections::VecDeque,
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// How two mounts share the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sharing {
    /// One closes it before the other opens it.
    Closing,
    /// Both have it open; the one that holds a lock on it works.
    Locking,
}

/// Steps that a failure shows.
const SHOWN: usize = 60;

/// The file, in one or two mounts, and what it must be.
pub(super) struct Actor {
    places: Vec<PathBuf>,
    sharing: Option<Sharing>,
    /// Maps files: a process of its own, for this one serves the file system.
    mapper: Mapper,
    maps: bool,
    largest: u64,
    /// Of each mount, where it is open there.
    files: Vec<Option<File>>,
    appends: Vec<bool>,
    /// Whose turn it is.
    side: usize,
    name: &'static str,
    model: Vec<u8>,
    stamp: u8,
    history: VecDeque<String>,
}

const NAMES: [&str; 2] = ["file", "other"];

type Done = Result<(), String>;

fn failed(what: &str) -> impl Fn(io::Error) -> String + '_ {
    move |error| format!("{what}: {error}")
}

fn refused(what: &str) -> impl Fn(Errno) -> String + '_ {
    move |error| format!("{what}: {error}")
}

/// Where two things that should be alike begin to differ.
fn compare(what: &str, at: u64, got: &[u8], expected: &[u8]) -> Done {
    // Byte by byte only where they are not: tests are compiled without optimisation.
    if got == expected {
        return Ok(());
    }
    let differs = got.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(first) = differs {
        let wrong = got.iter().zip(expected).filter(|(a, b)| a != b).count();
        return Err(format!(
            "{what}: {wrong} of {} bytes differ, the first at {}: {:#x} for {:#x}",
            expected.len(),
            at + first as u64,
            got[first],
            expected[first]
        ));
    }
    Err(format!("{what} at {at}: {} bytes for {}", got.len(), expected.len()))
}

impl Actor {
    pub(super) fn new(
        places: Vec<PathBuf>,
        sharing: Option<Sharing>,
        maps: bool,
        largest: u64,
    ) -> Actor {
        let files = places.iter().map(|_| None).collect();
        let appends = vec![false; places.len()];
        let mut actor = Actor {
            places,
            sharing,
            mapper: Mapper::start(),
            maps,
            largest,
            files,
            appends,
            side: 0,
            name: NAMES[0],
            model: Vec::new(),
            stamp: 0,
            history: VecDeque::new(),
        };
        fs::write(actor.path(0), b"").unwrap();
        actor.open(0, Opening::Plain).unwrap();
        if sharing == Some(Sharing::Locking) {
            actor.open(1, Opening::Plain).unwrap();
            flock(actor.file(), FlockOperation::LockExclusive).unwrap();
        }
        actor
    }

    pub(super) fn size(&self) -> u64 {
        self.model.len() as u64
    }

    pub(super) fn largest(&self) -> u64 {
        self.largest
    }

    pub(super) fn is_shared(&self) -> bool {
        self.sharing.is_some()
    }

    pub(super) fn history(&self) -> String {
        self.history.iter().map(|line| format!("  {line}\n")).collect()
    }

    fn path(&self, side: usize) -> PathBuf {
        self.places[side].join(self.name)
    }

    fn file(&self) -> &File {
        self.files[self.side].as_ref().expect("it is open where it is worked on")
    }

    fn open(&mut self, side: usize, how: Opening) -> Done {
        let mut options = File::options();
        options.read(true).write(true);
        match how {
            Opening::Plain => {}
            Opening::Direct => drop(options.custom_flags(OFlags::DIRECT.bits() as i32)),
            Opening::Append => drop(options.append(true)),
            Opening::Cut => drop(options.truncate(true)),
        }
        let opened = options.open(self.path(side)).map_err(failed("opening"))?;
        self.files[side] = Some(opened);
        self.appends[side] = how == Opening::Append;
        if how == Opening::Cut {
            self.model.clear();
        }
        Ok(())
    }

    /// What the model has of a range.
    fn expected(&self, at: u64, len: usize) -> &[u8] {
        let start = (at as usize).min(self.model.len());
        &self.model[start..(start + len).min(self.model.len())]
    }

    /// Bytes that were never written before there.
    fn fresh(&mut self, at: u64, len: usize) -> Vec<u8> {
        self.stamp = self.stamp % 250 + 1;
        filling(self.stamp, at, len)
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        let (start, end) = (at as usize, at as usize + data.len());
        self.resize(end.max(self.model.len()));
        self.model[start..end].copy_from_slice(data);
    }

    /// Cuts the model, or adds zeroes, by a copy of them: `Vec::resize` takes one byte after the
    /// other where it is not optimised.
    fn resize(&mut self, size: usize) {
        match size.checked_sub(self.model.len()) {
            Some(more) => self.model.extend_from_slice(&vec![0; more]),
            None => self.model.truncate(size),
        }
    }

    fn read(&self, file: &File, what: &str, at: u64, len: usize) -> Done {
        let mut got = vec![0; len];
        got.fill(0xee);
        let mut done = 0;
        // One call is to give all that there is: only at the end there may be less.
        while done < len {
            match file.read_at(&mut got[done..], at + done as u64).map_err(failed(what))? {
                0 => break,
                more => done += more,
            }
            if done < len && ((at + done as u64) as usize) < self.model.len() {
                return Err(format!("{what}: {done} of {len} bytes, and this is not the end"));
            }
        }
        compare(what, at, &got[..done], self.expected(at, len))
    }

    pub(super) fn perform(&mut self, step: &Step) -> Done {
        let line = format!("mount {}, {} bytes: {step:?}", self.side, self.model.len());
        self.history.push_back(line);
        if self.history.len() > SHOWN {
            self.history.pop_front();
        }
        match *step {
            Step::Read { at, len } => self.read(self.file(), "reading", at, len),
            Step::Write { at, len } => self.write(at, len),
            Step::Beyond { at, hole } => {
                self.write(at, 1)?;
                let begin = at - hole;
                self.read(self.file(), "the hole", begin, (hole as usize).min(4096))?;
                self.read(self.file(), "the end of the hole", at.saturating_sub(4096), 4097)
            }
            Step::Append { len } => {
                let at = self.size();
                let data = self.fresh(at, len);
                let mut options = File::options();
                let file = options.append(true).open(self.path(self.side));
                let file = file.map_err(failed("opening to append"))?;
                file.write_all_at(&data, 0).map_err(failed("appending"))?;
                self.put(at, &data);
                Ok(())
            }
            Step::Cut { size, by_path } => {
                let cut = match by_path {
                    true => {
                        let beside = File::options().write(true).open(self.path(self.side));
                        beside.and_then(|file| file.set_len(size))
                    }
                    false => self.file().set_len(size),
                };
                cut.map_err(failed("cutting"))?;
                self.resize(size as usize);
                Ok(())
            }
            Step::Room { how, at, len } => self.room(how, at, len),
            Step::MapRead { at, len } => self.mapped(at, len, None),
            Step::MapWrite { at, len, sync } => self.mapped(at, len, Some(sync)),
            Step::Scan { by } => {
                let direct = self.side_file(OFlags::DIRECT)?;
                for at in (0..self.size()).step_by(by) {
                    self.read(&direct, "reading on", at, by)?;
                }
                Ok(())
            }
            Step::Stat { by_path } => self.stat(by_path),
            Step::List => self.list(),
            Step::Seek { at } => self.seek(at),
            Step::Sync => self.file().sync_all().map_err(failed("fsync")),
            Step::Reopen(how) => self.reopen(how),
            Step::Rename => self.rename(),
            Step::Beside { at, len } => {
                let beside = self.side_file(OFlags::empty())?;
                self.read(&beside, "reading by another descriptor", at, len)
            }
            Step::Copy { from, to, len } => self.copy(from, to, len),
            Step::Pass => self.pass(),
        }
    }

    fn side_file(&self, flags: OFlags) -> Result<File, String> {
        let mut options = File::options();
        options.read(true).custom_flags(flags.bits() as i32);
        options.open(self.path(self.side)).map_err(failed("opening beside"))
    }

    fn write(&mut self, at: u64, len: usize) -> Done {
        // What appends goes to the end, wherever it is asked for.
        let at = if self.appends[self.side] { self.size() } else { at };
        if at + len as u64 > self.largest {
            return Ok(());
        }
        let data = self.fresh(at, len);
        self.file().write_all_at(&data, at).map_err(failed("writing"))?;
        self.put(at, &data);
        Ok(())
    }

    fn room(&mut self, how: Room, at: u64, len: u64) -> Done {
        let flags = match how {
            Room::Reserve => FallocateFlags::empty(),
            Room::ReserveOnly => FallocateFlags::KEEP_SIZE,
            Room::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Room::Zero => FallocateFlags::ZERO_RANGE,
            Room::ZeroOnly => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        };
        match fallocate(self.file(), flags, at, len) {
            // The server's file system may have no way to do that. Then nothing was done.
            Err(Errno::OPNOTSUPP) => return Ok(()),
            done => done.map_err(refused("fallocate"))?,
        }
        let end = at + len;
        if matches!(how, Room::Reserve | Room::Zero) && end > self.size() {
            self.resize(end as usize);
        }
        if matches!(how, Room::Punch | Room::Zero | Room::ZeroOnly) {
            let (start, end) = (at.min(self.size()) as usize, end.min(self.size()) as usize);
            self.model[start..end].fill(0);
        }
        Ok(())
    }

    fn mapped(&mut self, at: u64, len: usize, write: Option<bool>) -> Done {
        let len = len.min((self.size() - at.min(self.size())) as usize);
        if len == 0 {
            return Ok(());
        }
        let path = self.path(self.side);
        match write {
            None => match self.mapper.read(&path, self.model.len(), at, len) {
                Ok(got) => compare("in the mapping", at, &got, self.expected(at, len)),
                Err(text) => self.unmapped(&text),
            },
            Some(sync) => {
                let data = self.fresh(at, len);
                match self.mapper.write(&path, self.model.len(), at, len, self.stamp, sync) {
                    Ok(()) => self.put(at, &data),
                    Err(text) => return self.unmapped(&text),
                }
                Ok(())
            }
        }
    }

    /// Without a cache files cannot be mapped.
    fn unmapped(&self, text: &str) -> Done {
        match !self.maps && text.contains("os error 19") {
            true => Ok(()),
            false => Err(format!("mapping: {text}")),
        }
    }

    fn stat(&self, by_path: bool) -> Done {
        let meta = match by_path {
            true => fs::metadata(self.path(self.side)),
            false => self.file().metadata(),
        };
        match meta.map_err(failed("stat"))?.len() {
            len if len == self.size() => Ok(()),
            len => Err(format!("stat says {len} bytes, by the path: {by_path}")),
        }
    }

    /// Lists the directory, and looks at what is there.
    fn list(&self) -> Done {
        let listed = fs::read_dir(&self.places[self.side]).map_err(failed("listing"))?;
        let names: Result<Vec<_>, _> = listed.map(|e| e.map(|e| e.file_name())).collect();
        let names = names.map_err(failed("listing"))?;
        match names.iter().any(|name| name == self.name) && names.len() == 1 {
            true => self.stat(true),
            false => Err(format!("the directory has {names:?}, not {}", self.name)),
        }
    }

    /// What is said to be a hole has only zeroes.
    fn seek(&self, at: u64) -> Done {
        let size = self.size();
        let data = match seek(self.file(), SeekFrom::Data(at)) {
            Err(Errno::NXIO) => size,
            data => data.map_err(refused("seeking data"))?,
        };
        if data < at.min(size) || data > size {
            return Err(format!("data from {at} on is at {data}, of {size} bytes"));
        }
        let hole = self.expected(at, (data - at.min(data)) as usize);
        if hole != vec![0; hole.len()]
            && let Some(n) = hole.iter().position(|byte| *byte != 0)
        {
            return Err(format!("a hole from {at} to {data} has data at {}", at as usize + n));
        }
        match seek(self.file(), SeekFrom::Hole(at)) {
            Err(Errno::NXIO) if at >= size => Ok(()),
            Ok(hole) if hole >= at && hole <= size && at < size => Ok(()),
            hole => Err(format!("the hole from {at} on is at {hole:?}, of {size} bytes")),
        }
    }

    fn reopen(&mut self, how: Opening) -> Done {
        self.mapper.close()?;
        if self.sharing == Some(Sharing::Locking) {
            // The lock goes with the first descriptor of it that is closed.
            let old = self.files[self.side].take();
            drop(old);
            self.open(self.side, how)?;
            return self.locked();
        }
        self.files[self.side] = None;
        self.open(self.side, how)
    }

    fn locked(&self) -> Done {
        flock(self.file(), FlockOperation::LockExclusive).map_err(refused("locking"))
    }

    fn rename(&mut self) -> Done {
        // Another mount may hold the former name for true as long as it was told.
        if self.sharing.is_some() {
            return Ok(());
        }
        self.mapper.close()?;
        let from = self.path(self.side);
        self.name = NAMES[usize::from(self.name == NAMES[0])];
        fs::rename(from, self.path(self.side)).map_err(failed("renaming"))
    }

    fn copy(&mut self, from: u64, to: u64, len: usize) -> Done {
        let len = len.min((self.size() - from.min(self.size())) as usize);
        let overlap = from < to + len as u64 && to < from + len as u64;
        if len == 0 || overlap || self.appends[self.side] {
            return Ok(());
        }
        let (mut off_in, mut off_out, mut done) = (from, to, 0);
        while done < len {
            let file = self.file();
            match copy_file_range(file, Some(&mut off_in), file, Some(&mut off_out), len - done) {
                Ok(0) => return Err(format!("copied {done} of {len} bytes")),
                Ok(more) => done += more,
                Err(error) => return Err(format!("copying: {error}")),
            }
        }
        let data = self.model[from as usize..from as usize + len].to_vec();
        self.put(to, &data);
        Ok(())
    }

    fn pass(&mut self) -> Done {
        match self.sharing {
            None => Ok(()),
            Some(Sharing::Closing) => {
                self.mapper.close()?;
                self.files[self.side] = None;
                self.side = 1 - self.side;
                self.open(self.side, Opening::Plain)
            }
            Some(Sharing::Locking) => {
                flock(self.file(), FlockOperation::Unlock).map_err(refused("unlocking"))?;
                self.side = 1 - self.side;
                self.locked()
            }
        }
    }

    /// Closes it everywhere, and looks at what the server has.
    pub(super) fn finish(&mut self, export: &Path) -> Done {
        self.mapper.close()?;
        self.files.clear();
        let there = fs::read(export.join(self.name)).map_err(failed("at the server"))?;
        compare("at the server", 0, &there, &self.model)
    }
}
