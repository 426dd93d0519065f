//! The differences between two samples of a node, as events.

use super::{Inventory, numbers};
use petasos_pmix::{Info, Value, status};
use std::collections::{BTreeMap, BTreeSet};

impl Inventory {
    /// The differences of a later sample: one code and its information for each kind of thing.
    pub(crate) fn changes(&self, later: &Inventory) -> Vec<(i32, Info)> {
        let cpus = self.cpus_differ(later);
        let all = [
            (status::CPUS_CHANGED, cpus),
            (status::MEMORY_CHANGED, self.memory_differs(later)),
            (status::NETWORK_CHANGED, links(&self.links(), &later.links())),
            (status::ACCELERATORS_CHANGED, self.accelerators_differ(later)),
        ];
        all.into_iter().filter_map(|(code, said)| Some((code, said?))).collect()
    }

    fn cpus_differ(&self, later: &Inventory) -> Option<Info> {
        let set = |one: &Inventory| one.cpus.iter().map(|cpu| cpu.number).collect();
        let (before, after): (BTreeSet<u32>, BTreeSet<u32>) = (set(self), set(later));
        let gone = numbers::text(before.difference(&after).copied());
        let new = numbers::text(after.difference(&before).copied());
        let said = [("offline", gone), ("online", new)].into_iter();
        let said: Vec<(&str, String)> = said.filter(|(_, which)| !which.is_empty()).collect();
        let texts = said.iter().map(|(state, which)| format!("CPU {which} is {state}"));
        let why = texts.collect::<Vec<_>>().join("; ");
        let mut info: Info = said
            .into_iter()
            .map(|(state, which)| (format!("petasos.cpus.{state}"), which.into()))
            .collect();
        info.push(("petasos.why".to_owned(), why.into()));
        (info.len() > 1).then_some(info)
    }

    fn memory_differs(&self, later: &Inventory) -> Option<Info> {
        if self.memory == later.memory && self.numa == later.numa {
            return None;
        }
        let why = format!("there are {} bytes of memory, and were {}", later.memory, self.memory);
        Some(vec![
            ("petasos.memory".to_owned(), later.memory.into()),
            ("petasos.memory.before".to_owned(), self.memory.into()),
            ("petasos.why".to_owned(), why.into()),
        ])
    }

    fn links(&self) -> Links<'_> {
        let interfaces = self
            .interfaces
            .iter()
            .map(|one| (one.name.as_str(), (one.up, one.speed, one.addresses.as_slice())));
        let ports = self.ports.iter().map(|one| (one.name.as_str(), (one.up, one.speed, &[][..])));
        interfaces.chain(ports).collect()
    }

    fn accelerators_differ(&self, later: &Inventory) -> Option<Info> {
        let set = |one: &'_ Inventory| -> BTreeSet<String> {
            one.accelerators.iter().map(|card| card.address.clone()).collect()
        };
        let (before, after) = (set(self), set(later));
        let which = |a: &BTreeSet<String>, b| a.difference(b).cloned().collect();
        told("accelerators", [("gone", which(&before, &after)), ("new", which(&after, &before))])
    }
}

/// The properties of an interface or a port that may change, by its name.
type Links<'a> = BTreeMap<&'a str, (bool, Option<u32>, &'a [String])>;

fn links(before: &Links<'_>, after: &Links<'_>) -> Option<Info> {
    let mut said: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut say = |state, name: &str| said.entry(state).or_default().push(name.to_owned());
    for (name, now) in after {
        match before.get(name) {
            None => say("new", name),
            Some(was) if was.0 != now.0 => say(if now.0 { "up" } else { "down" }, name),
            Some(was) if was != now => say("changed", name),
            Some(_) => {}
        }
    }
    before.keys().filter(|name| !after.contains_key(*name)).for_each(|name| say("gone", name));
    told("interfaces", said)
}

/// The things in each state: one entry for each state, and a sentence with all.
fn told<'a>(what: &str, states: impl IntoIterator<Item = (&'a str, Vec<String>)>) -> Option<Info> {
    let (mut info, mut texts) = (Info::new(), Vec::new());
    for (state, names) in states.into_iter().filter(|(_, names)| !names.is_empty()) {
        let verb = if names.len() == 1 { "is" } else { "are" };
        texts.push(format!("{} {verb} {state}", names.join(", ")));
        let names = names.into_iter().map(Value::from).collect();
        info.push((format!("petasos.{what}.{state}"), Value::List(names)));
    }
    if info.is_empty() {
        return None;
    }
    info.push(("petasos.why".to_owned(), texts.join("; ").into()));
    Some(info)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::{Accelerator, Cpu, Interface, NumaNode, Port};

    fn node() -> Inventory {
        let cpu = |number| Cpu { number, ..Cpu::default() };
        let link = |name: &str, up| Interface { name: name.into(), up, ..Interface::default() };
        Inventory {
            cpus: (0..8).map(cpu).collect(),
            memory: 1 << 30,
            numa: vec![NumaNode { number: 0, memory: 1 << 30 }],
            interfaces: vec![link("eth0", true), link("eth1", false), link("eth2", true)],
            ports: vec![Port { name: "mlx5_0:1".into(), up: true, ..Port::default() }],
            accelerators: vec![Accelerator {
                address: "0000:01:00.0".into(),
                ..Default::default()
            }],
            networks: Vec::new(),
        }
    }

    fn why(change: impl FnOnce(&mut Inventory)) -> Vec<(i32, String)> {
        let mut later = node();
        change(&mut later);
        let why = |info: &Info| info.last().unwrap().1.to_string();
        node().changes(&later).iter().map(|(code, info)| (*code, why(info))).collect()
    }

    #[test]
    fn what_changes_is_told_and_nothing_else() {
        assert_eq!(why(|_| ()), []);
        // Another thread of the core represents it now: that is no change of the processors.
        assert_eq!(why(|node| node.cpus[3].core = 2), []);
        let cpus = why(|node| drop(node.cpus.drain(5..7)));
        assert_eq!(cpus, [(status::CPUS_CHANGED, "CPU 5-6 is offline".to_owned())]);
        let cpus = why(|node| node.cpus[0].number = 9);
        assert_eq!(cpus[0].1, "CPU 0 is offline; CPU 9 is online");
        let memory = why(|node| node.memory /= 2);
        assert!(memory.len() == 1 && memory[0].0 == status::MEMORY_CHANGED, "{memory:?}");
        let network = why(|node| {
            node.interfaces[0].up = false;
            node.interfaces[1].up = true;
            node.interfaces[2].name = "eth3".into();
            node.ports[0].speed = Some(25_000);
        });
        let said = "mlx5_0:1 is changed; eth0 is down; eth2 is gone; eth3 is new; eth1 is up";
        assert_eq!(network, [(status::NETWORK_CHANGED, said.to_owned())]);
        let addresses = why(|node| node.interfaces[0].addresses.push("10.0.0.1".into()));
        assert_eq!(addresses[0].1, "eth0 is changed");
        let cards = why(|node| node.accelerators.clear());
        assert_eq!(cards, [(status::ACCELERATORS_CHANGED, "0000:01:00.0 is gone".to_owned())]);
    }

    #[test]
    fn events_name_what_they_are_about() {
        let mut later = node();
        later.interfaces.iter_mut().for_each(|one| one.up = false);
        let (_, info) = node().changes(&later).remove(0);
        let down = Value::List(vec!["eth0".into(), "eth2".into()]);
        assert_eq!(info[0], ("petasos.interfaces.down".to_owned(), down));
        assert_eq!(info[1].1.to_string(), "eth0, eth2 are down");
    }
}
