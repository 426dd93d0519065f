//! The limits of files: a plain copy of them on the same file system, and a comparison of both, by
//! one thread.

use super::{source::Source, tree::Kind};
use crate::{
    exit::{Failure, Outcome},
    scratch::{self, Scratch},
};
use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Instant,
};

/// No more than so much is copied: it is a rate that is wanted.
const MOST: u64 = 512 << 20;
const BLOCK: usize = 1 << 20;

/// Bytes a second, divided by 10^9.
#[derive(Clone, Copy)]
pub(super) struct Rates {
    pub(super) copied: f64,
    /// What is there counts once.
    pub(super) compared: f64,
}

pub(super) fn rates(source: &Source, scratch: &Scratch) -> Outcome<Rates> {
    let place = scratch.directory("copy")?;
    let files = source.entries.iter().filter(|entry| matches!(entry.kind, Kind::File(_)));
    let pairs: Vec<_> = (files.enumerate())
        .map(|(at, entry)| (source.path_of(entry), place.join(at.to_string())))
        .collect();
    let rates = Rates { copied: timed(&pairs, copy)?, compared: timed(&pairs, compare)? };
    scratch::remove(&place);
    Ok(rates)
}

type OnTwo = fn(&Path, &Path, u64, &mut [Vec<u8>; 2]) -> io::Result<u64>;

fn timed(pairs: &[(PathBuf, PathBuf)], work: OnTwo) -> Outcome<f64> {
    let mut buffers = [vec![0; BLOCK], vec![0; BLOCK]];
    let (begin, mut done) = (Instant::now(), 0);
    for (from, to) in pairs {
        if done < MOST {
            done += work(from, to, MOST - done, &mut buffers)
                .map_err(|error| Failure::file("copying", from, &error))?;
        }
    }
    Ok(done as f64 / begin.elapsed().as_nanos().max(1) as f64)
}

/// Copies a file, `most` bytes of it.
fn copy(from: &Path, to: &Path, most: u64, [buffer, _]: &mut [Vec<u8>; 2]) -> io::Result<u64> {
    let mut from = File::open(from)?.take(most);
    let mut to = File::create_new(to)?;
    let mut copied = 0;
    loop {
        let len = from.read(buffer)?;
        if len == 0 {
            return Ok(copied);
        }
        to.write_all(&buffer[..len])?;
        copied += len as u64;
    }
}

/// Compares as much of a file as was copied.
fn compare(from: &Path, to: &Path, _: u64, [a, b]: &mut [Vec<u8>; 2]) -> io::Result<u64> {
    let (mut from, mut to) = (File::open(from)?, File::open(to)?);
    let mut compared = 0;
    loop {
        let len = to.read(b)?;
        if len == 0 {
            return Ok(compared);
        }
        from.read_exact(&mut a[..len])?;
        if a[..len] != b[..len] {
            return Err(io::Error::other("it changed while it was copied"));
        }
        compared += len as u64;
    }
}
