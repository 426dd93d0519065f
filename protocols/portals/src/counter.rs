//! Counting events, and the actions that wait for them.

use crate::operation::Action;
use std::{collections::BTreeMap, ops::AddAssign};

/// What a counter has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Operations that succeeded, or their bytes.
    pub success: u64,
    /// Operations that failed.
    pub failure: u64,
}

impl Count {
    /// So many successes, and no failure.
    #[must_use]
    pub const fn of(success: u64) -> Count {
        Count { success, failure: 0 }
    }

    fn total(self) -> u64 {
        self.success.saturating_add(self.failure)
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Count) {
        self.success = self.success.wrapping_add(other.success);
        self.failure = self.failure.wrapping_add(other.failure);
    }
}

/// A counter of events (a counting event), and actions that wait until it reaches a number. Both
/// counts wrap.
///
/// ```
/// # use petasos_portals::{ProcessMap, Config};
/// # use petasos_fabric::Endpoint;
/// # use std::sync::Arc;
/// use petasos_portals::{Action, Count, Interface};
/// use std::time::Duration;
///
/// # let endpoint = petasos_self::Local::open(&"self://*".parse()?)?;
/// # let map = Arc::new(ProcessMap::ranks([endpoint.address().clone()]));
/// # let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
/// let (arrivals, next) = (interface.counter()?, interface.counter()?);
/// // As soon as three have come, the other counter is increased, without the program's part.
/// interface.trigger(arrivals, 3, Action::Add(next, Count::of(1)))?;
/// for _ in 0..3 {
///     interface.add(arrivals, Count::of(1))?;
/// }
/// let count = interface.wait_count(next, 1, Duration::from_secs(1))?;
/// assert_eq!(count, Count::of(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct Counter {
    pub(crate) value: Count,
    /// By threshold, and then in the order in which they were given.
    waiting: BTreeMap<(u64, u64), Action>,
    serial: u64,
}

impl Counter {
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
    use crate::Handle;

    fn add(n: u64) -> Action {
        Action::Add(Handle::none(), Count::of(n))
    }

    fn due(counter: &mut Counter) -> Vec<u64> {
        let actions = std::iter::from_fn(|| counter.due());
        let number = |action| if let Action::Add(_, n) = action { n.success } else { 0 };
        actions.map(number).collect()
    }

    #[test]
    fn in_the_order_of_thresholds_and_then_of_coming() {
        let mut counter = Counter::default();
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
