//! A network of which nothing comes is polled seldom while much goes on over shared memory; but what
//! comes over it does not wait for long, however the program reads its endpoint.

use petasos_auto::{Auto, Member, Node, Scope};
use petasos_fabric::{
    Address, Clock, Endpoint, Event, Lease, Level, Operation, Payload, Peer, Time, Token,
};
use petasos_shm::Shm;
use petasos_tcp::TcpEndpoint;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(10);
/// Operations until the network is one of which nothing has come for long.
const COLD: usize = 3000;
/// So many operations complete at most before a message over the network is found: 256 passes, each
/// of as many completions as come between two, and some that begin and end it.
const SOON: usize = 600;

fn auto(node: Node) -> Auto {
    let address = |text: &str| text.parse::<Address>().expect("an address");
    let shm = Shm::open(&address("shm://*")).expect("shared memory");
    let tcp = TcpEndpoint::open(&address("tcp://*"), petasos_tcp::Config::default()).expect("TCP");
    let members = vec![
        Member { endpoint: Box::new(shm), scope: Scope::Node },
        Member { endpoint: Box::new(tcp), scope: Scope::Network },
    ];
    Auto::open(node, members).expect("an endpoint")
}

/// Connects them: the handle of the second at the first, and the reverse.
fn join(a: &mut Auto, b: &mut Auto, clock: &Clock) -> (Peer, Peer) {
    let ab = a.resolve(b.address(), PATIENCE).expect("an address");
    let (mut up, mut events) = ([false, false], Vec::new());
    let (mut ba, end) = (None, Instant::now() + PATIENCE);
    while up != [true; 2] {
        a.progress(clock.now(), 64, &mut events);
        up[0] |= events.drain(..).any(|e| matches!(e, Event::PeerUp { peer, .. } if peer == ab));
        b.progress(clock.now(), 64, &mut events);
        for event in events.drain(..) {
            if let Event::PeerUp { peer, .. } = event {
                (ba, up[1]) = (Some(peer), true);
            }
        }
        assert!(Instant::now() < end, "they do not meet");
    }
    (ab, ba.expect("it is up"))
}

/// One endpoint with a peer here and another one over the network, which read as `read` says: how
/// many operations with the first complete before a message of the second is found.
fn until_found(
    read: impl Fn(&mut Auto, Time, &mut Vec<Event>, &mut Lease) -> (usize, bool),
) -> usize {
    let clock = Clock::start();
    let (mut a, mut near) = (auto(Node::local()), auto(Node::local()));
    let mut far = auto(Node::of(b"another node"));
    let (to_near, _) = join(&mut a, &mut near, &clock);
    let (_, to_a) = join(&mut a, &mut far, &clock);
    assert!(a.chosen(to_near).expect("a route").address.scheme() == "shm");
    // The clock of the program stands still.
    let (now, mut events, mut message) = (clock.now(), Vec::new(), Lease::default());
    let (mut there, mut completed, mut sent_at) = (Vec::new(), 0, None);
    let end = Instant::now() + 2 * PATIENCE;
    loop {
        let (token, peer, payload) = (Token(1), to_near, Payload::Bytes("8 bytes.".into()));
        let send = Operation::Send { token, peer, payload, level: Level::Reusable };
        let before = completed;
        if a.try_submit(send).is_ok() {
            while completed == before {
                let (done, came) = read(&mut a, now, &mut events, &mut message);
                completed += done;
                if came {
                    return completed - sent_at.expect("a message that was not sent");
                }
                near.progress(now, 64, &mut there);
                there.clear();
                assert!(Instant::now() < end, "{completed} operations, and no message");
            }
        }
        near.progress(now, 64, &mut there);
        there.clear();
        if completed >= COLD && sent_at.is_none() {
            far.inject(to_a, &[b"from another node"]).expect("room");
            far.progress(clock.now(), 64, &mut there);
            sent_at = Some(completed);
        }
    }
}

fn is_message(event: &Event) -> bool {
    matches!(event, Event::Message { .. })
}

#[test]
fn by_passes() {
    let after = until_found(|a, now, events, _| {
        a.progress(now, 64, events);
        let came = events.iter().any(is_message);
        (events.drain(..).filter(|event| matches!(event, Event::Done { .. })).count(), came)
    });
    assert!(after <= SOON, "after {after} operations");
}

#[test]
fn by_polling_for_completions() {
    let after = until_found(|a, now, events, _| {
        if a.next_completion(now, events).is_some() {
            return (1, false);
        }
        let came = events.iter().any(is_message);
        (events.drain(..).filter(|event| matches!(event, Event::Done { .. })).count(), came)
    });
    assert!(after <= SOON, "after {after} operations");
}

#[test]
fn by_polling_for_messages_first() {
    let after = until_found(|a, now, events, message| {
        if a.poll_message(message).is_some() {
            return (0, true);
        }
        match a.next_completion(now, events) {
            Some(_) => (1, false),
            None => {
                let came = events.iter().any(is_message);
                let done = |event: &Event| matches!(event, Event::Done { .. });
                (events.drain(..).filter(done).count(), came)
            }
        }
    });
    assert!(after <= SOON, "after {after} operations");
}
