//! What a killed process leaves behind on shared memory.
//!
//! The shm provider keeps an endpoint's memory under a name, `/dev/shm/NAME`, which its own process removes; one that
//! is killed does not. The names of this crate's endpoints say which process they belong to, and a peer that sees it
//! gone removes what is left. (If nobody is left who could see it, it stays.)

use petasos_fabric::Incarnation;
use std::{fs, io::ErrorKind};

const PREFIX: &str = "fi_shm://";
const MARK: &str = "petasos-";

/// A name for an endpoint of this process that nobody else has or had.
pub(crate) fn name() -> String {
    format!("{PREFIX}{MARK}{}-{:016x}", std::process::id(), Incarnation::random().get())
}

/// The file and the process of such a name; `None` if it is none.
fn parts(name: &[u8]) -> Option<(&str, u32)> {
    let name = std::str::from_utf8(name).ok()?.trim_end_matches('\0');
    let file = name.strip_prefix(PREFIX)?;
    let (process, random) = file.strip_prefix(MARK)?.split_once('-')?;
    let plain = random.len() == 16 && random.bytes().all(|b| b.is_ascii_hexdigit());
    plain.then_some((file, process.parse().ok()?))
}

/// Removes what is left of a lost peer's endpoint, if its process is gone. In another name space of processes it might
/// not be seen, so only the peers of this one are asked for.
pub(crate) fn remove(name: &[u8]) {
    let Some((file, process)) = parts(name) else { return };
    let gone = |error: std::io::Error| error.kind() == ErrorKind::NotFound;
    if process != std::process::id()
        && fs::read_link(format!("/proc/{process}/exe")).is_err_and(gone)
    {
        let _ = fs::remove_file(format!("/dev/shm/{file}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_other_things_are_left_alone() {
        let own = name();
        assert_eq!(parts(own.as_bytes()), Some((&own[PREFIX.len()..], std::process::id())));
        assert!(parts(format!("{own}\0").as_bytes()).is_some());
        for other in [
            "fi_shm://petasos-1-../../../etc/x",
            "fi_shm://other-1-0123456789abcdef",
            "fi_shm://",
            "x",
        ] {
            assert_eq!(parts(other.as_bytes()), None, "{other}");
        }
    }
}
