//! A handle is of one interface: every other one refuses it, whatever it has in that target itself.

use crate::common::{Job, Over, door, source, to};
use petasos_portals::*;
use std::time::Duration;

const AT_ONCE: Duration = Duration::ZERO;

/// The same things in the same places of two interfaces.
struct Things {
    queue: Handle<EventQueue>,
    counter: Handle<Counter>,
    descriptor: Handle<Descriptor>,
    entry: Handle<MatchEntry>,
    portal: u16,
}

fn things(interface: &Interface) -> Things {
    let door = door(interface);
    let descriptor = source(interface, &[1; 8]).descriptor;
    let entry = interface.append(door.portal, List::Priority, MatchEntry::new(vec![0; 8])).unwrap();
    let counter = interface.counter().unwrap();
    Things { queue: door.queue, counter, descriptor, entry, portal: door.portal }
}

fn refused<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert!(matches!(result, Err(Error::Handle(_))), "{result:?}");
}

#[test]
fn an_interface_refuses_the_handles_of_another() {
    let job = Job::new(Over::Local, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let (own, other) = (things(a), things(b));
    // Whose it is is part of a handle.
    assert!(own.queue != other.queue && own.counter != other.counter);
    assert!(own.descriptor != other.descriptor && own.entry != other.entry);

    refused(a.take_event(other.queue));
    refused(a.wait_event(other.queue, AT_ONCE));
    refused(a.poll_events(&[own.queue, other.queue], AT_ONCE).and(a.take_event(other.queue)));
    while a.take_event(own.queue).is_ok() {}
    refused(a.poll_events(&[own.queue, other.queue], AT_ONCE));
    refused(a.free_queue(other.queue));

    refused(a.count(other.counter));
    refused(a.wait_count(other.counter, 0, AT_ONCE));
    refused(a.poll_counts(&[(other.counter, 0)], AT_ONCE));
    refused(a.add(other.counter, Count::of(1)));
    refused(a.set(other.counter, Count::of(1)));
    refused(a.cancel_triggered(other.counter));
    refused(a.free_counter(other.counter));

    let foreign = Operation::put(Part::of(other.descriptor, 8), to(0, own.portal, 0));
    refused(a.start(foreign));
    refused(a.start(Operation::get(Part::of(other.descriptor, 8), to(0, own.portal, 0))));
    refused(a.start_all([foreign]).map_err(|(_, error)| error));
    refused(a.release(other.descriptor));
    refused(a.unlink(other.entry));

    let ours = Operation::put(Part::of(own.descriptor, 8), to(0, own.portal, 0));
    refused(a.trigger(other.counter, 9, Action::Start(ours)));
    refused(a.trigger(own.counter, 9, Action::Start(foreign)));
    refused(a.trigger(own.counter, 9, Action::Add(other.counter, Count::of(1))));
    refused(a.trigger(own.counter, 9, Action::Set(other.counter, Count::of(1))));
    refused(a.trigger(own.counter, 9, Action::Cancel(other.counter)));

    let (queue, counter) = (Some(other.queue), Some(other.counter));
    refused(a.portal(PortalOptions { queue, ..PortalOptions::default() }));
    refused(a.bind(Descriptor { queue, ..Descriptor::new(vec![0; 8]) }));
    refused(a.bind(Descriptor { counter, ..Descriptor::new(vec![0; 8]) }));
    for (queue, counter) in [(queue, None), (None, counter)] {
        let entry = || MatchEntry { queue, counter, ..MatchEntry::new(vec![0; 8]) };
        refused(a.append(own.portal, List::Priority, entry()));
        refused(a.search(own.portal, entry()));
        refused(a.search_and_delete(own.portal, entry()));
    }

    // Nothing of either has gone.
    assert_eq!(
        (a.count(own.counter), b.count(other.counter)),
        (Ok(Count::of(0)), Ok(Count::of(0)))
    );
    assert!(a.unlink(own.entry).is_ok() && b.unlink(other.entry).is_ok());
    assert!(a.release(own.descriptor).is_ok() && b.release(other.descriptor).is_ok());
    assert!(a.free_queue(own.queue).is_ok() && b.free_queue(other.queue).is_ok());
}

#[test]
fn so_it_is_in_portals_3() {
    use v3::{Interface, MemoryDescriptor, Position};
    let job = Job::new(Over::Local, 2);
    let [a, b] = [0, 1].map(|rank| Interface::of(job.ranks[rank].clone()).unwrap());
    let things = [&a, &b].map(|at| {
        let queue = at.queue(10).unwrap();
        let entry = at.attach_entry(4, ProcessId::ANY, 1, 0, false, Position::Last).unwrap();
        let memory = || MemoryDescriptor::new(vec![0; 8]);
        (
            queue,
            entry,
            at.attach(entry, memory(), false).unwrap(),
            at.bind(memory(), false).unwrap(),
        )
    });
    let [(_, own_entry, own_attached, own_bound), (queue, entry, attached, bound)] = things;
    assert!(own_attached != attached && own_bound != bound);
    let memory = || MemoryDescriptor::new(vec![0; 8]);
    refused(a.wait_event(queue, AT_ONCE));
    for beside in [Position::Before(entry), Position::After(entry)] {
        refused(a.attach_entry(4, ProcessId::ANY, 1, 0, false, beside));
    }
    refused(a.attach(entry, memory(), false));
    refused(a.attach(own_entry, MemoryDescriptor { queue: Some(queue), ..memory() }, false));
    refused(a.bind(MemoryDescriptor { queue: Some(queue), ..memory() }, false));
    for theirs in [attached, bound] {
        refused(a.inspect(theirs));
        refused(a.update(theirs, memory(), false, None));
        refused(a.put(theirs, None, false, to(1, 4, 1), 0, 0));
        refused(a.get(theirs, None, to(1, 4, 1), 0));
        refused(a.get_put(own_bound, theirs, to(1, 4, 1), 0, 0));
        refused(a.get_put(theirs, own_bound, to(1, 4, 1), 0, 0));
        refused(a.unlink(theirs));
    }
    for own in [own_attached, own_bound] {
        refused(a.update(own, memory(), false, Some(queue)));
        let stale = MemoryDescriptor { queue: Some(queue), ..memory() };
        refused(a.update(own, stale, false, None));
    }
    refused(a.unlink_entry(entry));
    // Nothing of either has gone.
    for (at, attached, bound, entry) in
        [(&a, own_attached, own_bound, own_entry), (&b, attached, bound, entry)]
    {
        assert!(at.unlink(attached).is_ok() && at.unlink(bound).is_ok());
        assert!(at.unlink_entry(entry).is_ok());
    }
}
