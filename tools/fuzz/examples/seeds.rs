//! Writes the seeds: what each decoder takes, so that the fuzzer begins with more than nothing.
//! `cargo run --example seeds`, in the folder `fuzz`.

use bytes::Bytes;
use petasos_auto::{
    AutoAddress, Node,
    handshake::{Handshake, Wish},
};
use petasos_channel::{
    device::{Class, Fault},
    immediate::{NAME, PutHeader},
};
use petasos_datagram::frame::{Control, HEADER_LEN, Header, Permission, TARGET};
use petasos_datagram::nic::packet as nic;
use petasos_fabric::{Access, Address, Incarnation, Key, key::KeyParts, two_sided::header};
use petasos_fuzz::{KINDS, zoo};
use petasos_tcp::{
    Secret,
    handshake::{Client, Goal, Identity, Server, Verdict},
};
use petasos_tenant::{control::Control as Greeting, wire as tenant};
use petasos_wire::{
    Encoding,
    portals::{self, Atomic, Kind},
    rpc::{self, CallId, Remote, Request, Response, Status, Trace},
    to_vec,
};
use std::{fs, io, path::Path};

fn main() -> io::Result<()> {
    // Kinds of packets go on from 1, and the targets choose among all of them.
    let is_kind = |kind| header::frame([kind, header::VERSION, 0, 0, 0, 0, 0, 0]).is_ok();
    assert!((1..KINDS).all(is_kind) && !is_kind(KINDS), "petasos_fuzz::KINDS is another number");
    write("address", addresses().iter().map(|text| text.as_bytes().to_vec()))?;
    write("hello", hellos())?;
    write("key", keys())?;
    write("wire", values())?;
    write("frame", frames())?;
    write("handshake", handshakes())?;
    write("packets", packets())?;
    write("calls", calls())?;
    write("notes", petasos_shm::fuzzing::notes())?;
    write("pair", pairs())?;
    write("channels", channels())?;
    write("portals", one_sided())?;
    write("jobs", jobs())?;
    write("admission", petasos_launch::fuzzing::admission_seeds())?;
    write("pmi1", petasos_launch::fuzzing::pmi1_seeds())?;
    write("pmix41", petasos_launch::fuzzing::pmix41_seeds())?;
    write("engine", engines())?;
    write("networks", networks())?;
    write("nic", nics())?;
    write("forms", forms())?;
    write("tenant", said_to_brokers())?;
    write("broker", broker_runs())
}

/// What tenants, and brokers, say.
fn said_to_brokers() -> Vec<Vec<u8>> {
    let connection = 1;
    let name = || "x@b".parse().expect("a name");
    let pieces = || tenant::Pieces::from_slice(&[tenant::Piece { file: 1, offset: 8, len: 100 }]);
    let requests = [
        tenant::Request::Connect { connection, to: name() },
        tenant::Request::Data { connection, bytes: b"data" },
        tenant::Request::Lend { connection, header: b"head", payload: pieces() },
        tenant::Request::Close { connection },
        tenant::Request::Drop { connection },
        tenant::Request::Credit { connection, bytes: 4 },
        tenant::Request::Fetch { connection, into: pieces() },
        tenant::Request::Take { connection },
        tenant::Request::Forget { file: 1 },
    ];
    let answers = [
        tenant::Answer::Incoming { connection, from: name() },
        tenant::Answer::Lent { connection, header: b"head", len: 100 },
        tenant::Answer::Fetched { connection, done: true },
        tenant::Answer::Payload { connection, bytes: b"body" },
        tenant::Answer::Ended { connection, why: "no rule".to_owned() },
        tenant::Answer::Over { connection, why: String::new() },
        tenant::Answer::Returned { connection },
    ];
    let controls = [
        Greeting::Hello(Some(name())),
        Greeting::Welcome { name: name(), memory: 1 << 30 },
        Greeting::Refused("why".to_owned()),
        Greeting::File { id: 1, len: 4096 },
        Greeting::Doorbell,
    ];
    let requests = requests.iter().map(|request| request.encode().to_vec());
    let answers = answers.iter().map(|answer| answer.encode().to_vec());
    requests.chain(answers).chain(controls.iter().map(Greeting::encode)).collect()
}

/// Connections that are made, used, and closed: steps of the target, see there.
fn broker_runs() -> Vec<Vec<u8>> {
    let say = |port: u8, request: &tenant::Request<'_>| {
        let bytes = request.encode().to_vec();
        [&[15 + port, bytes.len() as u8][..], &bytes].concat()
    };
    let carry_out = || vec![9, 9, 9];
    let pieces = |offset| tenant::Pieces::from_slice(&[tenant::Piece { file: 1, offset, len: 99 }]);
    let (connection, header) = (1, &b"head"[..]);
    let to = "x@b".parse().expect("a name");
    // Ports have the numbers 1 to 3, so that the first connection has 4.
    let begin = [say(0, &tenant::Request::Connect { connection, to }), carry_out()].concat();
    let data = say(0, &tenant::Request::Data { connection, bytes: b"data" });
    let lend = say(0, &tenant::Request::Lend { connection, header, payload: pieces(0) });
    let fetch = say(1, &tenant::Request::Fetch { connection: 4, into: pieces(500) });
    let take = say(1, &tenant::Request::Take { connection: 4 });
    let credit = say(1, &tenant::Request::Credit { connection: 4, bytes: 4 });
    let close = say(0, &tenant::Request::Close { connection });
    let refuse = say(1, &tenant::Request::Drop { connection: 4 });
    let run = |steps: &[&Vec<u8>]| {
        let steps = steps.iter().flat_map(|step| [(*step).clone(), carry_out()]);
        [begin.clone(), steps.collect::<Vec<_>>().concat()].concat()
    };
    vec![
        run(&[&data, &credit, &close]),
        run(&[&lend, &fetch, &data, &refuse]),
        run(&[&lend, &take, &close]),
        run(&[&lend, &close, &fetch]),
    ]
}

/// A packet of each kind.
fn nics() -> Vec<Vec<u8>> {
    let name = [7; NAME];
    let put = |event| PutHeader { name, offset: 64, event };
    let headers = [
        nic::Header::Packet(Class::Data),
        nic::Header::Packet(Class::Control),
        nic::Header::Immediate(put(Some(5))),
        nic::Header::Refused(Fault::Stale),
        nic::Header::Put { id: 3, put: put(None), last: false },
        nic::Header::Put { id: 3, put: put(Some(9)), last: true },
        nic::Header::Over { id: 3, result: Ok(()) },
        nic::Header::Over { id: 4, result: Err(Fault::OutOfBounds) },
        nic::Header::Get { id: 5, name, offset: 64, len: 1 << 20 },
        nic::Header::Part { id: 5 },
    ];
    let mut seeds: Vec<_> = headers.iter().map(|h| h.encode().as_bytes().to_vec()).collect();
    // With what follows.
    for at in [0, 2, 4, 9] {
        let longer = [&seeds[at][..], &[1; 20]].concat();
        seeds.push(longer);
    }
    seeds
}

fn write(target: &str, seeds: impl IntoIterator<Item = Vec<u8>>) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
    fs::create_dir_all(&folder)?;
    for (nth, seed) in seeds.into_iter().enumerate() {
        fs::write(folder.join(format!("{nth:02}")), seed)?;
    }
    Ok(())
}

fn addresses() -> [&'static str; 6] {
    [
        "shm://worker-3",
        "tcp://[::1]:4040",
        "ofi+verbs;ofi_rxm://node7:4040",
        "self://*",
        "shm:///run/user/1000/petasos",
        "TCP://x y",
    ]
}

fn keys() -> Vec<Vec<u8>> {
    let key = |routes: Vec<(u8, Bytes)>| {
        let parts = KeyParts {
            owner: Address::parse("tcp://127.0.0.1:4040").expect("an address"),
            incarnation: Incarnation::new(u64::MAX / 3).expect("not zero"),
            len: 1 << 33,
            access: Access::ALL,
            routes,
        };
        Key::compose(&parts).expect("short enough").as_bytes().to_vec()
    };
    let two_sided = (Key::ROUTE_TWO_SIDED, Bytes::from_static(&[7; 16]));
    let by_address = (Key::ROUTE_ADDRESS, Bytes::from_static(&[8; 12]));
    // An owner that cannot be printed.
    let mut unprintable = vec![1, 7, 0, 197];
    unprintable.extend([7u64.to_le_bytes(), 12u64.to_le_bytes()].concat());
    unprintable.extend([0x10; 197]);
    let whole = key(vec![two_sided.clone(), by_address]);
    vec![key(vec![]), key(vec![two_sided]), whole, unprintable]
}

/// The first byte is the target's choice: encoding, limits, type.
fn values() -> Vec<Vec<u8>> {
    let bulk = zoo::BulkBytes {
        memory: keys().into_iter().next().map(|key| (9, key.into())),
        inline: Some(Bytes::from_static(b"inline")),
        access: 3,
    };
    let mut seeds = Vec::new();
    for (choice, encoding) in [(0, Encoding::Native), (1, Encoding::Xdr)] {
        let mut add =
            |kind: u8, bytes: Vec<u8>| seeds.push([&[choice | kind << 2], &bytes[..]].concat());
        add(0, to_vec(encoding, &zoo::ordered()));
        add(1, to_vec(encoding, &zoo::tables()));
        add(2, to_vec(encoding, &zoo::chain(60)));
        add(3, to_vec(encoding, &bulk));
    }
    seeds
}

fn frames() -> Vec<Vec<u8>> {
    let call = CallId { slot: 3, generation: 4 };
    let mut seeds = vec![rpc::cancel(call).to_vec(), rpc::release(call).to_vec()];
    for bits in 0..16u8 {
        let set = |bit: u8| bits >> bit & 1 == 1;
        let mut body = b"arguments".to_vec();
        if set(1) {
            body.clear();
            Remote { len: 1 << 20, key: &keys()[1] }.encode(&mut body);
        }
        let request = Request {
            one_way: set(3),
            encoding: if set(2) { Encoding::Xdr } else { Encoding::Native },
            checked: set(0),
            overflow: set(1),
            trace: set(2).then_some(Trace { trace: 5, span: 6 }),
            provider: 1,
            call,
            method: 7,
            signature: 8,
            left_us: 9,
        };
        let response =
            Response { call, status: Status::Ok, overflow: set(1), checked: set(0), window: 64 };
        let mut frame = Vec::new();
        request.encode(&mut frame);
        frame.extend_from_slice(&body);
        if set(0) {
            rpc::seal(&mut frame, request.header_len());
        }
        seeds.push(frame);
        if bits < 4 {
            let mut frame = Vec::new();
            response.encode(&mut frame);
            frame.extend_from_slice(&body);
            if set(0) {
                rpc::seal(&mut frame, response.header_len());
            }
            seeds.push(frame);
        }
    }
    seeds
}

fn hellos() -> Vec<Vec<u8>> {
    let hello = |address: &str, secret| petasos_plugin::Hello {
        max_packet: 32 << 10,
        incarnation: Incarnation::new(7).expect("not zero"),
        nonce: [5; 16],
        secret,
        address: Address::parse(address).expect("an address"),
    };
    vec![hello("seq:///tmp/x", false).encode(), hello("seq:///tmp/y", true).encode()]
}

/// The first byte says whether there is a secret (1), whether the proof is made right (2), and
/// which side it is (4).
fn handshakes() -> Vec<Vec<u8>> {
    let identity = |port: u64| Identity {
        address: Address::parse(&format!("tcp://127.0.0.1:{port}")).expect("an address"),
        incarnation: Incarnation::new(port).expect("not zero"),
    };
    let spot = petasos_noise::ResponderAddress::of(([10, 0, 0, 1], 4040).into());
    let mut seeds = Vec::new();
    let known = Secret::new([7; 32]).expect("a secret");
    for goal in [Goal::Begin, Goal::Vouch(name(spot))] {
        // In clear, as the target puts it under the secret itself.
        let (mut server, challenge) = Server::begin(None, false, [1; 32], [3; 32]);
        let hello = Client::begin(None, true, [2; 32], &identity(2), goal, spot, &challenge);
        let (_, hello) = hello.expect("a challenge");
        server.hello(None, &hello).expect("a hello");
        seeds.push([&[0], &hello[..]].concat());
        seeds.push([&[3, hello[0]], &hello[33..]].concat());
        for verdict in [Verdict::Welcome, Verdict::Crossed, Verdict::Claimed, Verdict::Vouched] {
            let verdict = server.verdict(verdict, None, &identity(1));
            seeds.push([&[4, 1], &verdict[..]].concat());
            seeds.push([&[7, 1, 0], &verdict[33..]].concat());
        }
    }
    let (mut server, challenge) = Server::begin(Some(&known), true, [1; 32], [3; 32]);
    let refused = server.verdict(Verdict::Refused, None, &identity(1));
    seeds.push([&[5, 0], &challenge[..], &refused].concat());
    seeds.push([&[10, 16, 0], &[0; 40][..]].concat());
    seeds
}

/// What a connection is called.
fn name(spot: petasos_noise::ResponderAddress) -> petasos_tcp::handshake::Name {
    let (_, challenge) = Server::begin(None, false, [1; 32], [3; 32]);
    let own = Identity {
        address: Address::parse("tcp://127.0.0.1:9").expect("an address"),
        incarnation: Incarnation::new(9).expect("not zero"),
    };
    let begun = Client::begin(None, false, [2; 32], &own, Goal::Begin, spot, &challenge);
    begun.expect("a challenge").0.name()
}

/// Steps of the target: operations of the program, what is sent, and an answer of each kind.
fn packets() -> Vec<Vec<u8>> {
    /// Numbers in the header of each kind, a region counted as two.
    const NUMBERS: [u8; KINDS as usize] =
        [0, 0, 1, 2, 1, 2, 3, 1, 4, 7, 1, 5, 4, 2, 1, 1, 5, 1, 1, 0, 0, 1, 0, 1, 1, 0];
    let mut seeds = Vec::new();
    for kind in 1..KINDS {
        for status in [0, 1] {
            let mut script = Vec::new();
            for operation in 0..11 {
                // Submit: which, length, not more; level or source, tag and so on.
                script.extend([10, operation, 40, 1, 1, 0, 0, 0, 0]);
            }
            script.extend([7, 9, 7, 7, 14, 1]);
            for id in 0..8 {
                script.extend([1, kind, status * 3, 40, 0, status]);
                let mut left = NUMBERS[usize::from(kind)];
                // The id is one that was seen, the rest small.
                while left > 0 {
                    if matches!(kind, 8 | 9 | 11 | 16) && left == NUMBERS[usize::from(kind)] - 1 {
                        script.extend([id % 5, 0]);
                        left -= 2;
                    } else if kind == 16 && left == 1 {
                        script.extend([id, 5, 1]);
                        left -= 1;
                    } else {
                        let first = left == NUMBERS[usize::from(kind)];
                        script.extend([if first { 3 } else { 0 }, id]);
                        left -= 1;
                    }
                }
                script.extend([1, 14, 1, 7, 9, 7]);
            }
            seeds.push(script);
        }
    }
    seeds
}

/// Steps of the target: for each method requests of all kinds, and calls with answers.
fn calls() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for method in 0..6u8 {
        let mut script = vec![9, 1];
        for flags in [0, 8, 16, 0x60, 0x87, 24] {
            // Flags, method, provider, id, signature, time left.
            script.extend([1, flags, method, 0, 1, flags >> 3, 0, 200, 1]);
            script.extend(if flags == 0x60 {
                vec![0, 200, 0, 1, 0]
            } else {
                vec![2, 1, 0, 0, 0, 0]
            });
            script.extend([9, 3, 10, 15, 99]);
        }
        script.extend([7, 1, 3, 0, 7, 200, 1, 9, 3, 10]);
        seeds.push(script);
    }
    for status in 0..10u8 {
        let mut script = Vec::new();
        for len in [10, 200] {
            script.extend([11, 0, 250, 1, len, 0, 9, 2, 10]);
            // Flags, id, window, status, body.
            script.extend([5, 0, 128, 16, 0, status, 4, 1, 2, 3, 4, 9, 2, 14, 1, 0]);
            script.extend([5, 3, 128, 16, 0, status, 0, 100, 0, 1, 0, 9, 3, 14, 1, 0]);
        }
        seeds.push(script);
    }
    seeds
}

/// Steps of the target: all operations of the program, and one deed of the peer's in between.
fn pairs() -> Vec<Vec<u8>> {
    let mut deeds: Vec<Vec<u8>> = vec![
        // Words around the rings, a header word; packets of each kind; wishes, events.
        vec![0, 0, 0, 0, 2, 255, 255, 255, 255, 0, 0, 0, 0],
        vec![0, 2, 3, 1, 1, 1, 40, 0],
        vec![2, 1, 5, 1, 2, 3, 4, 5],
        vec![2, 5, 8, 1, 0, 0, 0, 0, 0, 0, 0],
        vec![5, 0, 0, 0, 9, 0, 9, 0, 9],
        vec![5, 0, 1, 1, 0],
    ];
    // Entries of the table, and notes.
    deeds.extend((0..7).map(|nth| vec![6, nth & 1, nth, 1, 0, 16]));
    deeds.extend((0..5).map(|nth| vec![7, nth, 1, 9, nth, 10, 8]));
    deeds.extend((1..KINDS).map(|kind| vec![3, kind, 0, 8, 0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6]));
    let script = |deed: Vec<u8>| {
        let mut script = Vec::new();
        for operation in 0..10 {
            // Which, length, not more, offset, which region.
            script.extend([11, operation, 40, 1, 8, operation & 1]);
            script.extend([8, 10, 8]);
            script.extend(&deed);
            script.extend([8, 10, 8]);
        }
        script
    };
    deeds.into_iter().map(script).collect()
}

/// Steps of the target: what an honest peer does by each channel, and then one deed that is not.
fn channels() -> Vec<Vec<u8>> {
    // A node, then what it does. A record: flags, its number, length, the engine's header, pattern,
    // ack.
    let record: &[u8] = &[0, 1, 0, 0, 40, 0, 0, 7, 0];
    let lent: &[u8] = &[0, 1, 8, 0, 200, 0, 0, 0, 0];
    let (begin, end): (&[u8], &[u8]) =
        (&[0, 1, 13, 0, 90, 0, 0, 7, 0], &[0, 1, 14, 0, 90, 0, 7, 0]);
    let drive: &[u8] = &[0, 19, 15, 10];
    let fetched: &[u8] = &[0, 9, 0, 63, 5];
    let by_put: &[u8] = &[0, 5, 0, 0, 0, 40, 0, 0, 7, 0, 0, 0];
    let ask: &[u8] = &[0, 8, 3, 16, 0, 0];
    let honest: [&[u8]; 12] =
        [record, drive, lent, lent, lent, drive, fetched, fetched, drive, fetched, drive, ask];
    let mut deeds: Vec<Vec<u8>> = vec![
        [begin, drive, end, drive].concat(),
        [drive, by_put, by_put, drive, by_put, drive].concat(),
        [drive, by_put, drive, &[0, 8, 7, 0, 0, 0]].concat(),
        [&[1, 8, 3, 16, 0, 0], drive, drive, by_put, drive].concat(),
        [&[0, 10, 0], record, drive, &[0, 10, 1], drive].concat(),
        [lent, lent, lent, drive, &[0, 11, 0], drive].concat(),
        [&[0, 1, 8, 250, 200, 0, 0, 0, 0], lent, lent, drive, drive].concat(),
        [record, &[0, 15], record, &[0, 15], drive].concat(),
    ];
    deeds.extend((0..9u8).map(|kind| [&[0, 8, kind, 9, 0, 0], drive].concat()));
    deeds.extend((0..9u8).map(|choice| {
        let operation = [0, 12, choice, 1, 90, choice & 1, 0];
        [&operation[..], drive, drive, &[0, 12, choice, 1, 20, 0, 0], drive, fetched, drive]
            .concat()
    }));
    deeds.extend((0..KINDS).map(|kind| {
        let packet = [0, 1, 0, 0, 40, 0, 8 + kind, 0, 3, 0, 1, 5, 0, 1, 0, 7, 0];
        [&packet[..], drive].concat()
    }));
    // The endpoint talks, too: so much that it wants a channel, and gets one.
    let talk = [&[0, 14, 60][..], drive].concat().repeat(5);
    deeds.push(
        [&talk[..], &[0, 8, 4, 16, 0, 0], drive, &talk, &talk, &[0, 8, 6, 0, 0, 0], drive].concat(),
    );
    let script = |deed: Vec<u8>| [&honest.concat()[..], &deed, drive, record, drive].concat();
    deeds.into_iter().map(script).collect()
}

/// Each kind of request, short and with all that it can have, and responses.
fn one_sided() -> Vec<Vec<u8>> {
    let request = |kind, full: bool, lent: bool| {
        let atomic = Atomic { operator: 3, datatype: 7, operand: [9; portals::OPERAND] };
        let request = portals::Request {
            kind,
            operation: full.then_some(5 << 32 | 3),
            portal: 4,
            user: 1000,
            bits: u64::MAX / 5,
            offset: if full { 1 << 40 } else { 0 },
            header_data: if full { 77 } else { 0 },
            length: if kind == Kind::Get || lent { 4096 } else { 0 },
            lent,
            job: if full { (6, 2) } else { (0, 0) },
            atomic: matches!(kind, Kind::Atomic | Kind::FetchAtomic).then_some(atomic),
        };
        let mut seed = Vec::new();
        request.encode(&mut seed);
        seed.extend([8; 16]);
        seed
    };
    let response = |moved| {
        let mut seed = Vec::new();
        portals::Response { operation: 5 << 32 | 3, status: 0, moved }.encode(&mut seed);
        seed
    };
    let kinds = [Kind::Put, Kind::Get, Kind::GetPut, Kind::Atomic, Kind::FetchAtomic];
    let requests = kinds
        .into_iter()
        .flat_map(|kind| [request(kind, false, false), request(kind, true, false)]);
    let lent = [Kind::Put, Kind::Get].map(|kind| request(kind, true, true));
    let responses = [response(None), response(Some((64, 1 << 33)))];
    requests.chain(lent).chain(responses).collect()
}

/// Values, two of them in frames, and a job's data.
fn jobs() -> Vec<Vec<u8>> {
    let mut seeds = petasos_launch::fuzzing::wire_seeds();
    let frame = |value: &[u8]| [&(value.len() as u32).to_le_bytes()[..], value].concat();
    let requests: Vec<Vec<u8>> = seeds.iter().filter(|seed| seed[0] == 1).cloned().collect();
    for pair in requests.windows(2) {
        let frames = [frame(&pair[0][1..]), frame(&pair[1][1..]), b"a line\n".to_vec()];
        seeds.push([&[4][..], &frames.concat()].concat());
    }
    seeds.push([&[5][..], &petasos_pmix::fuzzing::table_seed()].concat());
    seeds
}

/// For each of two nodes, and a spare: each request of both ranks, each message, and some of all.
fn engines() -> Vec<Vec<u8>> {
    let step = |kind: u8, bytes: Vec<u8>| {
        (bytes.len() < 256).then(|| [&[kind, bytes.len() as u8][..], &bytes].concat())
    };
    let requests = petasos_launch::fuzzing::requests();
    let both = |what| [3, 0x13].map(|kind| step(kind, to_vec(Encoding::Native, &what)));
    let requests = requests.into_iter().map(both).map(|both| both.into_iter().flatten());
    let mut steps: Vec<Vec<u8>> = requests.map(|both| both.flatten().collect()).collect();
    let messages = petasos_launch::fuzzing::messages().into_iter();
    steps.extend(messages.filter_map(|what| step(0x19, to_vec(Encoding::Native, &what))));
    // A second, and the loss of a node.
    let later: &[u8] = &[0, 0xe8, 3, 0x21, 0, 0xff, 0xff];
    let mut seeds = Vec::new();
    for me in [0, 1, 4] {
        seeds.extend(steps.iter().map(|step| [&[me][..], step, later].concat()));
        for part in steps.chunks(7) {
            seeds.push([&[me][..], &part.concat(), later].concat());
        }
    }
    seeds
}

/// The first byte is the target's choice: a head, a control message, an address, a nic.
fn networks() -> Vec<Vec<u8>> {
    let of = |choice: u8, bytes: Vec<u8>| [vec![choice], bytes].concat();
    let target = [9; TARGET];
    let permission = Permission { location: vec![5; 16], access: Access::WRITE, notice: 77 };
    let head = Header { slot: 3, taken: 65_000, number: 7, ticket: u64::MAX / 7 };
    let heads = [head.to_bytes(), [0; HEADER_LEN]].map(|bytes| of(0, bytes.to_vec()));
    let controls = [
        Control::Hello { slot: 1, ticket: 2, protocol: "tcp;ofi_rxm".into(), name: vec![2; 16] },
        Control::Ring,
        Control::Awake,
        Control::Sleep,
        Control::Rung(77),
        Control::Bye(u32::MAX),
        Control::Ask(target),
        Control::Grant(target, permission),
        Control::Grant(
            target,
            Permission { location: vec![6; 90], access: Access::ALL, notice: 0 },
        ),
        Control::Refuse(target),
        Control::Revoke(target),
        Control::Released(target),
        Control::Returned,
    ];
    let members =
        ["shm://4711-0123456789abcdef", "ofi+verbs://[fd00::7]:40", "tcp://10.0.0.7:4040"]
            .map(|text| Address::parse(text).expect("an address"));
    let whole =
        |members: &[Address]| AutoAddress::compose(Node::of(b"a node"), members).expect("short");
    let texts =
        [whole(&members).to_string(), "auto://node7:4040".to_owned(), "auto://*".to_owned()];
    let incarnation = Incarnation::new(u64::MAX / 3).expect("not zero");
    let nics = [Wish::Stay, Wish::Ask]
        .map(|wish| of(3, Handshake { wish, incarnation, address: whole(&members[..2]) }.encode()));
    let mut all = heads.to_vec();
    all.extend(controls.iter().map(|control| of(1, control.to_bytes())));
    all.extend(texts.map(|text| of(2, text.into_bytes())));
    all.extend(nics);
    all
}

/// What UCX packs (1.13, 1.22): our own first, and then another context's.
fn forms() -> Vec<Vec<u8>> {
    let bytes = |text: &str| -> Vec<u8> {
        let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("digits");
        (0..text.len()).step_by(2).map(byte).collect()
    };
    let of = |choice: u8, own: &str, theirs: &str| {
        let (own, theirs) = (bytes(own), bytes(theirs));
        [&[choice, own.len() as u8][..], &own, &theirs].concat()
    };
    let attributes = "17b751389763344bd7e0373700132300";
    let ip = format!("cf19{attributes}");
    let node = "0bdc48490b811f60";
    let memory = "32004c3e5077ccab33004f230088";
    vec![
        of(0, "020000000000000000080102030405060708", "020000000000000000080807060504030201"),
        of(0, "000000000000000000", "000000000000000000"),
        of(1, &format!("204ebb3ce14d32ee1a208600 02c0000202{ip}82c1bb").replace(' ', ""), ""),
        of(
            1,
            &format!("2091aafdd777373a49000600 02c0000202{ip}82d8758680").replace(' ', ""),
            &format!("204ebb3ce14d32ee1a208600 02c0000202{ip}82c1bb").replace(' ', ""),
        ),
        of(3, &format!("208774e4bb2084bf6f4088{node}a7d377cc2b{memory}520e0000020000c0"), ""),
        of(
            7,
            &format!(
                "208b410b7dc8d823b44008{node}a7d377cc2b{memory}520e0000020000c02188{node}478bbd370636\
                 00242e5077ccab330092210084520e0000"
            ),
            "",
        ),
    ]
}
