//! What a node has: processors, memory, network interfaces, accelerators. Each node's daemon
//! samples its own and reports it to the head node, which answers queries for all. Later changes
//! are events.
//!
//! The sample is read from what the kernel shows of the machine (sysfs) and of the network
//! namespace of the daemon. There is no polling: the kernel reports changes.

mod changes;
mod cpus;
mod numbers;
mod sample;
mod topology;
mod watch;

pub use cpus::binding;
pub(crate) use topology::{Topology, memory, topologies};
pub(crate) use watch::Watcher;

use petasos_macros::Wire;
use petasos_pmix::{Info, Node, Value};
use std::time::Duration;

/// What a node has.
///
/// ```
/// use petasos_launch::inventory::Inventory;
///
/// let found = Inventory::sample();
/// println!("{} processors, {} bytes of memory", found.cpus.len(), found.memory);
/// for interface in found.interfaces.iter().filter(|interface| interface.up) {
///     println!("{} at {:?}", interface.name, interface.addresses);
/// }
/// ```
#[derive(Wire, Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    /// The logical processors that are online, in order.
    pub cpus: Vec<Cpu>,
    /// Bytes of memory in all.
    pub memory: u64,
    /// Memory by NUMA node, in order.
    pub numa: Vec<NumaNode>,
    /// Network interfaces, by name.
    pub interfaces: Vec<Interface>,
    /// Ports of RDMA devices, by name.
    pub ports: Vec<Port>,
    /// Accelerators, by address.
    pub accelerators: Vec<Accelerator>,
    /// The interfaces and ports that the networks of the job use. A sample does not have them.
    pub networks: Vec<NetworkUse>,
}

/// The interfaces and ports of a node that a network of the job uses.
#[derive(Wire, Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkUse {
    /// The network, by the name of its plug-in.
    pub network: String,
    /// Names of interfaces and ports.
    pub interfaces: Vec<String>,
}

/// How long a message between the daemons of two nodes takes, there and back.
#[derive(Wire, Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip {
    /// The other node.
    pub to: Node,
    /// The shortest of several times.
    pub fastest: Duration,
    /// The median.
    pub median: Duration,
}

impl RoundTrip {
    /// As part of the answer to a query: nodes by number, times in nanoseconds.
    pub(crate) fn to_value(self, from: Node) -> Value {
        let nanoseconds = |time: Duration| Value::from(time.as_nanos() as u64);
        record([
            ("from", from.0.into()),
            ("to", self.to.0.into()),
            ("fastest", nanoseconds(self.fastest)),
            ("median", nanoseconds(self.median)),
        ])
    }
}

/// A logical processor: a hardware thread.
#[derive(Wire, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cpu {
    /// Its number in the system.
    pub number: u32,
    /// Its core: the number of the core's first thread that is online.
    pub core: u32,
    /// Its socket.
    pub package: u32,
    /// Its NUMA node.
    pub numa: u32,
}

/// A NUMA node.
#[derive(Wire, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// Its number in the system.
    pub number: u32,
    /// Bytes of its memory.
    pub memory: u64,
}

/// A network interface.
#[derive(Wire, Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Whether it is up, and has a carrier.
    pub up: bool,
    /// Megabits per second, if the driver reports it.
    pub speed: Option<u32>,
    /// Its IP addresses, link-local ones left out.
    pub addresses: Vec<String>,
    /// The nearest NUMA node.
    pub numa: Option<u32>,
}

/// A port of an RDMA device.
#[derive(Wire, Clone, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// The device and the number of the port: `mlx5_0:1`.
    pub name: String,
    /// Whether it is active.
    pub up: bool,
    /// Megabits per second, if the driver reports it.
    pub speed: Option<u32>,
    /// The nearest NUMA node.
    pub numa: Option<u32>,
}

/// A device that computes: a GPU or another accelerator.
#[derive(Wire, Clone, Debug, Default, PartialEq, Eq)]
pub struct Accelerator {
    /// Its address on the PCI bus: `0000:3b:00.0`.
    pub address: String,
    /// The numbers of its vendor and of the device.
    pub id: (u16, u16),
    /// Its driver, if it has one.
    pub driver: Option<String>,
    /// The nearest NUMA node.
    pub numa: Option<u32>,
}

impl Inventory {
    /// What this node has now. What the system does not report is left out.
    #[must_use]
    pub fn sample() -> Inventory {
        sample::System::default().sample()
    }

    /// As the answer to a query.
    #[must_use]
    pub fn to_value(&self) -> Value {
        Value::Record(self.to_info())
    }

    pub(crate) fn to_info(&self) -> Info {
        let count = |key: fn(&Cpu) -> u32| {
            self.cpus.iter().map(key).collect::<std::collections::BTreeSet<_>>().len() as u64
        };
        let numa = |node: &NumaNode| {
            let cpus = self.cpus.iter().filter(|cpu| cpu.numa == node.number);
            let cpus = numbers::text(cpus.map(|cpu| cpu.number));
            record([
                ("node", node.number.into()),
                ("cpus", cpus.into()),
                ("memory", node.memory.into()),
            ])
        };
        let interface = |interface: &Interface| {
            let addresses = interface.addresses.iter().map(|address| address.as_str().into());
            let mut all = link(&interface.name, interface.up, interface.speed, interface.numa);
            all.push(("addresses".to_owned(), Value::List(addresses.collect())));
            Value::Record(all)
        };
        let port = |port: &Port| Value::Record(link(&port.name, port.up, port.speed, port.numa));
        let accelerator = |device: &Accelerator| {
            let (vendor, number) = device.id;
            let mut all = vec![
                ("address".to_owned(), Value::from(device.address.as_str())),
                ("id".to_owned(), format!("{vendor:04x}:{number:04x}").into()),
            ];
            let driver = device.driver.as_ref();
            all.extend(driver.map(|driver| ("driver".to_owned(), driver.as_str().into())));
            all.extend(device.numa.map(|numa| ("numa".to_owned(), numa.into())));
            Value::Record(all)
        };
        let mut cores: std::collections::BTreeMap<u32, Vec<u32>> = Default::default();
        for cpu in &self.cpus {
            cores.entry(cpu.core).or_default().push(cpu.number);
        }
        let network = |one: &NetworkUse| {
            let names = one.interfaces.iter().map(|name| name.as_str().into()).collect();
            record([("name", one.network.as_str().into()), ("interfaces", Value::List(names))])
        };
        let cores = cores.into_values().map(|threads| numbers::text(threads).into());
        let cpus = record([
            ("count", (self.cpus.len() as u64).into()),
            ("online", numbers::text(self.cpus.iter().map(|cpu| cpu.number)).into()),
            ("packages", count(|cpu| cpu.package).into()),
            ("cores", Value::List(cores.collect())),
        ]);
        vec![
            ("cpus".to_owned(), cpus),
            ("memory".to_owned(), self.memory.into()),
            ("numa".to_owned(), Value::List(self.numa.iter().map(numa).collect())),
            ("interfaces".to_owned(), Value::List(self.interfaces.iter().map(interface).collect())),
            ("ports".to_owned(), Value::List(self.ports.iter().map(port).collect())),
            (
                "accelerators".to_owned(),
                Value::List(self.accelerators.iter().map(accelerator).collect()),
            ),
            ("networks".to_owned(), Value::List(self.networks.iter().map(network).collect())),
        ]
    }
}

fn record<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Record(fields.map(|(name, value)| (name.to_owned(), value)).into())
}

/// The common properties of interfaces and ports.
fn link(name: &str, up: bool, speed: Option<u32>, numa: Option<u32>) -> Info {
    let mut all: Info = vec![
        ("name".to_owned(), name.into()),
        ("state".to_owned(), if up { "up" } else { "down" }.into()),
    ];
    all.extend(speed.map(|speed| ("speed".to_owned(), speed.into())));
    all.extend(numa.map(|numa| ("numa".to_owned(), numa.into())));
    all
}
