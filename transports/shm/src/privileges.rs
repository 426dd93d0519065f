//! Whether a peer's process may write the memory of this one by itself, whatever it is given here.
//!
//! To keep such a peer from writing to a segment that it may only read protects nothing, and costs:
//! a segment that is sealed for readers can never again be written by peers through a mapping. So
//! the seal is for all others: see [`crate::segment`].

use crate::cross_memory;
use rustix::process::{DumpableBehavior, dumpable_behavior};
use std::{fs, path::PathBuf};

/// What the system checks when a process wants to reach into another.
#[derive(PartialEq, Eq, Debug)]
struct Privileges {
    users: String,
    groups: String,
    /// Capabilities that it may use.
    permitted: u64,
    /// Namespaces of users and of processes.
    spaces: [PathBuf; 2],
    /// The label of a security module, where there is one.
    label: Option<Vec<u8>>,
    /// Its system calls are filtered.
    filtered: bool,
}

impl Privileges {
    /// Those of a process; none if the system does not tell all of them.
    fn of(process: &str) -> Option<Privileges> {
        let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let space = |name| fs::read_link(format!("/proc/{process}/ns/{name}")).ok();
        Some(Privileges {
            users: field("Uid:")?.to_owned(),
            groups: field("Gid:")?.to_owned(),
            permitted: u64::from_str_radix(field("CapPrm:")?.trim(), 16).ok()?,
            spaces: [space("user")?, space("pid")?],
            label: fs::read(format!("/proc/{process}/attr/current")).ok(),
            filtered: field("Seccomp:")?.trim() != "0",
        })
    }

    /// Whether a process with these may reach into one with `other`: only if no rule forbids it.
    fn reaches(&self, other: &Privileges) -> bool {
        let same = self.users == other.users && self.groups == other.groups;
        let placed = self.spaces == other.spaces && self.label == other.label;
        same && placed && !self.filtered && other.permitted & !self.permitted == 0
    }
}

/// Whether the process `pid` may write to the memory of this one.
pub(crate) fn may_write_to_us(pid: i32) -> bool {
    let open = matches!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable));
    let privileges = || Some((Privileges::of(&pid.to_string())?, Privileges::of("self")?));
    open && cross_memory::allowed().is_ok()
        && privileges().is_some_and(|(its, ours)| its.reaches(&ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn privileges() -> Privileges {
        Privileges {
            users: "1 1 1 1".to_owned(),
            groups: "2 2 2 2".to_owned(),
            permitted: 0b110,
            spaces: [PathBuf::from("user:[1]"), PathBuf::from("pid:[2]")],
            label: None,
            filtered: false,
        }
    }

    #[test]
    fn a_process_with_fewer_privileges_is_kept_out() {
        let ours = privileges();
        assert!(privileges().reaches(&ours));
        assert!(Privileges { permitted: 0b111, ..privileges() }.reaches(&ours));
        let lesser = [
            Privileges { users: "3 3 3 3".to_owned(), ..privileges() },
            Privileges { groups: "2 2 2 3".to_owned(), ..privileges() },
            Privileges { permitted: 0b100, ..privileges() },
            Privileges {
                spaces: [PathBuf::from("user:[1]"), PathBuf::from("pid:[3]")],
                ..privileges()
            },
            Privileges { label: Some(b"confined".to_vec()), ..privileges() },
            Privileges { filtered: true, ..privileges() },
        ];
        for lesser in lesser {
            assert!(!lesser.reaches(&ours), "{lesser:?}");
        }
    }

    #[test]
    fn the_answer_is_that_of_the_system() {
        let own = std::process::id() as i32;
        let filtered = Privileges::of("self").is_none_or(|privileges| privileges.filtered);
        assert_eq!(may_write_to_us(own), cross_memory::allowed().is_ok() && !filtered);
        assert!(!may_write_to_us(i32::MAX), "there is no such process");
    }
}
