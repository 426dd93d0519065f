//! Files to the store and back: this side lends memory, the server moves the data.

use super::{source::Source, stage::Stage};
use crate::{
    exit::{Code, Failure, Outcome},
    figures::Reached,
    progress::Progress,
    service::{Entry, Kind, Place, StoreClient},
};
use petasos::{
    Bulk, CallError, CallOptions, TypedCall,
    fabric::{Access, Region},
};
use std::{
    collections::VecDeque,
    fs::File,
    future::{Future, poll_fn},
    os::unix::fs::FileExt,
    pin::Pin,
    task::Poll,
    time::Duration,
};

/// The largest piece that one call moves, and so the memory of one.
const WINDOW: u64 = 16 << 20;

/// Bytes, and calls, on the way at a time.
const MOST_BYTES: usize = 64 << 20;
const MOST_CALLS: usize = 64;

/// A piece may wait for a slow disk.
const TIMEOUT: Duration = Duration::from_secs(120);

/// No try of this command takes so long.
const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Pieces smaller than this have memory of their own size.
const SMALL: u64 = 1 << 20;

/// A piece of a file.
struct Piece<'a> {
    entry: &'a Entry,
    file: u64,
    offset: u64,
    len: usize,
    /// The whole file.
    whole: bool,
}

fn pieces(source: &Source) -> impl Iterator<Item = Piece<'_>> {
    source.entries.iter().enumerate().flat_map(|(at, entry)| {
        let bytes = match entry.kind {
            Kind::File(bytes) => Some(bytes),
            _ => None,
        };
        let windows = bytes.map_or(0, |bytes| bytes.div_ceil(WINDOW).max(1));
        (0..windows).map(move |window| {
            let (bytes, offset) = (bytes.unwrap_or(0), window * WINDOW);
            let len = (bytes - offset).min(WINDOW) as usize;
            Piece { entry, file: at as u64, offset, len, whole: windows == 1 }
        })
    })
}

/// A call on the way, with the memory that it was lent.
struct Going<'a> {
    piece: Piece<'a>,
    call: TypedCall<Result<(), String>>,
    lent: Bulk,
    memory: Region,
}

/// Calls on the way, in the order in which they began, and memory to be used again.
#[derive(Default)]
struct Window<'a> {
    going: VecDeque<Going<'a>>,
    bytes: usize,
    spare: Vec<Region>,
}

impl<'a> Window<'a> {
    fn is_full(&self) -> bool {
        self.bytes >= MOST_BYTES || self.going.len() >= MOST_CALLS
    }

    /// Memory for a piece.
    fn memory(&mut self, len: usize) -> Region {
        if len as u64 >= SMALL {
            self.spare.pop().unwrap_or_else(|| Region::zeroed(WINDOW as usize))
        } else {
            Region::from_vec(vec![0; len])
        }
    }

    fn push(&mut self, going: Going<'a>) {
        self.bytes += going.piece.len;
        self.going.push_back(going);
    }

    /// The oldest, once it is over: its piece, and its memory with nobody else in it.
    async fn oldest(&mut self) -> Outcome<Option<(Piece<'a>, Region)>> {
        let Some(going) = self.going.pop_front() else { return Ok(None) };
        self.bytes -= going.piece.len;
        done(going.call.await)?;
        going.lent.close().await?;
        Ok(Some((going.piece, going.memory)))
    }

    fn reuse(&mut self, memory: Region) {
        if memory.len() as u64 == WINDOW {
            self.spare.push(memory);
        }
    }
}

fn done(answer: Result<Result<(), String>, petasos::CallError>) -> Outcome {
    answer?.map_err(|text| Failure::new(Code::Failed, format!("the server: {text}")))
}

fn client(reached: &Reached) -> StoreClient {
    let options = CallOptions::default().timeout(TIMEOUT);
    StoreClient::new(&reached.engine, &reached.address).with(options)
}

/// The store for this client alone, as long as this lives.
pub(super) struct Held {
    _call: TypedCall<Result<(), String>>,
}

/// Why the store could not be had.
pub(super) enum NotHeld {
    Call(CallError),
    Refused(String),
}

/// Asks for an empty store. The answer comes only if there is none to be had.
pub(super) async fn hold(reached: &Reached) -> Result<Held, NotHeld> {
    let options = CallOptions::default().timeout(FOREVER);
    let mut held = StoreClient::new(&reached.engine, &reached.address).with(options).hold();
    // Calls are answered in order: what refuses the first one is here before this one's answer.
    client(reached).list().await.map_err(NotHeld::Call)?.map_err(NotHeld::Refused)?;
    let refused = poll_fn(|context| match Pin::new(&mut held).poll(context) {
        Poll::Ready(answer) => Poll::Ready(Some(answer)),
        Poll::Pending => Poll::Ready(None),
    });
    match refused.await {
        None => Ok(Held { _call: held }),
        Some(Err(error)) => Err(NotHeld::Call(error)),
        Some(Ok(answer)) => Err(NotHeld::Refused(answer.err().unwrap_or_default())),
    }
}

fn own(memory: Region) -> Outcome<petasos::fabric::Exclusive> {
    let in_use = |_| Failure::new(Code::Failed, "memory is still in use after its transfer");
    memory.into_exclusive().map_err(in_use)
}

/// Waits for calls that give nothing, `MOST_CALLS` at a time.
async fn all(calls: impl Iterator<Item = TypedCall<Result<(), String>>>) -> Outcome {
    let mut going = VecDeque::new();
    for call in calls {
        if going.len() >= MOST_CALLS
            && let Some(oldest) = going.pop_front()
        {
            done(oldest.await)?;
        }
        going.push_back(call);
    }
    for call in going {
        done(call.await)?;
    }
    Ok(())
}

/// Writes everything to the server, which pulls the data.
pub(super) async fn upload(reached: &Reached, source: &Source, progress: &Progress) -> Outcome {
    let store = client(reached);
    let others = source.entries.iter().filter(|entry| !matches!(entry.kind, Kind::File(_)));
    all(others.map(|entry| store.make(entry.clone()))).await?;
    let mut window = Window::default();
    let mut in_pieces = Vec::new();
    for piece in pieces(source) {
        while window.is_full()
            && let Some((done, memory)) = window.oldest().await?
        {
            progress.add(done.len as u64);
            window.reuse(memory);
        }
        let mut memory = own(window.memory(piece.len))?;
        read(source, &piece, &mut memory[..piece.len])?;
        let memory = memory.into_region();
        let lent = lend(reached, &memory, piece.len, Access::READ)?;
        let place = piece.whole.then(|| place(piece.entry, piece.len as u64));
        if !piece.whole && piece.offset == 0 {
            in_pieces.push((piece.file, piece.entry));
        }
        let call = store.write(piece.file, piece.offset, lent.handle(), place);
        window.push(Going { piece, call, lent, memory });
    }
    while let Some((done, memory)) = window.oldest().await? {
        progress.add(done.len as u64);
        window.reuse(memory);
    }
    // Files of several pieces appear when all of them are there.
    let nothing = reached.engine.bulk(Region::from_vec(Vec::new()), Access::READ)?;
    all(in_pieces.into_iter().map(|(file, entry)| {
        let len = if let Kind::File(len) = entry.kind { len } else { 0 };
        store.write(file, 0, nothing.handle(), Some(place(entry, len)))
    }))
    .await?;
    // What is deepest first: a directory may be closed to writing.
    let directories = source.entries.iter().rev().filter(|entry| entry.kind == Kind::Directory);
    for directory in directories {
        done(store.set_mode(directory.path.clone(), directory.mode).await)?;
    }
    Ok(())
}

fn place(entry: &Entry, len: u64) -> Place {
    Place { path: entry.path.clone(), mode: entry.mode, len }
}

fn lend(reached: &Reached, memory: &Region, len: usize, access: Access) -> Outcome<Bulk> {
    let slice = memory.slice(0, len);
    let slice = slice.ok_or_else(|| Failure::new(Code::Failed, "a piece without memory"))?;
    Ok(reached.engine.bulk(slice, access)?)
}

/// Reads a piece of a file of this side.
fn read(source: &Source, piece: &Piece<'_>, into: &mut [u8]) -> Outcome {
    let path = source.path_of(piece.entry);
    let read = File::open(&path).and_then(|file| file.read_exact_at(into, piece.offset));
    read.map_err(|error| match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            let text = format!("{} became shorter while it was read", path.display());
            Failure::new(Code::Failed, text)
                .advise("run it again when the files are not being changed")
        }
        _ => Failure::file("reading", &path, &error),
    })
}

/// Reads everything back: the server pushes the data into this side's memory, where every byte is
/// compared with what the files have.
pub(super) async fn download(
    reached: &Reached,
    source: &Source,
    stage: Option<&Stage>,
    progress: &Progress,
) -> Outcome {
    let store = client(reached);
    compare_names(&listed(store.list().await)?, &source.entries)?;
    if let Some(stage) = stage {
        source.entries.iter().try_for_each(|entry| stage.make(entry))?;
    }
    let mut window = Window::default();
    let mut check = Check { source, stage, progress, buffer: Vec::new() };
    for piece in pieces(source).filter(|piece| piece.len > 0) {
        while window.is_full()
            && let Some((done, memory)) = window.oldest().await?
        {
            let memory = check.piece(&done, memory)?;
            window.reuse(memory);
        }
        // Nothing that is there from before may pass for what should come.
        let mut memory = own(window.memory(piece.len))?;
        memory[..piece.len].fill(0x5a);
        let memory = memory.into_region();
        let lent = lend(reached, &memory, piece.len, Access::WRITE)?;
        let call = store.read(piece.entry.path.clone(), piece.offset, lent.handle());
        window.push(Going { piece, call, lent, memory });
    }
    while let Some((done, memory)) = window.oldest().await? {
        let memory = check.piece(&done, memory)?;
        window.reuse(memory);
    }
    stage.map_or(Ok(()), |stage| stage.finish(&source.entries))
}

fn listed(answer: Result<Result<Vec<Entry>, String>, petasos::CallError>) -> Outcome<Vec<Entry>> {
    answer?.map_err(|text| Failure::new(Code::Failed, format!("the server: {text}")))
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

/// Compares what came back, and keeps it where that is wanted.
struct Check<'a> {
    source: &'a Source,
    stage: Option<&'a Stage>,
    progress: &'a Progress,
    buffer: Vec<u8>,
}

impl Check<'_> {
    fn piece(&mut self, piece: &Piece<'_>, memory: Region) -> Outcome<Region> {
        let memory = own(memory)?;
        let came = &memory[..piece.len];
        self.buffer.resize(self.buffer.len().max(piece.len), 0);
        let expected = &mut self.buffer[..piece.len];
        read(self.source, piece, expected)?;
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
