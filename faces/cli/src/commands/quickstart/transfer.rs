//! Files to the server and back. There they go as `petasos forward put` sends them; back they come
//! into lent memory, which the server fills, and are compared with what the files have.

use super::{
    hold::Held,
    source::Source,
    stage::Stage,
    tree::{Entry, Kind},
};
use crate::{
    exit::{Code, Failure, Outcome},
    progress::Progress,
};
use futures_util::{StreamExt, future::LocalBoxFuture, stream::FuturesUnordered};
use petasos::fabric::{Exclusive, Region};
use petasos_forward::{
    RelPath,
    client::{Remote, RemoteFile},
    protocol::OpenFlags,
    transfer::{self, Cause, Options, Report},
};
use std::{fs::File, future::poll_fn, os::unix::fs::FileExt, pin::pin, rc::Rc};

/// The largest piece that is read back by one call, and so the memory of one.
const WINDOW: usize = 2 << 20;

/// Bytes, and pieces, on the way at a time. More is slower, down to a third at 64 MiB: what comes
/// is compared at once, and should still be in a cache then.
const MOST_BYTES: usize = 8 << 20;
const MOST_PIECES: usize = 64;

/// Writes everything to the server, which pulls the data.
pub(super) async fn upload(held: &Held, source: &Source, progress: &Progress) -> Outcome {
    // A symbolic link that was named is what it leads to.
    let root = source.root().canonicalize();
    let root = root.map_err(|error| Failure::file("looking at", source.root(), &error))?;
    let mut options = Options::default();
    options.resume = false;
    let moved = transfer::Progress::new();
    let sources = [(root, held.copy()?)];
    let put = transfer::put(held.link(), &sources, &options, &moved, Box::new(|_| {}));
    let mut put = pin!(put);
    let watched = poll_fn(|context| {
        progress.reach(moved.reached().bytes);
        put.as_mut().poll(context)
    });
    complete(watched.await.map_err(failed)?)
}

/// Nothing may be missing.
fn complete(report: Report) -> Outcome {
    if let Some(lost) = report.lost {
        return Err(lost.into());
    }
    match report.problems.into_iter().next() {
        Some(problem) => Err(failed(problem.cause).within(String::from_utf8_lossy(&problem.path))),
        None => Ok(()),
    }
}

fn failed(cause: Cause) -> Failure {
    match cause {
        Cause::Remote(error) => error.into(),
        Cause::Changed => unsteady(cause),
        cause => Failure::new(Code::Failed, cause),
    }
}

fn unsteady(text: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Failed, text).advise("run it again when the files are not being changed")
}

/// A piece of a file that came back.
struct Piece<'a> {
    entry: &'a Entry,
    offset: u64,
    memory: Region,
    len: usize,
}

/// Pieces on the way, and memory to be used again.
#[derive(Default)]
struct Window<'a> {
    coming: FuturesUnordered<LocalBoxFuture<'a, Outcome<Piece<'a>>>>,
    bytes: usize,
    spare: Vec<Region>,
}

impl<'a> Window<'a> {
    fn is_full(&self) -> bool {
        self.bytes >= MOST_BYTES || self.coming.len() >= MOST_PIECES
    }

    /// Memory for a piece. Nothing that is there from before may pass for what should come.
    fn memory(&mut self, len: usize) -> Outcome<Region> {
        let spare = self.spare.pop().filter(|region| region.len() >= len);
        let mut memory = own(spare.unwrap_or_else(|| Region::zeroed(len)))?;
        memory[..len].fill(0x5a);
        Ok(memory.into_region())
    }

    fn push(&mut self, len: usize, piece: impl Future<Output = Outcome<Piece<'a>>> + 'a) {
        self.bytes += len;
        self.coming.push(Box::pin(piece));
    }

    /// One that has come.
    async fn next(&mut self) -> Outcome<Option<Piece<'a>>> {
        let Some(piece) = self.coming.next().await.transpose()? else { return Ok(None) };
        self.bytes -= piece.len;
        Ok(Some(piece))
    }
}

fn own(memory: Region) -> Outcome<Exclusive> {
    let in_use = |_| Failure::new(Code::Failed, "memory is still in use after its transfer");
    memory.into_exclusive().map_err(in_use)
}

/// Reads everything back, compares every byte, and keeps it where that is wanted.
pub(super) async fn download(
    held: &Held,
    source: &Source,
    stage: Option<&Stage>,
    progress: &Progress,
) -> Outcome {
    compare_names(&held.list(source).await?, &source.entries)?;
    if let Some(stage) = stage {
        source.entries.iter().try_for_each(|entry| stage.make(entry))?;
    }
    let remote = held.remote();
    let (small, longest) = (remote.welcome().inline, remote.welcome().window);
    let longest = usize::try_from(longest).unwrap_or(WINDOW).clamp(1, WINDOW);
    let mut window = Window::default();
    let mut check = Check { source, stage, progress, buffer: Vec::new() };
    for entry in &source.entries {
        let Kind::File(size @ 1..) = entry.kind else { continue };
        let path = held.path_of(source, entry)?;
        if size <= small {
            room(&mut window, &mut check).await?;
            window.push(size as usize, whole(remote.clone(), path, entry, size));
            continue;
        }
        let file = Rc::new(remote.open(&path, OpenFlags::READ, 0).await?);
        for offset in (0..size).step_by(longest) {
            room(&mut window, &mut check).await?;
            let len = (size - offset).min(longest as u64) as usize;
            let memory = window.memory(len)?;
            window.push(len, part(Rc::clone(&file), entry, offset, memory, len));
        }
    }
    while let Some(piece) = window.next().await? {
        check.piece(piece)?;
    }
    stage.map_or(Ok(()), |stage| stage.finish(&source.entries))
}

/// Waits until another piece may be asked for.
async fn room<'a>(window: &mut Window<'a>, check: &mut Check<'_>) -> Outcome {
    while window.is_full()
        && let Some(piece) = window.next().await?
    {
        let memory = check.piece(piece)?;
        window.spare.push(memory);
    }
    Ok(())
}

/// A small file, in one call.
async fn whole(remote: Remote, path: RelPath, entry: &Entry, size: u64) -> Outcome<Piece<'_>> {
    let (_, data) = remote.get(&path, size).await?;
    let data = data.ok_or_else(|| short(entry, size))?;
    came(entry, size, data.len() as u64)?;
    let (memory, len) = (Region::from_vec(data.to_vec()), data.len());
    Ok(Piece { entry, offset: 0, memory, len })
}

/// A part of a file, which the server pushes.
async fn part(
    file: Rc<RemoteFile>,
    entry: &Entry,
    offset: u64,
    memory: Region,
    len: usize,
) -> Outcome<Piece<'_>> {
    let into = memory.slice(0, len);
    let into = into.ok_or_else(|| Failure::new(Code::Failed, "a piece without memory"))?;
    let got = file.read_at(offset, into).await?;
    came(entry, len as u64, got)?;
    Ok(Piece { entry, offset, memory, len })
}

fn came(entry: &Entry, expected: u64, got: u64) -> Outcome {
    if got == expected { Ok(()) } else { Err(short(entry, expected)) }
}

fn short(entry: &Entry, expected: u64) -> Failure {
    let text = format!("{}: {expected} bytes did not come back whole", entry.path().display());
    Failure::new(Code::Mismatch, text)
}

/// Names, kinds, lengths, modes and what links say.
fn compare_names(there: &[Entry], here: &[Entry]) -> Outcome {
    let describe = |entry: &Entry| {
        let path = entry.path().display();
        match &entry.kind {
            Kind::Directory => format!("the directory {path} of mode {:04o}", entry.mode),
            Kind::File(len) => format!("the file {path} of {len} bytes, mode {:04o}", entry.mode),
            Kind::Link(to) => format!("the link {path} to {}", String::from_utf8_lossy(to)),
        }
    };
    let wrong = |text: String| Err(Failure::new(Code::Mismatch, text));
    if let Some(entry) = here.iter().find(|entry| there.binary_search(entry).is_err()) {
        return wrong(format!("{} did not arrive like that", describe(entry)));
    }
    match there.iter().find(|entry| here.binary_search(entry).is_err()) {
        Some(entry) => wrong(format!("{} arrived and was not sent", describe(entry))),
        None => Ok(()),
    }
}

/// Reads a piece of a file of this side.
fn read(source: &Source, piece: &Piece<'_>, into: &mut [u8]) -> Outcome {
    let path = source.path_of(piece.entry);
    let read = File::open(&path).and_then(|file| file.read_exact_at(into, piece.offset));
    read.map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            unsteady(format!("{} became shorter while it was read", path.display()))
        }
        _ => Failure::file("reading", &path, &error),
    })
}

/// Compares what came back, and keeps it where that is wanted.
struct Check<'a> {
    source: &'a Source,
    stage: Option<&'a Stage>,
    progress: &'a Progress,
    buffer: Vec<u8>,
}

impl Check<'_> {
    /// Gives the memory of the piece back.
    fn piece(&mut self, mut piece: Piece<'_>) -> Outcome<Region> {
        let memory = own(std::mem::replace(&mut piece.memory, Region::zeroed(0)))?;
        let came = &memory[..piece.len];
        self.buffer.resize(self.buffer.len().max(piece.len), 0);
        let expected = &mut self.buffer[..piece.len];
        read(self.source, &piece, expected)?;
        if came != expected {
            let at = came.iter().zip(&*expected).position(|(a, b)| a != b).unwrap_or(0);
            let (path, at) = (self.source.path_of(piece.entry), piece.offset + at as u64);
            let text = format!("{}: byte {at} came back wrong", path.display());
            return Err(Failure::new(Code::Mismatch, text)
                .advise("run it again when the files are not being changed"));
        }
        if let Some(stage) = self.stage {
            stage.write(piece.entry, piece.offset, came)?;
        }
        self.progress.add(piece.len as u64);
        Ok(memory.into_region())
    }
}
