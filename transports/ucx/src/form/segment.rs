//! Shared memory that an address names: UCX maps as much of it as its own queue is long, whether it
//! is there or not.

use std::{fs, os::unix::fs::FileExt};

/// Bits of a number of POSIX shared memory that say how it is found (`UCT_POSIX_SEG_FLAG_*`).
const BY_PROCESS: u64 = 1 << 63;
const BY_NAME: u64 = 1 << 62;
const HUGE: u64 = 1 << 61;
const FLAGS: u64 = 0xf << 60;
/// With [`BY_PROCESS`]: so many bits of a descriptor, and behind them as many of a process.
const BITS: u32 = 30;

/// Which of UCX's transports made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Posix,
    Sysv,
}

/// The flags of a number that steer how the memory is found.
pub(super) fn flags(maker: Maker, number: u64) -> u64 {
    match maker {
        // Whether it lies in huge pages is for each process to say.
        Maker::Posix => number & FLAGS & !HUGE,
        // An id of the kernel's, a positive number of 32 bits.
        Maker::Sysv => number & !(i32::MAX as u64),
    }
}

/// Memory that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// In bytes.
    pub(super) length: u64,
    /// What UCX calls all of its memory of this kind.
    pub(super) name: String,
    /// Which process made it, if that is to be seen.
    pub(super) process: Option<u64>,
}

impl Found {
    /// Whether it may be what `ours` is, to another process: a queue of the same length, which is
    /// rounded up where it lies in huge pages.
    pub(super) fn is_like(&self, ours: &Found, numbers: [u64; 2]) -> bool {
        let same_pages = (numbers[0] ^ numbers[1]) & HUGE == 0;
        let fits = self.length == ours.length || (!same_pages && self.length > ours.length);
        fits && self.name == ours.name
    }
}

/// That memory. `None` if there is none, or it cannot be looked at. `directory` is what stands
/// behind the number in the address.
pub(super) fn find(maker: Maker, number: u64, directory: &[u8]) -> Option<Found> {
    match maker {
        Maker::Posix => find_file(number, directory),
        Maker::Sysv => {
            // key, shmid, perms, size, cpid, and more: a line each, below the headings.
            let all = fs::read_to_string("/proc/sysvipc/shm").ok()?;
            let numbers = |line: &str| -> Option<[u64; 3]> {
                let mut words = line.split_whitespace().skip(1);
                let id = words.next()?.parse().ok()?;
                let length = words.nth(1)?.parse().ok()?;
                Some([id, length, words.next()?.parse().ok()?])
            };
            let [_, length, process] =
                all.lines().filter_map(numbers).find(|[id, ..]| *id == number)?;
            Some(Found { length, name: String::new(), process: Some(process) })
        }
    }
}

/// How UCX's files begin.
const NAME: &str = "ucx_shm_posix_";

fn path(number: u64, directory: &[u8]) -> Option<String> {
    let id = number & !FLAGS;
    Some(if number & BY_PROCESS != 0 {
        let descriptor = id & ((1 << BITS) - 1);
        format!("/proc/{}/fd/{descriptor}", id >> BITS)
    } else if number & BY_NAME != 0 {
        format!("/dev/shm/{NAME}{id:x}")
    } else {
        let (0, directory) = directory.split_last()? else { return None };
        format!("{}/{NAME}{id:x}", std::str::from_utf8(directory).ok()?)
    })
}

/// How many places of that queue were ever taken by writers: its first word. `None` if that cannot
/// be seen, as of memory of System V.
pub(super) fn taken(maker: Maker, number: u64, directory: &[u8]) -> Option<u64> {
    /// The owner sleeps.
    const ARMED: u64 = 1 << 63;
    let path = (maker == Maker::Posix).then(|| path(number, directory))??;
    let mut head = [0; 8];
    fs::File::open(path).ok()?.read_exact_at(&mut head, 0).ok()?;
    Some(u64::from_ne_bytes(head) & !ARMED)
}

fn find_file(number: u64, directory: &[u8]) -> Option<Found> {
    let id = number & !FLAGS;
    let by_process = number & BY_PROCESS != 0;
    let path = path(number, directory)?;
    // The file itself has no name any more, but had one.
    let name = match by_process {
        true => fs::read_link(&path).ok()?.to_str()?.to_owned(),
        false => path.clone(),
    };
    let found = fs::metadata(path).ok()?;
    found.is_file().then_some(())?;
    let name = name[..name.rfind(NAME)? + NAME.len()].to_owned();
    Some(Found { length: found.len(), name, process: by_process.then_some(id >> BITS) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs::File, os::fd::AsRawFd};

    #[test]
    fn memory_that_is_there_has_a_length() {
        let (own, file) = (std::process::id().into(), a_file());
        file.set_len(12_345).unwrap();
        let of = |descriptor: i32| own << BITS | descriptor as u64;
        let number = of(file.as_raw_fd()) | BY_PROCESS | BY_NAME;
        let found = find(Maker::Posix, number, &[]).unwrap();
        assert_eq!((found.length, found.process), (12_345, Some(own)));
        assert!(found.name.ends_with("/ucx_shm_posix_"), "{found:?}");
        assert_eq!(taken(Maker::Posix, number, &[]), Some(0));
        file.write_all_at(&[3, 0, 0, 0, 0, 0, 0, 0x80], 0).unwrap();
        assert_eq!(taken(Maker::Posix, number, &[]), Some(3));
        let longer = Found { length: 12_346, ..found.clone() };
        assert!(found.is_like(&found, [number; 2]) && !longer.is_like(&found, [number; 2]));
        assert!(longer.is_like(&found, [number, number | HUGE]));
        // Looked for by a name that is not used; a directory; and what no descriptor is of.
        let here = File::open("/").unwrap();
        for other in
            [number & !BY_PROCESS, of(here.as_raw_fd()) | BY_PROCESS, of(1 << 29) | BY_PROCESS]
        {
            assert_eq!(find(Maker::Posix, other, &[]), None, "{other:x}");
        }
        assert_eq!(find(Maker::Sysv, 1 << 40, &[]), None);
    }

    /// A file without a name, which had one as UCX gives it.
    fn a_file() -> File {
        let path = std::env::temp_dir().join(format!("ucx_shm_posix_{:x}", std::process::id()));
        let file = File::create(&path).unwrap();
        fs::remove_file(&path).unwrap();
        file
    }
}
