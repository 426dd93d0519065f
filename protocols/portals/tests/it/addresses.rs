//! Memory by its addresses: all memory of a process as an entry, and where events say that data is;
//! over each transport.

use crate::common::*;
use petasos_fabric::{Region, memory::AddressSpace};
use petasos_portals::*;

over_all! {
    all_memory_is_an_entry
    bad_addresses_are_failures
    events_say_at_which_address_data_is
}

const BOTH: Accepts = Accepts::PUT.with(Accepts::GET);

fn everything() -> MatchEntry {
    // SAFETY: the peers are of this test, which writes to regions that it has made for that.
    let space = unsafe { AddressSpace::of_process() }.unwrap();
    MatchEntry { bits: 1, accepts: BOTH, ..MatchEntry::new(&space) }
}

fn all_memory_is_an_entry(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Priority, everything());
    for len in [8, 20_000, LONG] {
        let (there, back) = (Region::zeroed(len + 8), Region::zeroed(len));
        let address = there.as_ptr().addr() as u64 + 8;
        let bytes = pattern(len);
        let source = source(a, &bytes);
        let target = Target { offset: address, ..to(1, door.portal, 1) };
        a.start(Operation { ack: Ack::Full, ..Operation::put(source.part, target) }).unwrap();
        let Event::Served(put) = job.event(1, door.queue) else { panic!("no put") };
        assert_eq!((put.result, put.address()), (Ok(()), Some(address)), "{len} bytes");
        assert_eq!(job.names(0, source.queue), ["send", "ack"]);
        assert_eq!((&there.to_vec()[8..], &there.to_vec()[..8]), (&bytes[..], &[0; 8][..]));
        let into = Descriptor { queue: Some(source.queue), ..Descriptor::new(back.clone()) };
        let into = Part::of(a.bind(into).unwrap(), len as u64);
        a.start(Operation::get(into, target)).unwrap();
        assert_eq!(job.names(0, source.queue), ["reply"]);
        assert_eq!(back.to_vec(), bytes);
        assert_eq!(job.names(1, door.queue), ["served"]);
    }
    // An atomic operation, there and back.
    let number = Region::from_vec(5u64.to_le_bytes().to_vec());
    let source = source(a, &7u64.to_le_bytes());
    let at = Target { offset: number.as_ptr().addr() as u64, ..to(1, door.portal, 1) };
    let (sum, kind) = (Operator::Sum, Datatype::U64);
    a.start(Operation::fetch_atomic(sum, kind, source.part, source.part, at)).unwrap();
    assert_eq!(job.names(0, source.queue), ["send", "reply"]);
    assert_eq!(number.to_vec(), 12u64.to_le_bytes());
    assert_eq!(a.release(source.descriptor).unwrap().memory.part(0, 8).unwrap().len(), 8);
}

fn bad_addresses_are_failures(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    append(b, &door, List::Priority, everything());
    for len in [8, 20_000, LONG] {
        let source = source(a, &vec![1; len]);
        let target = Target { offset: 4096, ..to(1, door.portal, 1) };
        let put = Operation { ack: Ack::Full, ..Operation::put(source.part, target) };
        let fetch = (Operator::Sum, Datatype::U8);
        let part = Part { len: 8, ..source.part };
        let atomic = Operation::fetch_atomic(fetch.0, fetch.1, part, part, target);
        for (operation, ended) in [(put, "ack"), (Operation::get(source.part, target), "reply")]
            .into_iter()
            .chain((len == 8).then_some((atomic, "reply")))
        {
            a.start(operation).unwrap();
            let Event::Served(served) = job.event(1, door.queue) else { panic!("not served") };
            assert_eq!(served.result, Err(Failure::Fault), "{len} bytes");
            let mut last = None;
            while last.is_none() {
                match job.event(0, source.queue) {
                    Event::Send(_) => {}
                    Event::Ack(e) if ended == "ack" => last = Some(e.result),
                    Event::Reply(e) if ended == "reply" => last = Some(e.result),
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(last, Some(Err(Failure::Fault)), "{len} bytes");
        }
        // The interface goes on.
        assert!(a.release(source.descriptor).is_ok());
    }
    // It is no memory of descriptors, which is used without asking the kernel.
    // SAFETY: it is refused.
    let space = unsafe { AddressSpace::of_process() }.unwrap();
    assert!(matches!(a.bind(Descriptor::new(&space)), Err(Error::Argument(_))));
}

fn events_say_at_which_address_data_is(over: Over) {
    let job = Job::new(over, 2);
    let (a, b) = (&job.ranks[0], &job.ranks[1]);
    let door = door(b);
    let (early, one, two) = (Region::zeroed(100), Region::zeroed(100), Region::zeroed(100));
    let address = |region: &Region, offset: u64| Some(region.as_ptr().addr() as u64 + offset);
    let block = MatchEntry { ignore: !0, local_offset: true, ..MatchEntry::new(early.clone()) };
    append(b, &door, List::Overflow, block);
    let part = one.slice(10, 50).unwrap();
    append(b, &door, List::Priority, MatchEntry { bits: 2, ..MatchEntry::new(part) });
    let pieces = Memory::pieces([one.slice(60, 10).unwrap(), two.whole()]);
    append(b, &door, List::Priority, MatchEntry { bits: 3, ..MatchEntry::new(pieces) });
    let source = source(a, &[1; 8]);
    let served = |bits| {
        let target = Target { offset: 4, ..to(1, door.portal, bits) };
        a.start(Operation::put(source.part, target)).unwrap();
        let Event::Served(served) = job.event(1, door.queue) else { panic!("not served") };
        served.address()
    };
    assert_eq!(served(1), address(&early, 0));
    assert_eq!(served(1), address(&early, 8));
    assert_eq!(served(2), address(&one, 14));
    assert_eq!(served(3), None, "in several pieces");
    // Of what came before its entry: where it is, not where the entry's memory is.
    let wanted = MatchEntry { bits: 1, ..MatchEntry::new(two.clone()) };
    b.search(door.portal, MatchEntry { once: true, ..wanted.clone() }).unwrap();
    let Event::Search { found: Ok(found), .. } = job.event(1, door.queue) else { panic!("none") };
    assert_eq!(found.address(), address(&early, 0));
    b.append(door.portal, List::Priority, wanted).unwrap();
    for offset in [0, 8] {
        let Event::Overflow(found) = job.event(1, door.queue) else { panic!("none") };
        assert_eq!(found.address(), address(&early, offset));
    }
}
