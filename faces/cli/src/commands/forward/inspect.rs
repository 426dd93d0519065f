//! `ls`, `stat` and `cat`.

use super::{
    out::{self, Out},
    session,
};
use crate::{
    cli::{
        forward::{Cat, Ls, ServerAccess, Stat},
        location::Location,
    },
    exit::{Code, Failure, Outcome},
};
use futures_util::{StreamExt, stream};
use petasos::fabric::{Region, Slice};
use petasos_forward::{
    RelPath,
    client::{Remote, RemoteError, RemoteFile},
    protocol::{Attr, DirEntry, Kind, OpenFlags},
};

/// Pieces of a file on the way at a time.
const AHEAD: usize = 6;

/// Does the work for each location, in one session for each server. Goes on after a failure; gives
/// the first one.
pub(super) fn each(
    what: &str,
    locations: &[Location],
    access: &ServerAccess,
    mut work: impl AsyncFnMut(&Remote, &Location) -> Outcome,
) -> Outcome {
    let mut first = Ok(());
    for group in locations.chunk_by(|a, b| a.address == b.address) {
        session::with(what, &group[0].address, access, async |remote| {
            for location in group {
                if let Err(failure) = work(remote, location).await {
                    match &first {
                        Ok(()) => first = Err(failure),
                        Err(_) => failure.say(),
                    }
                }
            }
            Ok(())
        })?;
    }
    first
}

pub(super) fn ls(options: &Ls) -> Outcome {
    let mut out = Out::new();
    let done = each("ls", &options.locations, &options.access, async |remote, location| {
        let attr = remote.stat(&location.path, false).await?;
        // A name with a slash after it is what it leads to.
        let follow = attr.kind == Kind::Symlink && location.directory;
        if attr.kind != Kind::Directory && !follow {
            let entry = DirEntry { name: location.path.as_bytes().to_vec(), attr };
            return list(remote, options, &RelPath::root(), vec![entry], &mut out).await;
        }
        let mut open = vec![location.path.clone()];
        let several = options.recursive || options.locations.len() > 1;
        while let Some(directory) = open.pop() {
            let mut entries = remote.read_dir(&directory).await?;
            entries.sort_by(|a, b| a.name.cmp(&b.name));
            if options.recursive {
                let below = entries.iter().rev().filter(|e| e.attr.kind == Kind::Directory);
                let below = below.map(|entry| directory.join(&entry.name));
                open.extend(below.collect::<Result<Vec<_>, _>>().map_err(odd_name)?);
            }
            if several && !options.json {
                out.line("", format!("{directory}:").as_bytes())?;
            }
            list(remote, options, &directory, entries, &mut out).await?;
            if !open.is_empty() && several && !options.json {
                out.line("", b"")?;
            }
        }
        Ok(())
    });
    out.finish().and(done)
}

fn odd_name(error: petasos_forward::PathError) -> Failure {
    Failure::new(Code::Failed, format!("the server sent an invalid name: {error}"))
}

async fn list(
    remote: &Remote,
    options: &Ls,
    directory: &RelPath,
    entries: Vec<DirEntry>,
    out: &mut Out,
) -> Outcome {
    let width = |of: fn(&Attr) -> u64| {
        entries.iter().map(|entry| of(&entry.attr)).max().unwrap_or(0).to_string().len()
    };
    let (links, uid) = (width(|a| a.links.into()), width(|a| a.uid.into()));
    let (gid, size) = (width(|a| a.gid.into()), width(|a| a.size));
    for DirEntry { name, attr } in &entries {
        let path = [directory.as_bytes(), if directory.is_root() { b"" } else { b"/" }, name];
        if options.json {
            out.json(&out::attr_json(&path.concat(), attr))?;
            continue;
        }
        if !options.long {
            out.line("", name)?;
            continue;
        }
        let before = format!(
            "{} {:links$} {:uid$} {:gid$} {:size$} {} ",
            out::mode(attr),
            attr.links,
            attr.uid,
            attr.gid,
            attr.size,
            out::time(attr.mtime)
        );
        let mut shown = name.clone();
        if attr.kind == Kind::Symlink
            && let Ok(path) = RelPath::parse(&path.concat())
        {
            // It may be gone meanwhile.
            let to = remote.read_link(&path).await.unwrap_or_default();
            shown.extend([b" -> ", &to[..]].concat());
        }
        out.line(&before, &shown)?;
    }
    Ok(())
}

pub(super) fn stat(options: &Stat) -> Outcome {
    let mut out = Out::new();
    let done = each("stat", &options.locations, &options.access, async |remote, location| {
        let attr = remote.stat(&location.path, options.follow).await?;
        if options.json {
            return out.json(&out::attr_json(location.path.as_bytes(), &attr)).map(drop);
        }
        out.line("  path: ", format!("/{}", location.path.as_path().display()).as_bytes())?;
        let text = format!(
            "  kind: {}, {} bytes, {} bytes on the disk\n  mode: {:04o} {}, owner {}, group {}, \
             names {}, number {}\n  read: {}\n  data: {}\n  attr: {} (UTC)\n",
            serde_json::to_value(attr.kind)
                .ok()
                .and_then(|k| k.as_str().map(str::to_owned))
                .unwrap_or_default(),
            attr.size,
            attr.blocks.saturating_mul(512),
            attr.mode,
            out::mode(&attr),
            attr.uid,
            attr.gid,
            attr.links,
            attr.ino,
            out::time(attr.atime),
            out::time(attr.mtime),
            out::time(attr.ctime),
        );
        out.bytes(text.as_bytes()).map(drop)
    });
    out.finish().and(done)
}

pub(super) fn cat(options: &Cat) -> Outcome {
    let mut out = Out::new();
    let done = each("cat", &options.locations, &options.access, async |remote, location| {
        let file = remote.open(&location.path, OpenFlags::READ, 0).await?;
        let copied = copy(&file, &mut out).await;
        file.close().await?;
        copied
    });
    out.finish().and(done)
}

/// Copies a file to standard output, several pieces ahead, and goes on where it grew meanwhile.
async fn copy(file: &RemoteFile, out: &mut Out) -> Outcome {
    let size = file.attr().size;
    let piece = file.remote().welcome().window.clamp(64 << 10, 4 << 20);
    let read = |nth: u64| async move {
        // One byte more than there is: so it is seen that the file ends.
        let len = size.saturating_sub(nth * piece).saturating_add(1).min(piece);
        let memory = Slice::from(Region::zeroed(len as usize));
        let got = file.read_at(nth * piece, memory.clone()).await?;
        Ok::<_, RemoteError>((memory, got))
    };
    let mut pieces = std::pin::pin!(stream::iter(0..=size / piece).map(read).buffered(AHEAD));
    let mut at = 0;
    loop {
        let (memory, got) = match pieces.next().await {
            Some(read) => read?,
            None => {
                let memory = Slice::from(Region::zeroed(piece as usize));
                let got = file.read_at(at, memory.clone()).await?;
                (memory, got)
            }
        };
        let got = (got as usize).min(memory.len());
        let mut buffer = [0; 16 << 10];
        for from in (0..got).step_by(buffer.len()) {
            let part = &mut buffer[..(got - from).min(16 << 10)];
            memory.read(from, part);
            if !out.bytes(part)? {
                return Ok(());
            }
        }
        at += got as u64;
        if got < memory.len() {
            return Ok(());
        }
    }
}
