//! The contract, kept by the channels over endpoints as the device: shared memory and the own
//! process, in real time, with descriptors to sleep on.

use petasos_channel::{
    Channels, Config, Device, DeviceEvent, Force, Over,
    device::{Class, Fault, Node, RemoteKey, Target},
};
use petasos_conformance::{Fixture, RealTime, conformance};
use petasos_fabric::{Access, Address, Endpoint, LostReason, Region, Time};
use petasos_self::Local;
use petasos_shm::Shm;
use std::time::{Duration, Instant};

/// Channels over endpoints that `open` makes.
struct OverEndpoints<E> {
    time: RealTime,
    config: Config,
    fresh: fn(&RealTime) -> String,
    open: fn(&Address) -> E,
}

impl<E: Endpoint + 'static> Fixture for OverEndpoints<E> {
    fn fresh(&self) -> Address {
        Address::parse(&(self.fresh)(&self.time)).unwrap()
    }

    fn open(&self, at: &Address) -> Box<dyn Endpoint> {
        Box::new(Channels::new(Over::new((self.open)(at)), self.config.clone()))
    }

    fn now(&self) -> Time {
        self.time.now()
    }
}

fn forced(force: Force) -> Config {
    let mut config = Config::default();
    config.force = force;
    config
}

mod shared_memory {
    use super::*;

    fn over(force: Force) -> impl Fixture {
        OverEndpoints {
            time: RealTime::default(),
            config: forced(force),
            fresh: |time| format!("shm://{}", time.name()),
            open: |at| Shm::open_with(at, petasos_shm::Config::default()).unwrap(),
        }
    }

    mod usual {
        use super::*;
        conformance!(over(Force::None));
        conformance!(stopped, over(Force::None));
    }

    mod exclusive {
        use super::*;
        conformance!(over(Force::Exclusive));
        conformance!(stopped, over(Force::Exclusive));
    }
}

mod own_process {
    use super::*;

    fn over(force: Force) -> impl Fixture {
        OverEndpoints {
            time: RealTime::default(),
            config: forced(force),
            fresh: |time| format!("self://{}", time.name()),
            open: |at| Local::open(at).unwrap(),
        }
    }

    mod usual {
        use super::*;
        conformance!(over(Force::None));
    }

    mod exclusive {
        use super::*;
        conformance!(over(Force::Exclusive));
    }
}

/// Drives devices until one of them, which is given, says what is wanted.
fn until<T>(
    devices: &mut [Over<Shm>; 2],
    at: usize,
    mut wanted: impl FnMut(&DeviceEvent) -> Option<T>,
) -> T {
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(20) {
        let now = Time(1 + begin.elapsed().as_nanos() as u64);
        for (n, device) in devices.iter_mut().enumerate() {
            let mut events = Vec::new();
            device.poll(now, true, 64, &mut events);
            if n == at
                && let Some(found) = events.iter().find_map(&mut wanted)
            {
                return found;
            }
        }
    }
    panic!("nothing of the kind in 20 s");
}

/// Immediate puts write where their key allows it, once that is known; the rest comes back.
#[test]
fn immediate_puts() {
    let time = RealTime::default();
    let mut devices = [(); 2].map(|()| {
        let address = Address::parse(&format!("shm://{}", time.name())).unwrap();
        Over::new(Shm::open(&address).unwrap())
    });
    let to = devices[1].address().clone();
    devices[0].resolve(&to, Duration::from_secs(10));
    let node = until(&mut devices, 0, |event| match event {
        DeviceEvent::Up { node, .. } => Some(*node),
        _ => None,
    });
    let most = devices[0].limits().immediate.min(1000);
    assert!(most >= 200, "{most} bytes at once");
    let memory = Region::zeroed(4096);
    let (registration, key) = devices[1].register(&memory.whole(), Access::WRITE, 5).unwrap();
    let bytes = vec![7; most];
    let at = |key: &RemoteKey, offset| Target { key: key.clone(), offset };
    devices[0].put_immediate(node, &at(&key, 100), &bytes, Some(9)).unwrap();
    let arrived = until(&mut devices, 1, |event| match event {
        DeviceEvent::PutArrived { tag, offset, len, data, .. } => {
            Some((*tag, *offset, *len, *data))
        }
        _ => None,
    });
    assert_eq!(arrived, (5, 100, most as u64, 9));
    let written = memory.to_vec();
    assert!(written[100..100 + most] == bytes && written[..100] == [0; 100]);
    assert!(written[100 + most..].iter().all(|byte| *byte == 0));

    let refused = |devices: &mut [Over<Shm>; 2], target: &Target| {
        devices[0].put_immediate(node, target, &[1; 8], None).unwrap();
        until(devices, 0, |event| match event {
            DeviceEvent::Refused { node: Node(_), fault } => Some(*fault),
            _ => None,
        })
    };
    for offset in [4089, u64::MAX] {
        assert_eq!(refused(&mut devices, &at(&key, offset)), Fault::OutOfBounds);
    }
    let (_, readable) = devices[1].register(&memory.whole(), Access::READ, 6).unwrap();
    assert_eq!(refused(&mut devices, &at(&readable, 0)), Fault::Denied);
    let unknown = RemoteKey::new(&[1; 40]).unwrap();
    assert_eq!(refused(&mut devices, &at(&unknown, 0)), Fault::Stale);
    devices[1].deregister(registration, None);
    assert_eq!(refused(&mut devices, &at(&key, 0)), Fault::Stale);
    assert!(memory.to_vec() == written, "written without the right");
}

/// A peer that keeps sending packets that are not asked for is cut off before they fill the memory.
#[test]
fn a_flood_of_packets() {
    let time = RealTime::default();
    let [mut floods, mut receives] = [(); 2].map(|()| {
        let address = Address::parse(&format!("self://{}", time.name())).unwrap();
        Over::new(Local::open(&address).unwrap())
    });
    floods.resolve(&receives.address().clone(), Duration::from_secs(10));
    let begin = Instant::now();
    let now = || Time(1 + begin.elapsed().as_nanos() as u64);
    let packet = vec![7; floods.limits().packet];
    let (mut to, mut sent) = (None, 0);
    let lost = 'lost: loop {
        assert!(begin.elapsed() < Duration::from_secs(60), "after {sent} bytes");
        let mut events = Vec::new();
        floods.poll(now(), true, 64, &mut events);
        to = to.or(events.iter().find_map(|event| match event {
            DeviceEvent::Up { node, .. } => Some(*node),
            _ => None,
        }));
        while let Some(node) = to
            && floods.send(node, Class::Data, &[&packet]).is_ok()
        {
            sent += packet.len();
        }
        let mut events = Vec::new();
        receives.poll(now(), false, 64, &mut events);
        for event in events {
            match event {
                DeviceEvent::Lost { reason, .. } => break 'lost reason,
                // What came before is handed out when it is wanted, not now.
                other => assert!(matches!(other, DeviceEvent::Up { .. }), "{other:?}"),
            }
        }
    };
    assert!(matches!(lost, LostReason::Protocol(_)), "{lost}");
    assert!(sent < 1 << 30, "{sent} bytes");
}
