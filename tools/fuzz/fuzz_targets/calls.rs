//! The engine of remote calls against a peer that writes its own frames: calls, answers, cancels,
//! releases, keys to memory that is there or is not, in any order.
//!
//! Whatever it does: nothing panics; memory is bounded; every call of the engine's ends; and when
//! the peer is gone, nothing of it is left ([`petasos_rpc::Usage`] is zero).
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use petasos_fabric::{Access, Address, Endpoint, Event, Key, Peer, Region, Time};
use petasos_fuzz::{
    Cut,
    zoo::{BulkBytes, Ordered},
};
use petasos_rpc::{
    BulkHandle, Call, CallOptions, Engine, EngineConfig, Incoming, Method, Target, Usage, serve,
};
use petasos_self::Local;
use petasos_wire::{
    Encoding,
    rpc::{self, CallId, Frame, Remote, Request, Response, Trace},
};
use std::{
    pin::Pin,
    task::{Context, Waker},
    time::Duration,
};

const STEPS: usize = 200;
const LIVES: usize = 3;
const MEMORY: usize = 8 << 20;
const MAX_BODY: u64 = 64 << 10;
const CALLS: u16 = 16;

const ECHO: Method = Method::raw("echo");
const LARGE: Method = Method::raw("large");
const NEVER: Method = Method::raw("never");
const TYPED: Method = Method::raw("typed");
const BULK: Method = Method::raw("bulk");
const METHODS: [Method; 6] = [ECHO, LARGE, NEVER, TYPED, BULK, Method::raw("none")];

fuzz_target!(|data: &[u8]| {
    petasos_fuzz::bounded(MEMORY + 64 * data.len(), || {
        let mut world = World::new(Cut(data));
        for _ in 0..STEPS {
            if world.cut.is_over() {
                break;
            }
            world.step();
        }
        world.finish();
    });
});

struct World<'a> {
    cut: Cut<'a>,
    engine: Engine,
    now: Time,
    calls: Vec<Call>,
    target: Target,
    attacker: Attacker,
    lives: usize,
}

/// The peer, and what it knows.
struct Attacker {
    endpoint: Local,
    victim: Peer,
    ids: Vec<CallId>,
    keys: Vec<Bytes>,
}

fn anywhere() -> Address {
    Address::parse("self://*").expect("an address")
}

fn victim() -> Engine {
    let endpoint = Local::open(&anywhere()).expect("an endpoint");
    let mut config = EngineConfig::default();
    (config.calls_per_peer, config.calls_in_all, config.queue_per_peer) = (CALLS, 32, 16);
    (config.max_body, config.bulk_inline) = (MAX_BODY, 64);
    let engine = Engine::with_given_time(Box::new(endpoint), config, Time(1_000_000_000));
    engine.register(ECHO, 0, |call: Incoming| -> petasos_rpc::HandlerFuture {
        let body = call.to_vec();
        Box::pin(std::future::ready(Ok(body)))
    });
    engine.register(LARGE, 0, |_: Incoming| -> petasos_rpc::HandlerFuture {
        Box::pin(std::future::ready(Ok(vec![1; 10_000])))
    });
    engine.register(NEVER, 0, |_: Incoming| -> petasos_rpc::HandlerFuture {
        Box::pin(std::future::pending())
    });
    engine.register(TYPED, 0, serve(|_, zoo: Ordered| async { zoo }));
    engine.register(
        BULK,
        0,
        serve(|context, (handle, offset, len): (BulkHandle, u64, u64)| async move {
            let moved = async {
                let memory = context.engine().open(&handle)?;
                let data = memory.pull(offset, len.min(MAX_BODY)).await?;
                if len & 1 == 1 {
                    memory.release();
                }
                memory.push(offset, data.whole()).await
            };
            moved.await.map(|data| data.to_vec()).map_err(|error| error.to_string())
        }),
    );
    engine
}

impl Attacker {
    fn new(engine: &Engine, ids: Vec<CallId>) -> Attacker {
        let mut endpoint = Local::open(&anywhere()).expect("an endpoint");
        let victim = endpoint.resolve(engine.address(), Duration::from_secs(1)).expect("a peer");
        let mut keys = Vec::new();
        for access in [Access::READ, Access::ALL] {
            let memory = Region::zeroed(5000);
            let region = endpoint.register(&memory.whole(), access).expect("a free slot");
            keys.push(endpoint.export(region).expect("registered").as_bytes().clone());
        }
        // One that claims more than there is.
        let mut parts = Key::from_bytes(keys[0].clone()).and_then(|k| k.parse()).expect("a key");
        parts.len = MAX_BODY;
        keys.push(Key::compose(&parts).expect("as long as before").as_bytes().clone());
        let mut attacker = Attacker { endpoint, victim, ids, keys };
        attacker.read();
        attacker
    }

    /// Reads what came, and remembers what can be used.
    fn read(&mut self) {
        let mut events = Vec::new();
        self.endpoint.progress(Time(1), 64, &mut events);
        for event in events {
            let Event::Message { message, .. } = event else { continue };
            match rpc::decode(&message).expect("the engine writes good frames") {
                Frame::Request(Request { call, overflow, .. }, body)
                | Frame::Response(Response { call, overflow, .. }, body) => {
                    self.ids.insert(0, call);
                    if overflow {
                        let remote = Remote::decode(body).expect("where the rest is");
                        self.keys.insert(0, Bytes::copy_from_slice(remote.key));
                    }
                }
                Frame::Cancel(call) | Frame::Release(call) => self.ids.insert(0, call),
                Frame::GiveBack(key) => self.keys.insert(0, Bytes::copy_from_slice(key)),
            }
        }
        self.ids.truncate(16);
        self.keys.truncate(8);
    }

    fn key(&self, cut: &mut Cut<'_>) -> Bytes {
        let mut key = self.keys[cut.upto(self.keys.len())].to_vec();
        if cut.u8() > 240 {
            let at = usize::from(cut.u16()) % key.len();
            key[at] ^= cut.u8();
        }
        key.into()
    }

    fn id(&self, cut: &mut Cut<'_>) -> CallId {
        match cut.u8() {
            0 => CallId { slot: cut.u32(), generation: cut.u32() },
            // Calls of its own.
            1..128 => CallId { slot: u32::from(cut.u8() & 31), generation: 0 },
            choice => {
                let nothing = CallId { slot: 0, generation: 0 };
                self.ids.get(usize::from(choice) % 16).copied().unwrap_or(nothing)
            }
        }
    }

    fn body(&self, cut: &mut Cut<'_>, overflow: bool, out: &mut Vec<u8>) {
        if overflow {
            let len = if cut.u8() < 250 { cut.u16().into() } else { cut.u64() };
            Remote { len, key: &self.key(cut) }.encode(out);
        } else {
            out.extend_from_slice(cut.short());
        }
    }

    fn request(&self, cut: &mut Cut<'_>) -> Vec<u8> {
        let flags = cut.u8();
        let method = METHODS[cut.upto(METHODS.len())];
        let request = Request {
            one_way: flags & 0x07 == 7,
            encoding: if flags & 8 == 0 { Encoding::Native } else { Encoding::Xdr },
            checked: flags & 16 != 0,
            overflow: flags & 0x60 == 0x60,
            trace: (flags & 128 != 0).then(Trace::default),
            provider: u16::from(cut.u8() == 255),
            call: self.id(cut),
            method: method.id,
            signature: u64::from(cut.u8() == 255),
            left_us: cut.u16().into(),
        };
        let mut frame = Vec::new();
        request.encode(&mut frame);
        if method == BULK && !request.overflow {
            let memory = (cut.u8() > 20).then(|| (u64::from(cut.u16()), self.key(cut)));
            let inline = (cut.u8() > 200).then(|| Bytes::copy_from_slice(cut.short()));
            let bulk = BulkBytes { memory, inline, access: cut.u8() & 15 };
            let moved = (bulk, u64::from(cut.u16()), u64::from(cut.u16()));
            petasos_wire::encode_into(request.encoding, &moved, &mut frame);
        } else {
            self.body(cut, request.overflow, &mut frame);
        }
        if request.checked {
            rpc::seal(&mut frame, request.header_len());
        }
        frame
    }

    fn response(&self, cut: &mut Cut<'_>) -> Vec<u8> {
        let flags = cut.u8();
        let response = Response {
            call: self.id(cut),
            status: rpc::Status::Ok,
            overflow: flags & 3 == 3,
            checked: flags & 4 != 0,
            window: cut.u16(),
        };
        let mut frame = Vec::new();
        response.encode(&mut frame);
        frame[2] = cut.u8() % 11;
        self.body(cut, response.overflow, &mut frame);
        if response.checked {
            rpc::seal(&mut frame, response.header_len());
        }
        frame
    }

    fn say(&mut self, frame: &[u8]) {
        let _ = self.endpoint.inject(self.victim, &[frame]);
    }
}

/// Forgets calls that are over.
fn poll(calls: &mut Vec<Call>) {
    let mut context = Context::from_waker(Waker::noop());
    calls.retain_mut(|call| Pin::new(call).poll(&mut context).is_pending());
}

impl<'a> World<'a> {
    fn new(cut: Cut<'a>) -> World<'a> {
        let engine = victim();
        let attacker = Attacker::new(&engine, Vec::new());
        let target = engine.target(attacker.endpoint.address());
        let now = Time(1_000_000_000);
        World { cut, engine, now, calls: Vec::new(), target, attacker, lives: 1 }
    }

    fn step(&mut self) {
        let (cut, attacker) = (&mut self.cut, &mut self.attacker);
        match cut.u8() % 16 {
            0 => attacker.say(cut.short()),
            1..=4 => attacker.say(&attacker.request(cut)),
            5 | 6 => attacker.say(&attacker.response(cut)),
            7 => {
                let id = attacker.id(cut);
                match cut.u8() % 3 {
                    0 => attacker.say(&rpc::cancel(id)),
                    1 => attacker.say(&rpc::release(id)),
                    _ => attacker.say(&[&rpc::give_back()[..], &attacker.key(cut)].concat()),
                }
            }
            8 | 9 => {
                let times = 1 + cut.upto(4);
                self.turn(times);
            }
            10 => attacker.read(),
            11 | 12 => self.call(),
            13 => {
                if !self.calls.is_empty() {
                    let at = cut.upto(self.calls.len());
                    drop(self.calls.swap_remove(at));
                }
            }
            14 => {
                self.now = self.now.after(Duration::from_millis(cut.u16().into()));
                self.engine.set_time(self.now);
                poll(&mut self.calls);
            }
            _ if cut.u8() < 32 && self.lives < LIVES => {
                self.lives += 1;
                let ids = std::mem::take(&mut attacker.ids);
                self.attacker = Attacker::new(&self.engine, ids);
                self.target = self.engine.target(self.attacker.endpoint.address());
            }
            _ => {
                self.turn(2);
                self.attacker.read();
            }
        }
    }

    fn turn(&self, times: usize) {
        for _ in 0..times {
            self.engine.progress();
        }
    }

    fn call(&mut self) {
        let mut options = CallOptions::default();
        if self.cut.u8() & 1 == 0 {
            options = options.timeout(Duration::from_millis(self.cut.u8().into()));
        }
        if self.cut.u8() & 1 == 0 {
            options = options.checked();
        }
        let len = usize::from(self.cut.u8()) * if self.cut.u8() & 3 == 0 { 50 } else { 1 };
        let arguments = |_, out: &mut Vec<u8>| out.resize(out.len() + len, 3);
        if self.calls.len() < 64 {
            self.calls.push(self.target.call_raw(ECHO, &options, arguments));
        }
    }

    fn finish(mut self) {
        drop(self.attacker);
        self.engine.progress();
        for _ in 0..100 {
            self.engine.progress();
            poll(&mut self.calls);
            if self.calls.is_empty() && self.engine.usage() == Usage::default() {
                return;
            }
            // Time passes for what waits for a peer that never comes.
            self.now = self.now.after(Duration::from_secs(1));
            self.engine.set_time(self.now);
        }
        panic!("{} calls, and {:?} is left", self.calls.len(), self.engine.usage());
    }
}
