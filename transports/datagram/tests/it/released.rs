//! A key that its program releases while an access by it waits for what the owner says.

use crate::common::{Mock, open_memory};
use petasos_channel::Channels;
use petasos_datagram::{Config, Nic};
use petasos_fabric::{
    Access, Address, Clock, Endpoint, Event, Operation, Region, RemoteSpan, Token,
};
use smallvec::smallvec;
use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

const LEN: usize = 4096;
const PATIENCE: Duration = Duration::from_secs(20);

fn open() -> Channels<Nic<Mock>> {
    let mut config = Config::default();
    config.remote_access_from = 1;
    let place = Address::parse("mock://*").unwrap();
    Nic::<Mock>::open(&place, config).unwrap().into_endpoint()
}

/// Gets by a key that is released before anything of it has begun: it ends well, and what comes
/// after does not.
fn read(granted: bool) {
    open_memory(granted);
    let (mut a, mut b) = (open(), open());
    let memory = Region::from_vec(vec![7; LEN]);
    let region = b.register(&memory.whole(), Access::ALL).unwrap();
    let key = b.export(region).unwrap();
    a.resolve(&b.address().clone(), PATIENCE).unwrap();
    let (clock, end) = (Clock::start(), Instant::now() + PATIENCE);
    let mut until = |a: &mut Channels<Nic<Mock>>, wanted: &dyn Fn(&Event) -> bool| {
        let mut events = Vec::new();
        loop {
            a.progress(clock.now(), 64, &mut events);
            b.progress(clock.now(), 64, &mut Vec::new());
            if let Some(at) = events.iter().position(wanted) {
                return events.swap_remove(at);
            }
            assert!(Instant::now() < end, "{events:?}");
        }
    };
    until(&mut a, &|event| matches!(event, Event::PeerUp { .. }));
    let get = |a: &mut Channels<Nic<Mock>>, remote, into: &Region, token| {
        let (token, local) = (Token(token), smallvec![into.whole()]);
        let spans = smallvec![RemoteSpan { offset: 0, len: LEN as u64 }];
        let get = Operation::Get { token, remote, local, spans };
        a.submit(&mut VecDeque::from([get]));
    };
    for first in [1, 11] {
        let (remote, into) = (a.import(&key).unwrap(), Region::zeroed(LEN));
        get(&mut a, remote, &into, first);
        a.release(remote);
        a.release(remote);
        get(&mut a, remote, &into, first + 1);
        let mut done = |a: &mut _, wanted| {
            let is =
                |event: &Event| matches!(event, Event::Done { token, .. } if token.0 == wanted);
            matches!(until(a, &is), Event::Done { result: Ok(_), .. })
        };
        assert!(!done(&mut a, first + 1), "by a key that was released");
        assert!(done(&mut a, first));
        assert_eq!(into.to_vec(), [7; LEN]);
        get(&mut a, remote, &into, first + 2);
        assert!(!done(&mut a, first + 2), "by a key that was released");
    }
    assert_eq!(a.device().counters().accesses > 0, granted);
}

#[test]
fn the_owner_grants_it() {
    read(true);
}

#[test]
fn the_owner_refuses_it() {
    read(false);
}
