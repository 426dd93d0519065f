//! Tenants that write garbage into their rings and sockets, pass the wrong memory, or do not read:
//! they are expelled, and others go on.

use crate::common::{PATIENCE, Place, Serving, Two};
use petasos_shm::link::Link;
use petasos_tenant::{
    control::Control,
    socket::{self, Received},
    wire::{Answer, Pieces, Request},
};
use petasos_testing::Random;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fd::{AsFd, OwnedFd},
    fs::{MemfdFlags, ftruncate, memfd_create},
    io::{Errno, IoSlice},
    net::{
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, Shutdown, sendmsg,
        sockopt::set_socket_linger,
    },
};
use std::{
    io::Write,
    mem::MaybeUninit,
    net::{TcpListener, TcpStream},
    time::{Duration, Instant},
};

/// A process that speaks the protocol, as far as it likes.
struct Raw {
    socket: OwnedFd,
    link: Link,
}

impl Raw {
    fn open(place: &Place) -> Raw {
        let socket = socket::dial(place.path("c").to_str().unwrap()).unwrap();
        let (file, link) = Link::create().unwrap();
        socket::send(&socket, &Control::Hello(None), Some(&file)).unwrap();
        let raw = Raw { socket, link };
        assert!(matches!(raw.hear(), Some(Control::Welcome { .. })), "it is let in");
        raw
    }

    /// The next message by the socket; `None` for the end.
    fn hear(&self) -> Option<Control> {
        let begin = Instant::now();
        loop {
            match socket::receive(&self.socket) {
                Ok(Received::Message(message, None)) => return Some(message),
                Ok(Received::End) => return None,
                Ok(other) => panic!("the broker said {other:?}"),
                Err(Errno::AGAIN) => {
                    assert!(begin.elapsed() < PATIENCE, "the broker says nothing");
                    let wait = Timespec { tv_sec: 1, tv_nsec: 0 };
                    let _ = poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&wait));
                }
                Err(_) => return None,
            }
        }
    }

    fn ring(&self) {
        let _ = socket::send(&self.socket, &Control::Doorbell, None);
    }

    /// Whether it is expelled: why, if that was still said.
    fn end(self) -> String {
        self.ring();
        loop {
            match self.hear() {
                Some(Control::Doorbell) => {}
                Some(Control::Refused(why)) => return why,
                other => {
                    assert_eq!(other, None);
                    return String::new();
                }
            }
        }
    }
}

/// Two tenants that must not notice any of it.
fn others(place: &Place) -> (Two, petasos_fabric::Peer) {
    let mut two = Two::of([place.open("tenant://x@a", "a"), place.open("tenant://x@b", "b")]);
    let peer = two.connect();
    (two, peer)
}

#[test]
fn garbage_in_rings_ends_its_own_endpoint_and_no_other() {
    let place = Place::new();
    let _serving = Serving::start(place.config(), None);
    let (mut two, peer) = others(&place);
    for seed in 0..150_u64 {
        println!("seed {seed}");
        let mut random = Random::new(seed);
        let mut raw = Raw::open(&place);
        for _ in 0..20 {
            match random.below(3) {
                0 => {
                    let len = 1 + random.below(60);
                    let mut bytes = random.bytes(len);
                    bytes[0] %= 12;
                    let _ = raw.link.send(&[&bytes]);
                }
                1 => raw.link.scribble(random.below(Link::WORDS), random.draw()),
                // Where the rings begin, and the words beside them.
                _ => {
                    let at = [random.below(64), 512 + 8 * random.below(64)][random.below(2)];
                    raw.link.scribble(at, random.draw() >> random.below(64));
                }
            }
            raw.ring();
        }
        let _ = raw.link.send(&[&[200; 20]]);
        two.message(peer, &seed.to_le_bytes());
        if seed % 2 == 0 {
            drop(raw);
        } else {
            // What it has scribbled may hide the last message: then nothing is wrong with it.
            raw.ring();
        }
    }
    assert!(place.status()["tenants"][2]["violations"].as_u64() > Some(20), "{}", place.status());
}

#[test]
fn what_may_not_be_said_is_answered_with_the_end() {
    let place = Place::new();
    let _serving = Serving::start(place.config(), None);
    let (mut two, peer) = others(&place);
    let says = |request: &Request<'_>| {
        let mut raw = Raw::open(&place);
        assert!(raw.link.send(&[&request.encode().to_vec()]).unwrap());
        raw.end()
    };
    let why = says(&Request::Data { connection: 9, bytes: b"x" });
    assert!(why.contains("no connection 9"), "{why}");
    let piece = petasos_tenant::wire::Piece { file: 1, offset: 0, len: 1 };
    let payload = Pieces::from_slice(&[piece]);
    let why = says(&Request::Lend { connection: 9, header: b"h", payload });
    assert!(why.contains("not registered"), "{why}");
    // Connections of others, by their numbers: as if there were none.
    let mut raw = Raw::open(&place);
    for connection in 0..20 {
        let drop = Request::Drop { connection }.encode().to_vec();
        let credit = Request::Credit { connection, bytes: 1 << 20 }.encode().to_vec();
        assert!(raw.link.send(&[&drop]).unwrap() && raw.link.send(&[&credit]).unwrap());
    }
    assert!(raw.end().contains("no connection"), "the first that was never there");
    two.message(peer, b"still there");

    // Memory that can shrink, that is shorter than it says, that is none.
    let files: [(&str, OwnedFd); 3] = [
        ("could shrink", {
            let fd = memfd_create("x", MemfdFlags::CLOEXEC).unwrap();
            ftruncate(&fd, 4096).unwrap();
            fd
        }),
        ("bytes long", {
            let region = petasos_shm::link::alloc(8192).unwrap();
            petasos_shm::link::descriptor_of(&region).unwrap().unwrap()
        }),
        ("", std::fs::File::open("/dev/null").unwrap().into()),
    ];
    for (says, fd) in files {
        let raw = Raw::open(&place);
        socket::send(&raw.socket, &Control::File { id: 1, len: 4096 }, Some(&fd)).unwrap();
        let why = raw.end();
        assert!(why.contains(says), "{why}");
    }
    let raw = Raw::open(&place);
    let region = petasos_shm::link::alloc(4096).unwrap();
    let fd = petasos_shm::link::descriptor_of(&region).unwrap().unwrap();
    socket::send(&raw.socket, &Control::File { id: 1, len: 2 << 30 }, Some(&fd)).unwrap();
    assert!(raw.end().contains("are its limit"));
    let raw = Raw::open(&place);
    rustix::net::send(&raw.socket, b"\x63garbage", SendFlags::empty()).unwrap();
    assert!(raw.end().contains("by its socket"));
    two.message(peer, b"still there, too");
}

/// An end by the socket, behind which the ring goes on: the broker does not go on for ever, nor does
/// it look for the end of an end.
#[test]
fn who_ends_and_goes_on_writing_is_gone() {
    let place = Place::new();
    let _serving = Serving::start(place.config(), None);
    let (mut two, peer) = others(&place);
    let piece = petasos_tenant::wire::Piece { file: 1, offset: 0, len: 1 };
    let payload = Pieces::from_slice(&[piece]);
    let closes = Request::Close { connection: 0 };
    let lends = Request::Lend { connection: 9, header: b"h", payload };
    for (empty_packet, request) in [(false, &closes), (true, &closes), (false, &lends)] {
        let mut raw = Raw::open(&place);
        let request = request.encode().to_vec();
        // The broker sleeps, and hears of the end first: then of all that is in the ring.
        std::thread::sleep(Duration::from_millis(50));
        while raw.link.send(&[&request]).unwrap() {}
        match empty_packet {
            true => _ = rustix::net::send(&raw.socket, b"", SendFlags::NOSIGNAL).unwrap(),
            false => rustix::net::shutdown(&raw.socket, Shutdown::Write).unwrap(),
        }
        let begin = Instant::now();
        while matches!(socket::receive(&raw.socket), Ok(Received::Message(..)) | Err(Errno::AGAIN))
        {
            assert!(begin.elapsed() < PATIENCE / 8, "it is not let go");
            (0..100_000).for_each(|_| _ = raw.link.send(&[&request]));
        }
        two.message(peer, b"after its end");
    }
}

/// A connection with a peer that does not read, on which bytes wait: to close the last descriptor of
/// it takes as long as `SO_LINGER` says.
fn slow_to_close() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (peer, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[0; 1 << 16]).is_ok() {}
    set_socket_linger(&stream, Some(PATIENCE / 4)).unwrap();
    (stream.into(), peer)
}

#[test]
fn what_a_tenant_sends_is_not_waited_for() {
    let place = Place::new();
    let _serving = Serving::start(place.config(), None);
    let (mut two, peer) = others(&place);
    // In place of a file, with a message that is none, in more than one, and unread.
    let mut peers = Vec::new();
    for nth in 0..4 {
        let raw = Raw::open(&place);
        let begin = Instant::now();
        for _ in 0..=nth / 3 {
            let (fd, other) = slow_to_close();
            peers.push(other);
            let file = Control::File { id: 1, len: 4096 }.encode();
            let bytes = if nth == 1 { b"\x63" } else { &file[..] };
            let all = vec![fd.as_fd(); if nth == 2 { 50 } else { 1 }];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(50))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(&all)));
            // It may be expelled by the first already.
            let _ =
                sendmsg(&raw.socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL);
            // Not here, if it should be the last.
            std::thread::spawn(move || drop(fd));
        }
        raw.end();
        two.message(peer, b"at once");
        assert!(begin.elapsed() < PATIENCE / 8, "it was waited for");
    }
}

/// Processes that connect and say nothing take the places of their own tenant.
#[test]
fn who_says_nothing_keeps_nobody_else_out() {
    let place = Place::new();
    let _serving = Serving::start(place.config(), None);
    let path = place.path("c");
    let silent: Vec<OwnedFd> = (0..400)
        .filter_map(|_| {
            let socket = socket::dial(path.to_str().unwrap()).ok();
            std::thread::yield_now();
            socket
        })
        .collect();
    assert!(silent.len() > 100, "{}", silent.len());
    let (mut two, peer) = others(&place);
    two.message(peer, b"let in");
}

#[test]
fn who_does_not_read_stops_nobody_but_who_sends_to_it() {
    let place = Place::new();
    let mut config = place.config();
    config.allow("c", "c").unwrap();
    let _serving = Serving::start(config, None);
    let (mut two, peer) = others(&place);
    // One that connects to itself as often as it may, and sends all that it may, and reads no more
    // than the credit for that.
    let mut raw = Raw::open(&place);
    let name: petasos_tenant::Name = {
        let status = place.status();
        status["tenants"][2]["endpoints"][0]["name"].as_str().unwrap().parse().unwrap()
    };
    let mut sent = 0;
    let mut message = Vec::new();
    for connection in 1..=20 {
        let connect = Request::Connect { connection, to: name.clone() }.encode().to_vec();
        assert!(raw.link.send(&[&connect]).unwrap());
        raw.ring();
        let begin = Instant::now();
        let mut window = 0;
        while window == 0 {
            assert!(begin.elapsed() < PATIENCE);
            let came = raw.link.receive(&mut message).unwrap();
            if raw.link.take_room() {
                raw.ring();
            }
            if came && let Ok(Answer::Credit { bytes, .. }) = Answer::decode(&message) {
                window = bytes as usize;
            }
        }
        let data = vec![1; 60_000];
        while window >= data.len() + 64 && begin.elapsed() < PATIENCE {
            let request = Request::Data { connection, bytes: &data }.encode().to_vec();
            match raw.link.send(&[&request]).unwrap() {
                true => (window, sent) = (window - data.len() - 64, sent + data.len()),
                false => raw.ring(),
            }
        }
        two.message(peer, &connection.to_le_bytes());
    }
    assert!(sent > 5_000_000, "{sent}");
    let status = place.status();
    assert_eq!(status["tenants"][2]["endpoints"][0]["waits"], true, "{status}");
    assert_eq!(status["tenants"][2]["violations"], 0);
    two.message(peer, b"in the end");
}
