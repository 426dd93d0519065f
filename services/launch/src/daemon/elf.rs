//! Which shared libraries a program, or a library, asks the loader for, where it has them looked
//! for, and which loader that is: what an ELF file says, read in a few pieces however large it is.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::unix::{ffi::OsStrExt, fs::FileExt},
    path::{Path, PathBuf},
};

/// More than any program has.
const MAX_HEADERS: u16 = 256;
const MAX_DYNAMIC: u64 = 64 << 10;
const MAX_NAME: usize = 256;
const MAX_PATHS: usize = 4096;

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const LOADER: u32 = 3;
/// The longest path.
const MAX_PATH: u64 = 4096;
const NEEDED: u64 = 1;
const STRINGS: u64 = 5;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    number(bytes, at).map(u64::from_le_bytes)
}

/// A part of a file, as much of it as there is.
fn part(file: &File, at: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, at)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// What a file asks for.
#[derive(Debug, Default)]
pub(crate) struct Wants {
    /// Names of libraries.
    pub(crate) needed: Vec<String>,
    /// Directories in which those are looked for first, with `:` between them.
    pub(crate) search: Vec<String>,
}

/// What a file asks for; `None` for what is not a 64-bit little-endian ELF file with a dynamic
/// section.
pub(crate) fn wants(path: &Path) -> Option<Wants> {
    read(path).ok().flatten()
}

/// The loader by which the system runs a program, if it does by one.
pub(crate) fn loader(path: &Path) -> Option<PathBuf> {
    let file = File::open(path).ok()?;
    let (headers, size) = headers(&file).ok()??;
    let is_loader = |entry: &&[u8]| number(entry, 0).map(u32::from_le_bytes) == Some(LOADER);
    let entry = headers.chunks_exact(size).find(is_loader)?;
    let name = part(&file, word(entry, 8)?, word(entry, 32)?.min(MAX_PATH) as usize).ok()?;
    let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
    Some(OsStr::from_bytes(name).into())
}

/// The headers of a program's segments, and the size of each.
fn headers(file: &File) -> io::Result<Option<(Vec<u8>, usize)>> {
    let header = part(file, 0, 64)?;
    // Its class, and the order of its bytes.
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return Ok(None);
    }
    let layout = || {
        let table = word(&header, 32)?;
        let size = u16::from_le_bytes(number(&header, 54)?);
        let count = u16::from_le_bytes(number(&header, 56)?).min(MAX_HEADERS);
        Some((table, usize::from(size), usize::from(count)))
    };
    let Some((table, size, count)) = layout().filter(|(_, size, _)| *size >= 56) else {
        return Ok(None);
    };
    Ok(Some((part(file, table, size * count)?, size)))
}

fn read(path: &Path) -> io::Result<Option<Wants>> {
    let file = File::open(path)?;
    let Some((headers, size)) = headers(&file)? else { return Ok(None) };
    let mut loads = Vec::new();
    let mut dynamic = None;
    for entry in headers.chunks_exact(size) {
        let kind = number(entry, 0).map(u32::from_le_bytes);
        let (Some(offset), Some(address), Some(len)) =
            (word(entry, 8), word(entry, 16), word(entry, 32))
        else {
            continue;
        };
        match kind {
            Some(LOAD) => loads.push((address, offset, len)),
            Some(DYNAMIC) => dynamic = Some((offset, len.min(MAX_DYNAMIC))),
            _ => {}
        }
    }
    let Some((at, len)) = dynamic else { return Ok(None) };
    let entries = part(&file, at, len as usize)?;
    let entries = entries.chunks_exact(16).filter_map(|e| Some((word(e, 0)?, word(e, 8)?)));
    let entries: Vec<(u64, u64)> = entries.take_while(|(tag, _)| *tag != 0).collect();
    let strings = entries.iter().find(|(tag, _)| *tag == STRINGS).and_then(|(_, address)| {
        loads.iter().find_map(|(start, offset, len)| {
            let within = address.checked_sub(*start).filter(|within| within < len)?;
            offset.checked_add(within)
        })
    });
    let Some(strings) = strings else { return Ok(None) };
    let texts = |wanted: &[u64], most: usize| -> io::Result<Vec<String>> {
        let mut texts = Vec::new();
        for (_, at) in entries.iter().filter(|(tag, _)| wanted.contains(tag)) {
            let text = part(&file, strings.saturating_add(*at), most)?;
            let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
            texts.push(String::from_utf8_lossy(text).into_owned());
        }
        Ok(texts)
    };
    let (needed, search) = (texts(&[NEEDED], MAX_NAME)?, texts(&[RPATH, RUNPATH], MAX_PATHS)?);
    Ok(Some(Wants { needed, search }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_needs_the_c_library() {
        let own = std::env::current_exe().unwrap();
        let wants = wants(&own).unwrap();
        assert!(wants.needed.iter().any(|name| name.starts_with("libc.so")), "{wants:?}");
        let loader = loader(&own).unwrap();
        assert!(loader.is_absolute() && loader.exists(), "{}", loader.display());
    }

    #[test]
    fn whatever_is_no_such_file_needs_nothing() {
        assert!(wants(Path::new("/nothing/of/this/name")).is_none());
        assert!(wants(Path::new("/")).is_none());
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let place = tempfile::tempdir().unwrap();
        let mut random = petasos_sim::Random::new(11);
        for nth in 0..400 {
            // Cut off, and with the first bytes spoiled.
            let mut bytes = own[..random.below(4096) as usize].to_vec();
            for _ in 0..8 {
                let at = random.below(bytes.len().clamp(1, 800) as u64) as usize;
                if let Some(byte) = bytes.get_mut(at).filter(|_| at > 5) {
                    *byte = random.number() as u8;
                }
            }
            let path = place.path().join(nth.to_string());
            std::fs::write(&path, bytes).unwrap();
            wants(&path);
            loader(&path);
        }
    }
}
