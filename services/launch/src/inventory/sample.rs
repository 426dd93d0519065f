//! A sample of a node, from what the kernel shows in files, and of its network name space.

use super::{Accelerator, Interface, Inventory, NumaNode, Port, numbers};
use nix::{net::if_::InterfaceFlags, sys::socket::LinkAddr};
use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Read,
    path::PathBuf,
};

/// The most bytes that are read of a file: a word or a line is wanted.
const MOST: u64 = 64 << 10;
/// Devices of a kind that are taken, and addresses of one.
const MAX_DEVICES: usize = 4096;
/// Drivers of display devices that also compute. Other displays only show a picture.
const COMPUTES: [&str; 5] = ["nvidia", "nouveau", "amdgpu", "i915", "xe"];

/// The directories in which the kernel shows the machine.
#[derive(Clone, Debug)]
pub(super) struct System {
    /// Normally `/sys`.
    pub(super) sys: PathBuf,
    /// Normally `/proc`.
    pub(super) proc: PathBuf,
}

impl Default for System {
    fn default() -> System {
        System { sys: "/sys".into(), proc: "/proc".into() }
    }
}

fn read(path: PathBuf) -> Option<String> {
    let mut text = String::new();
    File::open(path).ok()?.take(MOST).read_to_string(&mut text).ok()?;
    Some(text)
}

impl System {
    pub(super) fn sample(&self) -> Inventory {
        Inventory {
            cpus: self.cpus(),
            memory: self.memory(),
            numa: self.numa_nodes(),
            interfaces: self.interfaces(),
            ports: self.ports(),
            accelerators: self.accelerators(),
            networks: Vec::new(),
        }
    }

    pub(super) fn read(&self, path: &str) -> Option<String> {
        read(self.sys.join(path))
    }

    pub(super) fn number(&self, path: &str) -> Option<u32> {
        self.read(path)?.trim().parse().ok()
    }

    /// A hexadecimal number, with or without its prefix.
    fn hex(&self, path: &str) -> Option<u32> {
        let text = self.read(path)?;
        u32::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()
    }

    /// The names in a directory, in order.
    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.sys.join(path)).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.take(MAX_DEVICES).collect();
        names.sort_unstable();
        names
    }

    pub(super) fn memory(&self) -> u64 {
        let text = read(self.proc.join("meminfo")).unwrap_or_default();
        total(&text).unwrap_or_default()
    }

    pub(super) fn numa_numbers(&self) -> Vec<u32> {
        self.read("devices/system/node/online").map_or_else(Vec::new, |text| numbers::parse(&text))
    }

    fn numa_nodes(&self) -> Vec<NumaNode> {
        let node = |number: u32| {
            let text = self.read(&format!("devices/system/node/node{number}/meminfo"));
            NumaNode { number, memory: text.and_then(|text| total(&text)).unwrap_or_default() }
        };
        self.numa_numbers().into_iter().map(node).collect()
    }

    /// The nearest NUMA node of a device.
    fn numa_of(&self, device: &str) -> Option<u32> {
        // -1 stands for none.
        self.number(&format!("{device}/numa_node"))
    }

    /// The interfaces of this process's own network namespace.
    fn interfaces(&self) -> Vec<Interface> {
        let mut found: BTreeMap<String, Interface> = BTreeMap::new();
        for one in nix::ifaddrs::getifaddrs().into_iter().flatten() {
            if found.len() >= MAX_DEVICES && !found.contains_key(&one.interface_name) {
                continue;
            }
            let interface = found.entry(one.interface_name).or_insert_with_key(|name| {
                let running = InterfaceFlags::IFF_UP | InterfaceFlags::IFF_RUNNING;
                let up = one.flags.contains(running);
                Interface { name: name.clone(), up, ..Interface::default() }
            });
            let Some(address) = one.address else { continue };
            let ip = if let Some(v4) = address.as_sockaddr_in() {
                v4.ip().to_string()
            } else if let Some(v6) = address.as_sockaddr_in6() {
                if v6.ip().is_unicast_link_local() {
                    continue;
                }
                v6.ip().to_string()
            } else {
                if let Some(link) = address.as_link_addr() {
                    self.describe(interface, link);
                }
                continue;
            };
            if interface.addresses.len() < MAX_DEVICES {
                interface.addresses.push(ip);
            }
        }
        let mut all: Vec<Interface> = found.into_values().collect();
        all.iter_mut().for_each(|interface| interface.addresses.sort_unstable());
        all
    }

    /// What the files say of an interface, if they are about it: they may show another namespace.
    fn describe(&self, interface: &mut Interface, link: &LinkAddr) {
        let at = format!("class/net/{}", interface.name);
        let index = self.number(&format!("{at}/ifindex"));
        let bytes = link.addr().unwrap_or_default().map(|byte| format!("{byte:02x}"));
        let address = self.read(&format!("{at}/address")).unwrap_or_default();
        if index != Some(link.ifindex() as u32) || address.trim() != bytes.join(":") {
            return;
        }
        // Without a carrier it reports nothing, or -1.
        interface.speed = self.number(&format!("{at}/speed"));
        interface.numa = self.numa_of(&format!("{at}/device"));
    }

    fn ports(&self) -> Vec<Port> {
        let mut all = Vec::new();
        for device in self.names("class/infiniband") {
            let numa = self.numa_of(&format!("class/infiniband/{device}/device"));
            for number in self.names(&format!("class/infiniband/{device}/ports")) {
                let at = format!("class/infiniband/{device}/ports/{number}");
                // As `4: ACTIVE`, and `100 Gb/sec (4X EDR)`.
                let state = self.read(&format!("{at}/state")).unwrap_or_default();
                let rate = self.read(&format!("{at}/rate")).unwrap_or_default();
                let gigabits: Option<f64> = rate.split(' ').next().and_then(|n| n.parse().ok());
                all.push(Port {
                    name: format!("{device}:{number}"),
                    up: state.contains("ACTIVE"),
                    speed: gigabits.map(|rate| (rate * 1000.0) as u32),
                    numa,
                });
            }
        }
        all
    }

    /// Devices on the PCI bus that compute: 3D controllers, processing accelerators, and displays
    /// whose driver is that of a device that computes as well.
    fn accelerators(&self) -> Vec<Accelerator> {
        let mut all = Vec::new();
        for address in self.names("bus/pci/devices") {
            let at = format!("bus/pci/devices/{address}");
            let Some(class) = self.hex(&format!("{at}/class")) else { continue };
            let driver = fs::read_link(self.sys.join(&at).join("driver")).ok();
            let driver = driver.and_then(|link| Some(link.file_name()?.to_str()?.to_owned()));
            let known = driver.as_ref().is_some_and(|name| COMPUTES.contains(&name.as_str()));
            let computes = match class >> 8 {
                0x0302 => true,
                class if class >> 8 == 0x12 => true,
                class => class >> 8 == 0x03 && known,
            };
            if computes {
                let number = |name| self.hex(&format!("{at}/{name}")).unwrap_or_default() as u16;
                let id = (number("vendor"), number("device"));
                let numa = self.numa_of(&at);
                all.push(Accelerator { address, id, driver, numa });
            }
        }
        all
    }
}

/// The bytes in a line like `MemTotal:  1024 kB`.
fn total(text: &str) -> Option<u64> {
    let (_, rest) = text.split_once("MemTotal:")?;
    let kilobytes: u64 = rest.split_whitespace().next()?.parse().ok()?;
    kilobytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::Cpu;
    use std::{os::unix::fs::symlink, path::Path};

    /// A machine with these files, and a link from each driver to its device.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, System) {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match text.strip_prefix("-> ") {
                Some(target) => symlink(target, path).unwrap(),
                None => fs::write(path, text).unwrap(),
            }
        }
        let at = |name: &str| root.path().join(Path::new(name));
        let system = System { sys: at("sys"), proc: at("proc") };
        (root, system)
    }

    #[test]
    fn two_sockets_with_threads_one_of_them_offline() {
        const CPU: &str = "sys/devices/system/cpu";
        let core = |cpu: u32, threads: &str, package: u32| {
            let at = format!("{CPU}/cpu{cpu}/topology");
            [
                (format!("{at}/core_cpus_list"), threads.to_owned()),
                (format!("{at}/physical_package_id"), format!("{package}\n")),
            ]
        };
        let mut files = vec![
            (format!("{CPU}/online"), "0-1,3\n".to_owned()),
            ("sys/devices/system/node/online".into(), "0-1\n".into()),
            ("sys/devices/system/node/node0/cpulist".into(), "0\n".into()),
            ("sys/devices/system/node/node1/cpulist".into(), "1,3\n".into()),
            ("sys/devices/system/node/node0/meminfo".into(), "Node 0 MemTotal: 100 kB\n".into()),
            ("sys/devices/system/node/node1/meminfo".into(), "Node 1 MemTotal: 28 kB\n".into()),
            ("proc/meminfo".into(), "MemTotal:  128 kB\nMemFree: 1 kB\n".into()),
        ];
        files.extend(core(0, "0,2\n", 0));
        files.extend(core(1, "1,3\n", 1));
        files.extend(core(3, "1,3\n", 1));
        let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (&p[..], &t[..])).collect();
        let (_root, system) = machine(&files);
        let found = system.sample();
        let cpu = |number, core, package, numa| Cpu { number, core, package, numa };
        assert_eq!(found.cpus, [cpu(0, 0, 0, 0), cpu(1, 1, 1, 1), cpu(3, 1, 1, 1)]);
        assert_eq!(found.memory, 128 << 10);
        let nodes = [(0, 100 << 10), (1, 28 << 10)];
        assert_eq!(found.numa, nodes.map(|(number, memory)| NumaNode { number, memory }));
    }

    #[test]
    fn cards_that_compute_and_ports() {
        let (_root, system) = machine(&[
            ("sys/bus/pci/devices/0000:3b:00.0/class", "0x030200\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/vendor", "0x10de\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/device", "0x2330\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/numa_node", "1\n"),
            ("sys/bus/pci/devices/0000:3b:00.0/driver", "-> ../../drivers/nvidia"),
            // A display only, a desktop GPU that computes, and something else.
            ("sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n"),
            ("sys/bus/pci/devices/0000:01:00.0/driver", "-> ../../drivers/ast"),
            ("sys/bus/pci/devices/0000:02:00.0/class", "0x030000\n"),
            ("sys/bus/pci/devices/0000:02:00.0/driver", "-> ../../drivers/amdgpu"),
            ("sys/bus/pci/devices/0000:02:00.0/numa_node", "-1\n"),
            ("sys/bus/pci/devices/0000:03:00.0/class", "0x020000\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n"),
            ("sys/class/infiniband/mlx5_0/ports/2/state", "1: DOWN\n"),
            ("sys/class/infiniband/mlx5_0/ports/2/rate", "2.5 Gb/sec (1X SDR)\n"),
        ]);
        let found = system.sample();
        let said: Vec<_> = found
            .accelerators
            .iter()
            .map(|card| (&card.address[..], card.id, card.driver.as_deref(), card.numa))
            .collect();
        let h100 = ("0000:3b:00.0", (0x10de, 0x2330), Some("nvidia"), Some(1));
        assert_eq!(said, [("0000:02:00.0", (0, 0), Some("amdgpu"), None), h100]);
        let said: Vec<_> =
            found.ports.iter().map(|port| (&port.name[..], port.up, port.speed)).collect();
        assert_eq!(said, [("mlx5_0:1", true, Some(100_000)), ("mlx5_0:2", false, Some(2_500))]);
    }

    #[test]
    fn where_the_kernel_shows_nothing_nothing_fails() {
        let (_root, system) = machine(&[]);
        let found = system.sample();
        assert!(found.numa.is_empty() && found.accelerators.is_empty() && found.memory == 0);
        // The processors that this process may use are read in another way.
        assert!(!found.cpus.is_empty());
    }

    #[test]
    fn this_machine_has_something() {
        let found = Inventory::sample();
        assert!(!found.cpus.is_empty() && found.memory > 0, "{found:?}");
        let loopback = found.interfaces.iter().find(|one| one.name == "lo");
        assert!(loopback.is_some_and(|lo| lo.numa.is_none()), "{found:?}");
    }
}
