//! Engines joined by channels in memory, which take every liberty a transport has.

mod access;
mod credit;
mod fence;
mod flush;
mod hostile;
mod messages;
mod model;
mod numbers;
mod parts;
mod room;

use super::{Config, Engine, Packet, Placement};
use crate::{
    Access, Address, Done, Event, Incarnation, LostReason, OpErrorKind, Operation, Peer, Pool,
    Region, Remote, Token,
};
use std::collections::VecDeque;

/// A few engines, each connected with each.
pub(super) struct Net {
    pub(super) engines: Vec<Engine>,
    /// `peers[a][b]`: the handle of `b` at `a`.
    pub(super) peers: Vec<Vec<Peer>>,
    /// `lines[a][b]`: from `a` to `b`.
    lines: Vec<Vec<Line>>,
    pub(super) events: Vec<Vec<Event>>,
}

#[derive(Default)]
struct Line {
    cut: bool,
    /// The engine named the peer, and has not said that there is nothing more.
    named: bool,
    /// A packet that the engine handed out, and that was not read from memory yet.
    out: Option<Packet>,
    wire: VecDeque<Vec<u8>>,
    /// A packet whose payload is being placed: so much of it is written.
    coming: Option<(Placement, Vec<u8>, usize)>,
}

/// What a channel can do next.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Poll,
    Send,
    Accept,
    Write,
    Land,
}

pub(super) const STEPS: [Step; 5] = [Step::Poll, Step::Send, Step::Accept, Step::Write, Step::Land];

pub(super) fn small_config() -> Config {
    let limits = crate::Limits {
        max_inject: 256,
        max_message: 256,
        max_header: 128,
        ..crate::Limits::default()
    };
    let mut config = Config::new(limits, 256);
    config.eager = 64;
    config.get_chunk = 700;
    config.get_depth = 3;
    config
}

impl Net {
    pub(super) fn new(count: usize, config: &Config) -> Net {
        Net::with_leases(count, config, 64)
    }

    /// The same with pools of so many leases.
    pub(super) fn with_leases(count: usize, config: &Config, leases: usize) -> Net {
        let address = |i: usize| Address::parse(&format!("test://{i}")).unwrap();
        let mut engines: Vec<Engine> = (0..count)
            .map(|i| {
                let pool = Pool::new(leases);
                Engine::new(address(i), Incarnation::random(), config.clone(), pool)
            })
            .collect();
        let mut peers = vec![Vec::new(); count];
        for a in 0..count {
            for b in 0..count {
                let peer = engines[a].add_peer(&address(b)).unwrap();
                let incarnation = engines[b].incarnation();
                engines[a].peer_up(peer, incarnation);
                peers[a].push(peer);
            }
        }
        let line = |_| (0..count).map(|_| Line::default()).collect();
        let mut net = Net {
            engines,
            peers,
            lines: (0..count).map(line).collect(),
            events: vec![Vec::new(); count].into_iter().map(|_: Vec<()>| Vec::new()).collect(),
        };
        net.settle();
        net.events.iter_mut().for_each(Vec::clear);
        net
    }

    /// One step of one channel; false if there was nothing to do.
    pub(super) fn step(&mut self, a: usize, b: usize, step: Step, amount: usize) -> bool {
        while let Some(named) = self.engines[a].next_output() {
            let at = self.peers[a].iter().position(|peer| *peer == named);
            self.lines[a][at.unwrap()].named = true;
        }
        let (to, from) = (self.peers[a][b], self.peers[b][a]);
        let line = &mut self.lines[a][b];
        if a == b || line.cut {
            return false;
        }
        match step {
            Step::Poll if line.named && line.out.is_none() => {
                line.out = self.engines[a].poll_transmit(to);
                line.named = line.out.is_some();
                line.named
            }
            Step::Send if line.out.is_some() => {
                let mut bytes = Vec::new();
                line.out.take().unwrap().copy_to(&mut bytes);
                line.wire.push_back(bytes);
                self.engines[a].sent(to);
                true
            }
            Step::Accept if line.coming.is_none() && !line.wire.is_empty() => {
                let packet = &line.wire[0];
                let frame = super::header::frame(*packet.first_chunk().unwrap()).unwrap();
                let (header, payload) = packet.split_at(frame.header);
                let placement = self.engines[b].accept(from, header).expect("in order");
                line.coming = Some((placement, payload.to_vec(), 0));
                line.wire.pop_front();
                true
            }
            Step::Write => {
                let Some((placement, payload, done)) = &mut line.coming else {
                    return false;
                };
                let end = payload.len().min(*done + amount.max(1));
                placement.write(*done, &payload[*done..end]);
                *done = end;
                true
            }
            Step::Land if line.coming.is_some() => {
                let (mut placement, payload, done) = line.coming.take().unwrap();
                placement.write(done, &payload[done..]);
                self.engines[b].landed(from, placement).expect("in order");
                true
            }
            _ => false,
        }
    }

    /// What comes from `a` to `b` with memory of a closed region goes nowhere.
    pub(super) fn divert(&mut self, a: usize, b: usize) {
        let from = self.peers[b][a];
        if let Some((placement, ..)) = &mut self.lines[a][b].coming {
            self.engines[b].divert(from, placement);
        }
    }

    /// What waits to go from `a` to `b` with such memory is a copy.
    pub(super) fn detach(&mut self, a: usize, b: usize) {
        let to = self.peers[a][b];
        if let Some(packet) = &mut self.lines[a][b].out {
            self.engines[a].detach(to, 0, &mut packet.payload);
        }
    }

    /// Whether a packet that waits to go there has memory of a region.
    pub(super) fn holds_memory(&self, a: usize, b: usize) -> bool {
        let out = self.lines[a][b].out.as_ref();
        out.is_some_and(|packet| matches!(packet.payload, super::Outgoing::Memory(_)))
    }

    /// Collects events; true if there were any.
    pub(super) fn collect(&mut self, a: usize) -> bool {
        self.engines[a].take_events(7, &mut self.events[a])
    }

    /// Runs until nothing moves.
    pub(super) fn settle(&mut self) {
        let count = self.engines.len();
        loop {
            let mut moved = false;
            for a in 0..count {
                for b in 0..count {
                    for step in [Step::Poll, Step::Send, Step::Accept, Step::Land] {
                        moved |= self.step(a, b, step, usize::MAX);
                    }
                }
                moved |= self.collect(a);
            }
            if !moved {
                return;
            }
        }
    }

    /// Ends the channel between two engines, as both see it.
    pub(super) fn cut(&mut self, a: usize, b: usize) {
        for (a, b) in [(a, b), (b, a)] {
            self.lines[a][b] = Line { cut: true, ..Line::default() };
            self.engines[a].peer_lost(self.peers[a][b], LostReason::Closed);
        }
    }

    /// Submits, runs until nothing moves, and gives the completion.
    pub(super) fn finish(&mut self, a: usize, operation: Operation) -> Result<Done, OpErrorKind> {
        let token = operation.token();
        self.engines[a].submit(operation);
        self.settle();
        self.done(a, token).expect("it completed")
    }

    /// The completion of an operation, if it came; it must not have come twice.
    pub(super) fn done(&mut self, a: usize, token: Token) -> Option<Result<Done, OpErrorKind>> {
        let is = |event: &Event| matches!(event, Event::Done { token: t, .. } if *t == token);
        let at = self.events[a].iter().position(is)?;
        let event = self.events[a].remove(at);
        assert!(!self.events[a].iter().any(is), "{token:?} completed twice");
        match event {
            Event::Done { result, .. } => Some(result.map_err(crate::OpError::into_kind)),
            _ => unreachable!(),
        }
    }

    /// Registers memory at `owner`, and imports it at `user`.
    pub(super) fn share(
        &mut self,
        owner: usize,
        user: usize,
        memory: &Region,
        access: Access,
    ) -> (crate::RegionId, Remote) {
        let region = self.engines[owner].register(&memory.whole(), access).unwrap();
        let parts = self.engines[owner].export(region).unwrap().parse().unwrap();
        let peer = self.peers[user][owner];
        let remote = self.engines[user].import(parts, peer).unwrap();
        (region, remote)
    }

    /// No operation, no lease, no request is left over.
    pub(super) fn assert_clean(&self) {
        for engine in &self.engines {
            assert_eq!(engine.ledger.live, 0, "operations are left");
            assert!(engine.ledger.tokens.is_empty(), "tokens are left");
            for index in 0..engine.peers.len() as u32 {
                let peer = engine.peers.at(index).unwrap().handle;
                let Some((_, Some(conn))) = engine.peers.entry_and_connection(peer) else {
                    continue;
                };
                assert!(conn.outstanding.is_empty() && conn.incoming.is_settled());
                assert!(conn.in_flight.is_empty() && conn.queues.bulk.is_empty());
            }
        }
    }
}

pub(super) fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8) ^ seed).collect()
}
