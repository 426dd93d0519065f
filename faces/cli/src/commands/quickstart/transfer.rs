//! Files to the server and back. There they go as `petasos forward put` sends them; back they come
//! into lent memory, which the server fills, and are compared with what the files have.

use super::{
    directory::ServerDirectory,
    source::Source,
    stage::Stage,
    tree::{Entry, Kind},
};
use crate::{
    exit::{Code, Failure, Outcome},
    progress::Progress,
};
use futures_util::{
    FutureExt, StreamExt,
    future::{LocalBoxFuture, Shared},
    stream::FuturesUnordered,
};
use petasos::fabric::{Exclusive, Region};
use petasos_forward::{
    RelPath,
    client::{Remote, RemoteError, RemoteFile},
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

/// Pieces with lent memory that are on the way at a time, and so regions: all of one length.
const MOST_REGIONS: usize = 16;

/// What to do about files that changed.
const STEADY: &str = "run it again when the files are not being changed";

/// Writes everything to the server, which pulls the data.
pub(super) async fn upload(
    directory: &ServerDirectory,
    source: &Source,
    progress: &Progress,
) -> Outcome {
    // A symbolic link that was named is what it leads to.
    let root = source.root().canonicalize();
    let root =
        root.map_err(|error| Failure::file("reading attributes of", source.root(), &error))?;
    let mut options = Options::default();
    options.resume = false;
    let moved = transfer::Progress::new();
    let sources = [(root, directory.copy()?)];
    let put = transfer::put(directory.connection(), &sources, &options, &moved, Box::new(|_| {}));
    let mut put = pin!(put);
    let watched = poll_fn(|context| {
        progress.set_done(moved.snapshot().bytes);
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
    Failure::new(Code::Failed, text).advise(STEADY)
}

/// A piece of a file that came back.
struct Piece<'a> {
    entry: &'a Entry,
    offset: u64,
    len: usize,
    came: Came,
}

/// Where its bytes are.
enum Came {
    /// In the answer: a small file.
    Inline(Box<dyn AsRef<[u8]>>),
    /// In lent memory, at its beginning.
    Lent(Region),
}

/// Pieces on the way, and memory to be used again.
struct Window<'a> {
    coming: FuturesUnordered<LocalBoxFuture<'a, Outcome<Piece<'a>>>>,
    bytes: usize,
    /// How long a piece can be, and so each region.
    longest: usize,
    /// Regions of pieces on the way, and those that are free.
    lent: usize,
    spare: Vec<Region>,
}

impl<'a> Window<'a> {
    fn new(longest: usize) -> Window<'a> {
        let coming = FuturesUnordered::new();
        Window { coming, bytes: 0, longest, lent: 0, spare: Vec::new() }
    }

    fn is_full(&self) -> bool {
        self.bytes >= MOST_BYTES || self.coming.len() >= MOST_PIECES || self.lent >= MOST_REGIONS
    }

    /// Memory for a piece. Nothing that is there from before may pass for what should come.
    fn memory(&mut self, len: usize) -> Outcome<Region> {
        let spare = self.spare.pop().unwrap_or_else(|| Region::zeroed(self.longest));
        let mut memory = own(spare)?;
        memory[..len].fill(0x5a);
        self.lent += 1;
        Ok(memory.into_region())
    }

    /// Takes the memory of a piece back.
    fn take_back(&mut self, memory: Option<Region>) {
        self.lent -= usize::from(memory.is_some());
        self.spare.extend(memory);
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

    /// Waits until another piece may be asked for.
    async fn room(&mut self, check: &mut Check<'_>) -> Outcome {
        while self.is_full()
            && let Some(piece) = self.next().await?
        {
            self.take_back(check.piece(piece)?);
        }
        Ok(())
    }

    /// Waits for all pieces.
    async fn rest(&mut self, check: &mut Check<'_>) -> Outcome {
        while let Some(piece) = self.next().await? {
            self.take_back(check.piece(piece)?);
        }
        Ok(())
    }
}

fn own(memory: Region) -> Outcome<Exclusive> {
    let in_use = |_| Failure::new(Code::Failed, "memory is still in use after its transfer");
    memory.into_exclusive().map_err(in_use)
}

/// Compares what has arrived, all but the bytes, with what was there at the beginning.
pub(super) async fn compare_names(directory: &ServerDirectory, source: &Source) -> Outcome {
    compare(&directory.list(source).await?, &source.entries)
}

/// Reads every file back, compares every byte, and keeps it where that is wanted.
pub(super) async fn download(
    directory: &ServerDirectory,
    source: &Source,
    stage: Option<&Stage>,
    progress: &Progress,
) -> Outcome {
    if let Some(stage) = stage {
        source.entries.iter().try_for_each(|entry| stage.make(entry))?;
    }
    let remote = directory.remote();
    let (small, longest) = (remote.welcome().inline, remote.welcome().window);
    let longest = usize::try_from(longest).unwrap_or(WINDOW).clamp(1, WINDOW);
    let mut window = Window::new(longest);
    let mut check = Check { source, stage, progress, buffer: Vec::new() };
    for entry in &source.entries {
        let Kind::File(size @ 1..) = entry.kind else { continue };
        let path = directory.path_of(source, entry)?;
        if size <= small {
            window.room(&mut check).await?;
            window.push(size as usize, whole(remote.clone(), path, entry, size));
            continue;
        }
        let file = opening(remote.clone(), path);
        for offset in (0..size).step_by(longest) {
            window.room(&mut check).await?;
            let len = (size - offset).min(longest as u64) as usize;
            let memory = window.memory(len)?;
            window.push(len, part(file.clone(), entry, offset, memory, len));
        }
    }
    window.rest(&mut check).await?;
    stage.map_or(Ok(()), |stage| stage.finish(&source.entries))
}

/// A file that all its pieces wait for, while pieces of other files are on the way.
type Opening = Shared<LocalBoxFuture<'static, Result<Rc<RemoteFile>, RemoteError>>>;

fn opening(remote: Remote, path: RelPath) -> Opening {
    let open = async move { remote.open(&path, OpenFlags::READ, 0).await.map(Rc::new) };
    open.boxed_local().shared()
}

/// A small file, in one call.
async fn whole(remote: Remote, path: RelPath, entry: &Entry, size: u64) -> Outcome<Piece<'_>> {
    let (_, data) = remote.get(&path, size).await?;
    let data = data.ok_or_else(|| short(entry, size))?;
    came(entry, size, data.len() as u64)?;
    Ok(Piece { entry, offset: 0, len: data.len(), came: Came::Inline(Box::new(data)) })
}

/// A part of a file, which the server pushes.
async fn part(
    file: Opening,
    entry: &Entry,
    offset: u64,
    memory: Region,
    len: usize,
) -> Outcome<Piece<'_>> {
    let into = memory.slice(0, len);
    let into = into.ok_or_else(|| Failure::new(Code::Failed, "a piece without memory"))?;
    let got = file.await?.read_at(offset, into).await?;
    came(entry, len as u64, got)?;
    Ok(Piece { entry, offset, len, came: Came::Lent(memory) })
}

fn came(entry: &Entry, expected: u64, got: u64) -> Outcome {
    if got == expected { Ok(()) } else { Err(short(entry, expected)) }
}

fn short(entry: &Entry, expected: u64) -> Failure {
    let text = format!("{}: {expected} bytes did not come back whole", entry.path().display());
    Failure::new(Code::Mismatch, text)
}

/// Names, kinds, lengths, modes and what links say.
fn compare(there: &[Entry], here: &[Entry]) -> Outcome {
    let describe = |entry: &Entry| {
        let path = entry.path().display();
        match &entry.kind {
            Kind::Directory => format!("the directory {path} of mode {:04o}", entry.mode),
            Kind::File(len) => format!("the file {path} of {len} bytes, mode {:04o}", entry.mode),
            Kind::Link(to) => format!("the link {path} to {}", String::from_utf8_lossy(to)),
        }
    };
    // What is sent is looked for anew: it may be more, or other things, than was there before.
    let wrong = |text: String| Err(Failure::new(Code::Mismatch, text).advise(STEADY));
    if let Some(entry) = here.iter().find(|entry| there.binary_search(entry).is_err()) {
        return wrong(format!("{} did not arrive like that", describe(entry)));
    }
    match there.iter().find(|entry| here.binary_search(entry).is_err()) {
        Some(entry) => wrong(format!("{} arrived and was not sent", describe(entry))),
        None => Ok(()),
    }
}

/// Reads a piece of a file of this side.
fn read(source: &Source, entry: &Entry, offset: u64, into: &mut [u8]) -> Outcome {
    let path = source.path_of(entry);
    let read = File::open(&path).and_then(|file| file.read_exact_at(into, offset));
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
    /// Gives the memory of the piece back, if it had some.
    fn piece(&mut self, piece: Piece<'_>) -> Outcome<Option<Region>> {
        let Piece { entry, offset, len, came } = piece;
        match came {
            Came::Inline(data) => self.bytes(entry, offset, (*data).as_ref()).map(|()| None),
            Came::Lent(memory) => {
                let memory = own(memory)?;
                self.bytes(entry, offset, &memory[..len])?;
                Ok(Some(memory.into_region()))
            }
        }
    }

    fn bytes(&mut self, entry: &Entry, offset: u64, came: &[u8]) -> Outcome {
        self.buffer.resize(self.buffer.len().max(came.len()), 0);
        let expected = &mut self.buffer[..came.len()];
        read(self.source, entry, offset, expected)?;
        if came != expected {
            let at = came.iter().zip(&*expected).position(|(a, b)| a != b).unwrap_or(0);
            let (path, at) = (self.source.path_of(entry), offset + at as u64);
            let text = format!("{}: byte {at} came back wrong", path.display());
            return Err(Failure::new(Code::Mismatch, text).advise(STEADY));
        }
        if let Some(stage) = self.stage {
            stage.write(entry, offset, came)?;
        }
        self.progress.add(came.len() as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However large files are, and in whichever order they come.
    #[test]
    fn memory_of_pieces_is_bounded() {
        let sizes = [100, 300 << 10, 1 << 10, WINDOW, 700 << 10, 256 << 10];
        let place = tempfile::tempdir().unwrap();
        for (at, size) in sizes.iter().enumerate() {
            std::fs::write(place.path().join(at.to_string()), vec![0x5a; *size]).unwrap();
        }
        let source = Source::open(place.path()).unwrap();
        let progress = Progress::bytes(0, String::new());
        let mut check =
            Check { source: &source, stage: None, progress: &progress, buffer: Vec::new() };
        let mut window = Window::new(WINDOW);
        for round in 0..50 {
            for (entry, len) in source.entries.iter().zip(sizes) {
                window.room(&mut check).now_or_never().unwrap().unwrap();
                let came = match len > (256 << 10) && round % 3 > 0 {
                    true => Came::Lent(window.memory(len).unwrap()),
                    false => Came::Inline(Box::new(vec![0x5a; len])),
                };
                window.push(len, async move { Ok(Piece { entry, offset: 0, len, came }) });
                assert!(window.bytes < MOST_BYTES + WINDOW);
                assert!(window.lent + window.spare.len() <= MOST_REGIONS);
                assert!(window.spare.iter().all(|region| region.len() == WINDOW));
            }
        }
        window.rest(&mut check).now_or_never().unwrap().unwrap();
        assert_eq!((window.lent, window.bytes), (0, 0));
    }
}
