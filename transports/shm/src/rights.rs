//! What a peer's process may do to this one by itself, whatever it is given here.
//!
//! A process that may reach into this one can write all of its memory. To keep such a peer from writing to a segment
//! that it may only read protects nothing, and costs: a segment that is sealed for readers is never again one that
//! peers write through a mapping. So the seal is for all others: see [`crate::segment`].

use crate::{channel::Channel, cross, socket};
use rustix::process::{DumpableBehavior, dumpable_behavior};
use std::{fs, path::PathBuf};

/// What the system goes by when a process wants to reach into another.
#[derive(PartialEq, Eq, Debug)]
struct Standing {
    users: String,
    groups: String,
    /// Capabilities that it may use.
    permitted: u64,
    /// Name spaces of users and of processes.
    spaces: [PathBuf; 2],
    /// The label of a security module, where there is one.
    label: Option<Vec<u8>>,
    /// Its system calls are filtered.
    filtered: bool,
}

impl Standing {
    /// Of a process, as the system tells; none if it does not tell everything.
    fn of(process: &str) -> Option<Standing> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let space = |name| fs::read_link(format!("/proc/{process}/ns/{name}")).ok();
        Some(Standing {
            users: field("Uid:")?.to_owned(),
            groups: field("Gid:")?.to_owned(),
            permitted: u64::from_str_radix(field("CapPrm:")?.trim(), 16).ok()?,
            spaces: [space("user")?, space("pid")?],
            label: fs::read(format!("/proc/{process}/attr/current")).ok(),
            filtered: field("Seccomp:")?.trim() != "0",
        })
    }

    /// Whether such a process may reach into one that stands as `other` does: only where nothing speaks against it.
    fn reaches(&self, other: &Standing) -> bool {
        let same = self.users == other.users && self.groups == other.groups;
        let placed = self.spaces == other.spaces && self.label == other.label;
        same && placed && !self.filtered && other.permitted & !self.permitted == 0
    }
}

/// Whether the process `pid` may reach into this one.
pub(crate) fn reaches_us(pid: i32) -> bool {
    let open = matches!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable));
    let standings = || Some((Standing::of(&pid.to_string())?, Standing::of("self")?));
    open && cross::allowed().is_ok() && standings().is_some_and(|(its, ours)| its.reaches(&ours))
}

impl Channel {
    /// Whether the peer may write all of this process's memory, whatever it is given here.
    pub(crate) fn may_write_anyway(&mut self) -> bool {
        if let Some(known) = self.may_write {
            return known;
        }
        let may = self.cross_memory && reaches_us(self.pid);
        // Its number may have become another's since it connected.
        let process = self.process.as_ref();
        let ended = process.map(|process| socket::has_ended(&self.socket, process));
        *self.may_write.insert(may && matches!(ended, Some(Ok(false))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standing() -> Standing {
        Standing {
            users: "1 1 1 1".to_owned(),
            groups: "2 2 2 2".to_owned(),
            permitted: 0b110,
            spaces: [PathBuf::from("user:[1]"), PathBuf::from("pid:[2]")],
            label: None,
            filtered: false,
        }
    }

    #[test]
    fn one_that_lacks_anything_does_not_reach() {
        let ours = standing();
        assert!(standing().reaches(&ours));
        assert!(Standing { permitted: 0b111, ..standing() }.reaches(&ours));
        let lesser = [
            Standing { users: "3 3 3 3".to_owned(), ..standing() },
            Standing { groups: "2 2 2 3".to_owned(), ..standing() },
            Standing { permitted: 0b100, ..standing() },
            Standing {
                spaces: [PathBuf::from("user:[1]"), PathBuf::from("pid:[3]")],
                ..standing()
            },
            Standing { label: Some(b"confined".to_vec()), ..standing() },
            Standing { filtered: true, ..standing() },
        ];
        for lesser in lesser {
            assert!(!lesser.reaches(&ours), "{lesser:?}");
        }
    }

    /// The system's own word, where it can be had.
    #[test]
    fn it_is_so_if_the_system_says_so() {
        let own = std::process::id() as i32;
        let filtered = Standing::of("self").is_none_or(|standing| standing.filtered);
        assert_eq!(reaches_us(own), cross::allowed().is_ok() && !filtered);
        assert!(!reaches_us(i32::MAX), "there is no such process");
    }
}
