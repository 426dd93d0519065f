//! Triggered operations: actions that wait until a counter reaches a number.

use crate::{Count, Counter, Handle, Operation};
use std::collections::BTreeMap;

/// What can wait for a counter ([`Interface::trigger`](crate::Interface::trigger)): a triggered
/// operation (section *Triggered operations*).
///
/// ```
/// # use petasos_portals::{Config, Interface, ProcessMap};
/// # use petasos_fabric::{Endpoint, Region};
/// # use std::sync::Arc;
/// use petasos_portals::{
///     Action, Counts, Descriptor, List, MatchEntry, Operation, Part, PortalOptions, ProcessId,
///     Target,
/// };
/// use std::time::Duration;
///
/// # let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// # let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
/// # let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
/// let portal = interface.portal(PortalOptions::default())?;
/// // Messages with bits 1 are counted.
/// let arrivals = interface.counter()?;
/// let counted = MatchEntry {
///     bits: 1,
///     counter: Some(arrivals),
///     counts: Counts::COMMUNICATION,
///     ..MatchEntry::new(vec![0; 8])
/// };
/// interface.append(portal, List::Priority, counted)?;
/// // When two have come, an answer is sent without an action of the program.
/// let answers = interface.counter()?;
/// let answer = Region::zeroed(5);
/// let entry = MatchEntry { bits: 2, counter: Some(answers), counts: Counts::COMMUNICATION,
///     ..MatchEntry::new(answer.clone()) };
/// interface.append(portal, List::Priority, entry)?;
/// let data = Part::of(interface.bind(Descriptor::new(b"ready".to_vec()))?, 5);
/// let to = Target::new(ProcessId::rank(0), portal);
/// let put = |bits| Operation::put(data, Target { bits, ..to });
/// interface.trigger(arrivals, 2, Action::Start(put(2)))?;
///
/// interface.start(put(1))?;
/// interface.start(put(1))?;
/// interface.wait_count(answers, 1, Duration::from_secs(1))?;
/// assert_eq!(answer.to_vec(), b"ready");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Action {
    /// An operation is started.
    Start(Operation),
    /// A counter is increased.
    Add(Handle<Counter>, Count),
    /// A counter is set.
    Set(Handle<Counter>, Count),
    /// The actions that wait for a counter are dropped.
    Cancel(Handle<Counter>),
}

/// The value of a [`Counter`], and the actions that wait for it.
#[derive(Debug, Default)]
pub(crate) struct CounterState {
    pub(crate) value: Count,
    /// By threshold, and then in the order in which they were given.
    waiting: BTreeMap<(u64, u64), Action>,
    serial: u64,
}

impl CounterState {
    /// Lets an action wait for the sum of both counts to reach `threshold`. If it has, the action
    /// is due.
    pub(crate) fn wait(&mut self, threshold: u64, action: Action) {
        self.serial += 1;
        self.waiting.insert((threshold, self.serial), action);
    }

    /// The next action whose threshold is reached.
    pub(crate) fn due(&mut self) -> Option<Action> {
        let first = self.waiting.first_entry()?;
        (first.key().0 <= self.value.total()).then(|| first.remove())
    }

    /// Drops the actions that wait, and says how many there were.
    pub(crate) fn cancel(&mut self) -> usize {
        std::mem::take(&mut self.waiting).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(n: u64) -> Action {
        Action::Add(Handle::none(), Count::of(n))
    }

    fn due(counter: &mut CounterState) -> Vec<u64> {
        let actions = std::iter::from_fn(|| counter.due());
        let number = |action| if let Action::Add(_, n) = action { n.success } else { 0 };
        actions.map(number).collect()
    }

    #[test]
    fn in_the_order_of_thresholds_and_then_of_coming() {
        let mut counter = CounterState::default();
        for (threshold, n) in [(3, 1), (1, 2), (3, 3), (2, 4)] {
            counter.wait(threshold, add(n));
        }
        counter.value += Count::of(1);
        assert_eq!(due(&mut counter), [2]);
        counter.value += Count { success: 1, failure: 1 };
        assert_eq!(due(&mut counter), [4, 1, 3]);
        counter.wait(3, add(5));
        assert_eq!(due(&mut counter), [5], "it is there already");
        // A counter that goes back lets what waits wait.
        counter.value = Count::of(0);
        counter.wait(1, add(6));
        assert_eq!(due(&mut counter), []);
        assert_eq!((counter.cancel(), counter.cancel()), (1, 0));
    }
}
