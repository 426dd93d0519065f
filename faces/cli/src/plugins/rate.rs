//! How fast this host may send, as far as its interfaces say: for estimates.

use std::{fs, path::Path};

/// What is assumed where no interface says: a gigabit a second.
const ASSUMED: u64 = 1_000_000_000;

/// Bits a second of the fastest interface that is up, and its name; nothing where none says. Those
/// of virtual machines mostly do not.
fn fastest(interfaces: &Path) -> Option<(u64, String)> {
    let rate = |entry: fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let name = entry.file_name().to_string_lossy().into_owned();
        // Megabits; -1 where it is not known.
        let megabits: u64 = read("speed")?.trim().parse().ok()?;
        let up = read("operstate")?.trim() == "up";
        (up && megabits > 0 && name != "lo").then_some((megabits * 1_000_000, name))
    };
    fs::read_dir(interfaces).ok()?.flatten().filter_map(rate).max()
}

/// Bits a second to other hosts, and where that is from.
pub(super) fn of_network() -> (u64, String) {
    match fastest(Path::new("/sys/class/net")) {
        Some((rate, name)) => (rate, format!("{} Gbit/s of {name}", rate as f64 / 1e9)),
        None => (ASSUMED, "an assumed 1 Gbit/s, as no interface says its speed".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_interface_that_is_up_counts() {
        let place = tempfile::tempdir().unwrap();
        assert_eq!(fastest(place.path()), None);
        let interfaces = [
            ("lo", "100000", "up"),
            ("eth0", "-1", "up"),
            ("eth1", "1000", "up"),
            ("eth2", "10000", "up"),
            ("eth3", "40000", "down"),
        ];
        for (name, speed, state) in interfaces {
            let directory = place.path().join(name);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("speed"), format!("{speed}\n")).unwrap();
            fs::write(directory.join("operstate"), format!("{state}\n")).unwrap();
        }
        assert_eq!(fastest(place.path()), Some((10_000_000_000, "eth2".to_owned())));
    }
}
