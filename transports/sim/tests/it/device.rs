//! The simulated NICs: that they keep what `petasos_channel::device` promises, and what their
//! configuration says.

use petasos_channel::{
    Device, DeviceEvent,
    device::{Class, Fault, Node, Refusal, RemoteKey, Target, Ticket},
};
use petasos_fabric::{Access, Address, LostReason, Region, Slice, Time};
use petasos_sim::device::{DeviceConfig, DeviceNet, SimDevice};
use std::time::Duration;

fn open(net: &DeviceNet, name: &str) -> SimDevice {
    net.open(&Address::parse(&format!("simdev://{name}")).unwrap()).unwrap()
}

fn poll(nic: &mut SimDevice) -> Vec<DeviceEvent> {
    let mut events = Vec::new();
    nic.poll(Time::ZERO, true, usize::MAX, &mut events);
    events
}

/// Two NICs that know each other: by which node each knows the other.
fn pair(net: &DeviceNet) -> (SimDevice, SimDevice, Node, Node) {
    let (mut a, mut b) = (open(net, "a"), open(net, "b"));
    a.resolve(b.address(), Duration::from_secs(1));
    net.run_for(Duration::from_millis(1));
    let node = |nic: &mut SimDevice| match poll(nic)[..] {
        [DeviceEvent::Up { node, .. }] => node,
        ref other => panic!("{other:?}"),
    };
    let (ab, ba) = (node(&mut a), node(&mut b));
    (a, b, ab, ba)
}

fn bytes_of(events: &[DeviceEvent], wanted: Class) -> Vec<u8> {
    let byte = |event: &DeviceEvent| match event {
        DeviceEvent::Packet { class, bytes, .. } if *class == wanted => Some(bytes[0]),
        _ => None,
    };
    events.iter().filter_map(byte).collect()
}

fn marks(events: &[DeviceEvent]) -> Vec<u64> {
    let mark = |event: &DeviceEvent| match event {
        DeviceEvent::PutArrived { data, .. } => Some(*data),
        _ => None,
    };
    events.iter().filter_map(mark).collect()
}

fn expose(nic: &mut SimDevice, len: usize, access: Access) -> (Region, RemoteKey) {
    let memory = Region::zeroed(len);
    let (_, key) = nic.register(&memory.whole(), access, 5).unwrap();
    (memory, key)
}

#[test]
fn packets_keep_their_order_and_puts_do_not() {
    for ordered in [false, true] {
        let mut config = DeviceConfig::with_seed(1);
        config.ordered_puts = ordered;
        let net = DeviceNet::new(config);
        let (mut a, mut b, ab, _) = pair(&net);
        let (_, key) = expose(&mut b, 64, Access::WRITE);
        for i in 0..60u8 {
            a.send(ab, Class::Data, &[&[i], b"rest"]).unwrap();
            let target = Target { key: key.clone(), offset: i.into() };
            a.put_immediate(ab, &target, &[i], Some(i.into())).unwrap();
        }
        net.run_for(Duration::from_millis(1));
        let events = poll(&mut b);
        assert!(bytes_of(&events, Class::Data).into_iter().eq(0..60));
        let mut puts = marks(&events);
        assert_eq!(puts.iter().copied().eq(0..60), ordered, "{puts:?}");
        puts.sort_unstable();
        assert!(puts.into_iter().eq(0..60));
    }
}

#[test]
fn slots_are_bounded_and_control_has_its_own() {
    let mut config = DeviceConfig::with_seed(2);
    (config.slots, config.in_flight) = (4, 3);
    let net = DeviceNet::new(config);
    let (mut a, mut b, ab, _) = pair(&net);
    let mut sent = 0;
    for _ in 0..100 {
        if a.send(ab, Class::Data, &[&[sent]]) == Ok(()) {
            sent += 1;
        }
        net.run_for(Duration::from_micros(10));
    }
    // Four have slots, three wait at the door.
    assert_eq!((sent, a.send(ab, Class::Data, &[b"x"])), (7, Err(Refusal::Full)));
    a.send(ab, Class::Control, &[b"c"]).unwrap();
    net.run_for(Duration::from_micros(10));
    let mut events = Vec::new();
    b.poll(Time::ZERO, false, 100, &mut events);
    assert_eq!(bytes_of(&events, Class::Control), b"c");
    assert!(bytes_of(&events, Class::Data).is_empty(), "data that was not asked for");
    assert!(poll(&mut a).is_empty(), "room that is not there");
    let first = poll(&mut b);
    net.run_for(Duration::from_micros(10));
    assert!(matches!(poll(&mut a)[..], [DeviceEvent::Room { .. }]));
    let rest = poll(&mut b);
    let all = [bytes_of(&first, Class::Data), bytes_of(&rest, Class::Data)].concat();
    assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(net.account(b.address()).unwrap().slots_most, 4);
}

#[test]
fn access_is_checked() {
    let net = DeviceNet::new(DeviceConfig::with_seed(3));
    let (mut a, mut b, ab, _) = pair(&net);
    let memory = Region::zeroed(100);
    let (registration, key) = b.register(&memory.whole(), Access::WRITE, 5).unwrap();
    assert_eq!(net.account(b.address()).unwrap().registered, 100);
    let from = Slice::from(vec![1; 50]);
    let mut flawed = key.as_bytes().to_vec();
    flawed[12] ^= 1;
    let flawed = RemoteKey::new(&flawed).unwrap();
    let tries =
        [(&key, 50, None), (&key, 51, Some(Fault::OutOfBounds)), (&flawed, 0, Some(Fault::Stale))];
    for (key, offset, fault) in tries {
        let target = Target { key: key.clone(), offset };
        a.put(ab, &target, &from, None, Ticket(offset)).unwrap();
        net.run_for(Duration::from_micros(20));
        match &poll(&mut a)[..] {
            [DeviceEvent::Done { ticket, result }] => {
                assert_eq!((*ticket, result.as_ref().err().copied()), (Ticket(offset), fault));
            }
            other => panic!("{other:?}"),
        }
    }
    let target = Target { key: key.clone(), offset: 0 };
    a.get(ab, &target, &from, Ticket(1)).unwrap();
    net.run_for(Duration::from_micros(20));
    let denied = |events: &[DeviceEvent]| {
        matches!(events, [DeviceEvent::Done { result: Err(Fault::Denied), .. }])
    };
    assert!(denied(&poll(&mut a)));
    // One that is under way when the memory is closed does not land.
    a.put(ab, &target, &from, Some(1), Ticket(2)).unwrap();
    b.deregister(registration, None);
    net.run_for(Duration::from_micros(20));
    assert!(matches!(poll(&mut a)[..], [DeviceEvent::Done { result: Err(Fault::Stale), .. }]));
    assert!(poll(&mut b).is_empty() && memory.to_vec()[..50] == [0; 50]);
    assert_eq!(net.account(b.address()).unwrap().registered, 0);
    a.put_immediate(ab, &target, &[1], None).unwrap();
    net.run_for(Duration::from_micros(20));
    assert!(matches!(poll(&mut a)[..], [DeviceEvent::Refused { fault: Fault::Stale, .. }]));
}

#[test]
fn the_dead_are_noticed_last_and_what_is_under_way_ends() {
    let net = DeviceNet::new(DeviceConfig::with_seed(4));
    let (mut a, mut b, ab, ba) = pair(&net);
    let (_, key) = expose(&mut b, 100, Access::ALL);
    b.send(ba, Class::Data, &[b"last words"]).unwrap();
    net.run_for(Duration::from_micros(10));
    net.kill(b.address());
    let into = Region::zeroed(100);
    a.get(ab, &Target { key, offset: 0 }, &into.whole(), Ticket(7)).unwrap();
    net.run_for(Duration::from_millis(1));
    let events = poll(&mut a);
    assert!(
        matches!(
            events[..],
            [
                DeviceEvent::Done { ticket: Ticket(7), result: Err(Fault::Lost) },
                DeviceEvent::Packet { .. },
                DeviceEvent::Lost { reason: LostReason::Closed, .. },
            ]
        ),
        "{events:?}"
    );
    assert_eq!(a.send(ab, Class::Data, &[b"x"]), Err(Refusal::Gone));
    // The address is free, and another life of it is another node's.
    let again = open(&net, "b");
    a.resolve(again.address(), Duration::from_secs(1));
    net.run_for(Duration::from_millis(2));
    let up = |event: &DeviceEvent| matches!(event, DeviceEvent::Up { incarnation, .. } if *incarnation == again.incarnation());
    assert!(poll(&mut a).iter().any(up));
}

#[test]
fn who_closes_is_left_alone() {
    let net = DeviceNet::new(DeviceConfig::with_seed(5));
    let (mut a, mut b, ab, ba) = pair(&net);
    let (memory, key) = expose(&mut a, 10, Access::WRITE);
    let from = Slice::from(vec![1; 10]);
    b.put(ba, &Target { key, offset: 0 }, &from, Some(1), Ticket(1)).unwrap();
    b.send(ba, Class::Data, &[b"x"]).unwrap();
    a.close(ab);
    net.run_for(Duration::from_millis(1));
    assert!(poll(&mut a).is_empty() && memory.to_vec() == [0; 10]);
    let lost = |event: &DeviceEvent| matches!(event, DeviceEvent::Lost { .. });
    let events = poll(&mut b);
    assert!(matches!(events[0], DeviceEvent::Done { result: Err(Fault::Lost), .. }));
    assert!(events.len() == 2 && lost(&events[1]), "{events:?}");
    assert_eq!(net.stats().connections, 0);
}

#[test]
fn a_cut_line_holds_everything_until_it_is_mended() {
    let net = DeviceNet::new(DeviceConfig::with_seed(6));
    let (mut a, mut b, ab, _) = pair(&net);
    let (_, key) = expose(&mut b, 10, Access::WRITE);
    net.cut(a.address(), b.address());
    a.send(ab, Class::Data, &[&[1]]).unwrap();
    a.put_immediate(ab, &Target { key, offset: 0 }, &[1], Some(9)).unwrap();
    net.run_for(Duration::from_millis(500));
    assert!(poll(&mut b).is_empty());
    net.heal(a.address(), b.address());
    let events = poll(&mut b);
    assert_eq!((bytes_of(&events, Class::Data), marks(&events)), (vec![1], vec![9]));
    // And for longer than any peer waits.
    net.cut(a.address(), b.address());
    net.run_for(Duration::from_secs(2));
    for nic in [&mut a, &mut b] {
        let events = poll(nic);
        assert!(
            matches!(events[..], [DeviceEvent::Lost { reason: LostReason::Silent(_), .. }]),
            "{events:?}"
        );
    }
}

#[test]
fn nobody_is_reached_in_vain_for_longer_than_asked() {
    let net = DeviceNet::new(DeviceConfig::with_seed(7));
    let mut a = open(&net, "a");
    let nowhere = Address::parse("simdev://nowhere").unwrap();
    a.resolve(&nowhere, Duration::from_millis(5));
    a.resolve(&nowhere, Duration::from_millis(20));
    net.run_for(Duration::from_millis(15));
    assert!(poll(&mut a).is_empty(), "given up before the time");
    net.run_for(Duration::from_millis(10));
    assert!(
        matches!(&poll(&mut a)[..], [DeviceEvent::Unreachable { address, .. }] if *address == nowhere)
    );
}

#[test]
fn ten_thousand_cards() {
    const COUNT: usize = 10_000;
    let net = DeviceNet::new(DeviceConfig::with_seed(8));
    let mut nics: Vec<_> = (0..COUNT).map(|n| open(&net, &n.to_string())).collect();
    let addresses: Vec<_> = nics.iter().map(|nic| nic.address().clone()).collect();
    for (n, nic) in nics.iter_mut().enumerate() {
        nic.resolve(&addresses[(n + 1) % COUNT], Duration::from_secs(1));
    }
    net.run_for(Duration::from_millis(1));
    let mut got = 0;
    for nic in &mut nics {
        for event in poll(nic) {
            if let DeviceEvent::Up { node, .. } = event {
                nic.send(node, Class::Data, &[b"hello"]).unwrap();
            }
        }
    }
    net.run_for(Duration::from_millis(1));
    for nic in &mut nics {
        got += bytes_of(&poll(nic), Class::Data).len();
    }
    assert_eq!((got, net.stats().connections), (2 * COUNT, COUNT as u64));
    drop(nics);
    net.run_for(Duration::from_millis(1));
    assert_eq!(net.stats().connections, 0, "something stays");
}
