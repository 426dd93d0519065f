//! Random operations with fences among them, and what of each can be seen at the target.

use crate::{
    Random,
    fences::{put, routes, send, sum, watch},
    world::{Node, World, all_are, memory, room},
};
use petasos_fabric::{Level, Operation, Payload, Peer, Remote, Slice, Token};

/// Lengths of puts.
const LENGTHS: [usize; 6] = [1, 8, 100, 5000, 40_000, 300_000];
/// Of the memory at the target.
const LEN: usize = 4 << 20;

/// What can be seen of an operation.
enum Effect {
    /// These bytes are not zero any more.
    Bytes(usize, usize),
    /// As many messages have come.
    Messages(usize),
    /// A receive was filled.
    Received(Token),
    /// Nothing.
    None,
}

/// One run.
pub(crate) struct Run {
    random: Random,
    ends: (Node, Node),
    peers: (Peer, Peer),
    target: Slice,
    routes: Vec<Remote>,
    /// Bytes of the target that are given out.
    used: usize,
    messages: usize,
    /// Fences so far.
    fences: usize,
    /// What was submitted, and behind how many fences.
    effects: Vec<(usize, Effect)>,
    tokens: Vec<Token>,
}

impl Run {
    pub(crate) fn new(
        w: &mut World,
        (a, b): (Node, Node),
        peers: (Peer, Peer),
        mut random: Random,
    ) -> Run {
        let target = match random.below(2) {
            0 => room(LEN),
            _ => w[b].endpoint().alloc(LEN).expect("memory").whole(),
        };
        let routes = routes(w, a, b, &target);
        Run {
            random,
            ends: (a, b),
            peers,
            target,
            routes,
            used: 0,
            messages: 0,
            fences: 0,
            effects: Vec::new(),
            tokens: Vec::new(),
        }
    }

    pub(crate) fn run(&mut self, w: &mut World, count: usize) {
        let (a, b) = self.ends;
        let mut checked = 0;
        for _ in 0..count {
            self.submit(w);
            if self.random.percent(40) {
                w.step();
            }
            if self.random.percent(40) {
                w.settle();
                self.check(w, &mut checked);
            }
        }
        watch(w, (a, b), "all is seen", |w| {
            self.check(w, &mut checked);
            self.effects.iter().all(|(_, effect)| self.is_complete(w, effect))
        });
        std::mem::take(&mut self.tokens).into_iter().for_each(|token| _ = w.ok(a, token));
    }

    fn submit(&mut self, w: &mut World) {
        let ((a, b), (ab, ba)) = (self.ends, self.peers);
        let fenced = self.random.percent(25);
        let route = self.routes[self.random.below(self.routes.len())];
        let level = [Level::Reusable, Level::Delivered, Level::Visible][self.random.below(3)];
        let what = self.random.below(7);
        let mut posted = None;
        let mut effect = Effect::None;
        let len = LENGTHS[self.random.below(LENGTHS.len())];
        let at = self.used.next_multiple_of(8);
        match what {
            0 if w.has(a, |c| c.tagged) => {
                let token = w.post(b, Some(ba), 1, 0, &room(len.min(50_000)));
                posted = Some(token);
                effect = Effect::Received(token);
            }
            0 | 1 => {
                self.messages += 1;
                effect = Effect::Messages(self.messages);
            }
            2 if w.has(a, |c| c.atomics) => {
                self.used = at + 8;
                effect = Effect::Bytes(at, 1);
            }
            3 => {}
            _ if at + len <= LEN => {
                self.used = at + len;
                effect = Effect::Bytes(at, len);
            }
            _ => {}
        }
        let make = |token| match (&effect, posted) {
            (_, Some(_)) => {
                let payload = Payload::Bytes(vec![1; len.min(50_000)].into());
                Operation::SendTagged { token, peer: ab, tag: 1, payload, level }
            }
            (Effect::Messages(nth), _) => send(token, ab, &[*nth as u8; 50]),
            (Effect::Bytes(at, 1), _) if what == 2 => sum(token, route, *at),
            (Effect::Bytes(at, len), _) => {
                put(token, route, *at, &memory(&vec![1; *len]), (level, None))
            }
            _ => Operation::Flush { token, peer: ab },
        };
        let token = w.op(a, |token| if fenced { make(token).fenced() } else { make(token) });
        self.fences += usize::from(fenced);
        self.tokens.push(token);
        self.effects.push((self.fences, effect));
        w.until("it is accepted", |w| w.accepted(a) && w.accepted(b));
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        self.target.part(at, len).expect("within").to_vec()
    }

    fn is_seen(&self, w: &World, effect: &Effect) -> bool {
        match effect {
            Effect::Bytes(at, len) => {
                self.bytes(*at, 1) == [1] || self.bytes(at + len - 1, 1) == [1]
            }
            effect => !matches!(effect, Effect::None) && self.is_complete(w, effect),
        }
    }

    fn is_complete(&self, w: &World, effect: &Effect) -> bool {
        let b = self.ends.1;
        match effect {
            Effect::Bytes(at, len) => all_are(&self.bytes(*at, *len), 1),
            Effect::Messages(count) => w[b].messages.len() >= *count,
            Effect::Received(token) => w[b].ledger.result(*token).is_some(),
            Effect::None => true,
        }
    }

    /// What is seen of an operation is seen when all before its fence is complete. What a message
    /// is, the target finds by itself.
    fn check(&self, w: &mut World, checked: &mut usize) {
        let seen = self.effects.iter().rev().find(|(_, effect)| self.is_seen(w, effect));
        let Some((fences, _)) = seen.filter(|(fences, _)| fences > checked) else { return };
        let before = || self.effects.iter().filter(|(behind, _)| behind < fences);
        for (behind, effect) in before() {
            if let Effect::Bytes(..) = effect {
                let complete = self.is_complete(w, effect);
                assert!(complete, "seen behind fence {fences}, and not what is behind {behind}");
            }
        }
        w[self.ends.0].frozen = true;
        w.until("the messages before a fence are there", |w| {
            before().all(|(_, effect)| self.is_complete(w, effect))
        });
        w[self.ends.0].frozen = false;
        *checked = *fences;
    }
}
