//! What a peer writes, and what it only sends: immediate puts land where their key allows it, and
//! packets that are not asked for are bounded.

use crate::common::Mock;
use petasos_channel::{
    Device, DeviceEvent,
    device::{Class, Fault, Node, RemoteKey, Target},
};
use petasos_datagram::{Config, Nic};
use petasos_fabric::{Access, Address, Clock, LostReason, Region};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

struct Pair {
    nics: [Nic<Mock>; 2],
    clock: Clock,
}

impl Pair {
    /// Two that are connected, and the first one's number of the second.
    fn new() -> (Pair, Node) {
        let open = || Nic::open(&Address::parse("mock://*").unwrap(), Config::default()).unwrap();
        let mut pair = Pair { nics: [open(), open()], clock: Clock::start() };
        let to = pair.nics[1].address().clone();
        pair.nics[0].resolve(&to, PATIENCE);
        let node = pair.until(0, |event| match event {
            DeviceEvent::Up { node, .. } => Some(*node),
            _ => None,
        });
        (pair, node)
    }

    fn poll(&mut self, at: usize, data: bool) -> Vec<DeviceEvent> {
        let mut events = Vec::new();
        let now = self.clock.now();
        self.nics[at].poll(now, data, 64, &mut events);
        events
    }

    /// Drives both until one of them reports what is wanted.
    fn until<T>(&mut self, at: usize, mut wanted: impl FnMut(&DeviceEvent) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            self.poll(1 - at, true);
            if let Some(found) = self.poll(at, true).iter().find_map(&mut wanted) {
                return found;
            }
            assert!(Instant::now() < end, "nothing of the kind");
        }
    }

    fn refused(&mut self, node: Node, target: &Target) -> Fault {
        self.nics[0].put_immediate(node, target, &[1; 8], None).unwrap();
        self.until(0, |event| match event {
            DeviceEvent::Refused { fault, .. } => Some(*fault),
            _ => None,
        })
    }
}

/// Immediate puts write where their key allows it, once that is known; the rest comes back.
#[test]
fn immediate_puts() {
    let (mut pair, node) = Pair::new();
    let most = pair.nics[0].limits().immediate.min(1000);
    assert!(most >= 200, "{most} bytes at once");
    let memory = Region::zeroed(4096);
    let (registration, key) = pair.nics[1].register(&memory.whole(), Access::WRITE, 5).unwrap();
    let bytes = vec![7; most];
    let at = |key: &RemoteKey, offset| Target { key: key.clone(), offset };
    pair.nics[0].put_immediate(node, &at(&key, 100), &bytes, Some(9)).unwrap();
    let arrived = pair.until(1, |event| match event {
        DeviceEvent::PutArrived { tag, offset, len, data, .. } => {
            Some((*tag, *offset, *len, *data))
        }
        _ => None,
    });
    assert_eq!(arrived, (5, 100, most as u64, 9));
    let written = memory.to_vec();
    assert!(written[100..100 + most] == bytes && written[..100] == [0; 100]);
    assert!(written[100 + most..].iter().all(|byte| *byte == 0));

    for offset in [4089, u64::MAX] {
        assert_eq!(pair.refused(node, &at(&key, offset)), Fault::OutOfBounds);
    }
    let (_, readable) = pair.nics[1].register(&memory.whole(), Access::READ, 6).unwrap();
    assert_eq!(pair.refused(node, &at(&readable, 0)), Fault::Denied);
    let unknown = RemoteKey::new(&[1; 40]).unwrap();
    assert_eq!(pair.refused(node, &at(&unknown, 0)), Fault::Stale);
    pair.nics[1].deregister(registration, None);
    assert_eq!(pair.refused(node, &at(&key, 0)), Fault::Stale);
    assert!(memory.to_vec() == written, "written without the right");
}

/// A peer that keeps sending packets that are not asked for is cut off before they fill the memory.
#[test]
fn a_flood_of_packets() {
    let (mut pair, node) = Pair::new();
    let end = Instant::now() + PATIENCE;
    let packet = vec![7; pair.nics[0].limits().packet];
    let mut sent = 0;
    let lost = 'lost: loop {
        assert!(Instant::now() < end, "after {sent} bytes");
        pair.poll(0, true);
        while pair.nics[0].send(node, Class::Data, &[&packet]).is_ok() {
            sent += packet.len();
        }
        for event in pair.poll(1, false) {
            match event {
                DeviceEvent::Lost { reason, .. } => break 'lost reason,
                DeviceEvent::Up { .. } => {}
                // What came before is handed out when it is wanted, or before the loss.
                DeviceEvent::Packet { .. } => assert_eq!(pair.nics[1].counters().violations, 1),
                other => panic!("{other:?}"),
            }
        }
    };
    assert!(matches!(lost, LostReason::Protocol(_)), "{lost}");
    assert!(sent < 1 << 30, "{sent} bytes");
}
