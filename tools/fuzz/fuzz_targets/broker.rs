//! The broker's engine under tenants that say anything: it never panics, orders name memory and
//! endpoints that are there, and when all have ended nothing is left.
#![no_main]

use libfuzzer_sys::fuzz_target;
use petasos_broker::{Config, Engine, Order, Outcome, PortId};
use petasos_fabric::Time;
use petasos_fuzz::Cut;
use petasos_tenant::wire::{Piece, Request, total};
use std::sync::LazyLock;

static CONFIG: LazyLock<Config> = LazyLock::new(|| {
    let mut config = Config::new("/control");
    for tenant in ["a", "b", "c"] {
        config.add_tenant(tenant, format!("/{tenant}"));
        config.set_limit(tenant, "connections", 4).expect("a limit");
    }
    config.set_limit("a", "bytes_per_second", 1000).expect("a limit");
    config.allow("a", "b").expect("a rule");
    config.allow("c", "*").expect("a rule");
    config
});

/// Bytes of the file that each endpoint has registered.
const FILE: u64 = 4096;

fn attach(engine: &mut Engine, nth: usize, now: Time) -> PortId {
    let name = format!("x@{}", ["a", "b", "c"][nth]).parse().expect("a name");
    let (port, _) = engine.attach(nth, Some(&name), now).expect("the name is free");
    engine.register(port, 1, FILE).expect("there is room");
    port
}

fn within(pieces: &[Piece]) -> bool {
    pieces.iter().all(|piece| piece.file == 1 && piece.offset + piece.len <= FILE)
}

fuzz_target!(|data: &[u8]| {
    let mut input = Cut(data);
    let mut now = Time(1_000_000_000);
    let mut engine = Engine::new(&CONFIG, now);
    let mut ports = [0, 1, 2].map(|nth| attach(&mut engine, nth, now));
    while !input.is_over() {
        let step = input.u8();
        let nth = usize::from(step % 3);
        match step / 3 % 8 {
            0 => now = Time(now.0 + u64::from(step) * 1_000_000),
            1 => engine.room(ports[nth]),
            2 => {
                engine.detach(ports[nth], now);
                ports[nth] = attach(&mut engine, nth, now);
            }
            3 | 4 => {
                for _ in 0..8 {
                    let Some(order) = engine.poll(now) else { break };
                    let known = |port: PortId| assert!(ports.contains(&port), "{port:?} is gone");
                    let outcome = match &order {
                        Order::Send { port, .. } => {
                            known(*port);
                            if step > 200 { Outcome::Full } else { Outcome::Done }
                        }
                        Order::Copy { from, source, to, target } => {
                            [*from, *to].into_iter().for_each(known);
                            assert!(within(source) && within(target));
                            assert_eq!(total(source), total(target));
                            if step > 200 { Outcome::Failed } else { Outcome::Done }
                        }
                        Order::Payload { from, source, to, .. } => {
                            [*from, *to].into_iter().for_each(known);
                            assert!(within(source));
                            Outcome::Done
                        }
                    };
                    engine.complete(outcome);
                }
            }
            _ => {
                let len = usize::from(input.u8() % 80);
                let bytes = input.bytes(len);
                let said = Request::decode(bytes).map_err(Into::into);
                let taken = said.and_then(|request| engine.handle(ports[nth], &request, now));
                if let Err(violation) = taken {
                    engine.expel(ports[nth], &violation.to_string(), now);
                    ports[nth] = attach(&mut engine, nth, now);
                }
            }
        }
    }
    let status = engine.status();
    assert!(status.tenants.iter().all(|tenant| tenant.connections_made <= 4));
    ports.into_iter().for_each(|port| engine.detach(port, now));
    let left = engine.status();
    assert!(left.connections.is_empty(), "{left:?}");
    assert!(left.tenants.iter().all(|tenant| tenant.outstanding_bytes == 0), "{left:?}");
});
