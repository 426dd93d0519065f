//! What a probe does with the endpoints of its world: operations, and waiting for their ends.

use crate::world::{Node, Seat, World};
use bytes::Bytes;
use petasos_fabric::{
    Access, Body, Claimed, Done, Full, InjectError, Key, KeyId, Level, OpError, OpErrorKind,
    Operation, Payload, Peeked, Peer, Refused, RegionId, Remote, RemoteSpan, Slice, Token,
};
use smallvec::smallvec;
use std::{ops::Range, time::Duration};

/// Drives all until a number has not changed for a while.
pub(crate) fn until_still(w: &mut World, number: impl Fn(&World) -> usize) {
    let mut before = number(w);
    loop {
        w.run_for(Duration::from_millis(20));
        let now = number(w);
        if now == before {
            return;
        }
        before = now;
    }
}

impl World<'_> {
    /// Whether all that was submitted has been accepted.
    #[must_use]
    pub fn accepted(&self, n: Node) -> bool {
        self[n].queue.is_empty()
    }

    /// Submits an operation, and gives its token.
    pub fn op(&mut self, n: Node, make: impl FnOnce(Token) -> Operation) -> Token {
        self.settle();
        let token = Token(self.next);
        self.next += 1;
        let operation = make(token);
        let seat = &mut self.seats[n];
        seat.ledger.open(&operation);
        seat.queue.push_back(operation);
        let endpoint = seat.endpoint.as_mut().expect("this endpoint was killed");
        endpoint.submit(&mut seat.queue);
        seat.flooded.extend(seat.queue.iter().filter_map(Operation::target));
        token
    }

    /// Submits an operation without the queue.
    pub fn try_op(
        &mut self,
        n: Node,
        make: impl FnOnce(Token) -> Operation,
    ) -> Result<Token, Full> {
        let token = Token(self.next);
        self.next += 1;
        let operation = make(token);
        let seat = &mut self.seats[n];
        seat.ledger.open(&operation);
        let endpoint = seat.endpoint.as_mut().expect("this endpoint was killed");
        let Err(Refused { operation, full }) = endpoint.try_submit(operation) else {
            return Ok(token);
        };
        assert_eq!(operation.token(), token, "another operation came back");
        seat.ledger.withdraw(token);
        seat.flooded.extend(operation.target());
        Err(full)
    }

    /// Submits operations until some are left in the queue. Their tokens.
    pub(crate) fn flood(
        &mut self,
        n: Node,
        most: usize,
        mut make: impl FnMut(usize, Token) -> Operation,
    ) -> Vec<Token> {
        let mut tokens = Vec::new();
        while self[n].queue.is_empty() && tokens.len() < most {
            for _ in 0..256 {
                let token = Token(self.next);
                self.next += 1;
                let operation = make(tokens.len(), token);
                tokens.push(token);
                let seat = &mut self.seats[n];
                seat.ledger.open(&operation);
                seat.queue.push_back(operation);
            }
            let Seat { endpoint, queue, flooded, .. } = &mut self.seats[n];
            endpoint.as_mut().expect("this endpoint was killed").submit(queue);
            flooded.extend(queue.iter().filter_map(Operation::target));
        }
        tokens
    }

    /// Waits for a completion.
    pub fn result(&mut self, n: Node, token: Token) -> Result<Done, OpError> {
        if !self[n].ledger.knows(token) {
            self.fail(&format!("{token:?} of {n} is awaited, and its result was taken before"));
        }
        self.until(&format!("{token:?} of {n} completes"), |w| w[n].ledger.result(token).is_some());
        self[n].ledger.take(token).expect("just seen")
    }

    /// Waits for a completion, which must be a success.
    pub fn ok(&mut self, n: Node, token: Token) -> Done {
        match self.result(n, token) {
            Ok(done) => done,
            Err(error) => self.fail(&format!("{token:?} of {n} failed: {error}")),
        }
    }

    /// Waits for a completion, which must be a failure.
    pub fn failure(&mut self, n: Node, token: Token) -> OpError {
        match self.result(n, token) {
            Ok(done) => self.fail(&format!("{token:?} of {n} did not fail: {done:?}")),
            Err(error) => error,
        }
    }

    /// Waits for a failure of the kind that `expected` accepts.
    pub fn fails(&mut self, n: Node, token: Token, expected: impl Fn(&OpErrorKind) -> bool) {
        let error = self.failure(n, token);
        if !expected(&error.kind) {
            self.fail(&format!("{token:?} of {n} failed with the wrong error: {error:?}"));
        }
    }

    /// Asks that an operation end.
    pub fn cancel(&mut self, n: Node, token: Token) {
        let seat = &mut self[n];
        // What was never accepted is the probe's own: hand it in first.
        let queue = &mut seat.queue;
        let endpoint = seat.endpoint.as_mut().expect("this endpoint was killed");
        let mut tries = 0;
        while !queue.is_empty() && tries < 100 {
            endpoint.submit(queue);
            tries += 1;
        }
        endpoint.cancel(token);
    }

    /// Injects, once.
    pub fn try_inject(&mut self, n: Node, peer: Peer, parts: &[&[u8]]) -> Result<(), InjectError> {
        let seat = &mut self[n];
        let result = seat.endpoint().inject(peer, parts);
        if result == Err(InjectError::Full) {
            seat.full.insert(peer);
        }
        result
    }

    /// Injects, after `Writable` as often as needed.
    pub fn inject(&mut self, n: Node, peer: Peer, message: &[u8]) {
        loop {
            match self.try_inject(n, peer, &[message]) {
                Ok(()) => return,
                Err(InjectError::Full) => {
                    let count = self[n].writable.len();
                    self.until("there is room again", |w| w[n].writable.len() > count);
                }
                Err(error) => self.fail(&format!("{n} could not inject: {error}")),
            }
        }
    }

    /// Submits a `Send`.
    pub fn send(&mut self, n: Node, peer: Peer, message: &[u8]) -> Token {
        let payload = Payload::Bytes(Bytes::copy_from_slice(message));
        let level = Level::Delivered;
        self.op(n, |token| Operation::Send { token, peer, payload, level })
    }

    /// Submits a `SendTagged`.
    pub fn send_tagged(&mut self, n: Node, peer: Peer, tag: u64, message: &[u8]) -> Token {
        let payload = Payload::Bytes(Bytes::copy_from_slice(message));
        let level = Level::Reusable;
        self.op(n, |token| Operation::SendTagged { token, peer, tag, payload, level })
    }

    /// Posts a receive.
    pub fn post(
        &mut self,
        n: Node,
        source: Option<Peer>,
        tag: u64,
        ignore: u64,
        into: &Slice,
    ) -> Token {
        let into = into.clone();
        self.op(n, |token| Operation::PostReceive { token, source, tag, ignore, into })
    }

    /// Looks for a message without a receive, and claims it if wanted.
    pub fn peek(
        &mut self,
        n: Node,
        source: Option<Peer>,
        tag: u64,
        ignore: u64,
        claim: bool,
    ) -> Option<Peeked> {
        let token = self.op(n, |token| Operation::Peek { token, source, tag, ignore, claim });
        match self.ok(n, token) {
            Done::Peeked(peeked) => peeked.map(|peeked| *peeked),
            other => self.fail(&format!("a peek gave {other:?}")),
        }
    }

    /// Receives a claimed message.
    pub fn receive_claimed(&mut self, n: Node, message: Claimed, into: &Slice) -> Token {
        let into = into.clone();
        self.op(n, |token| Operation::ReceiveClaimed { token, message, into })
    }

    /// Waits for a message.
    pub fn message(&mut self, n: Node) -> (Peer, Vec<u8>) {
        self.until("a message comes", |w| !w[n].messages.is_empty());
        self[n].messages.pop_front().expect("just seen")
    }

    /// Waits for a long message.
    pub fn long(&mut self, n: Node) -> (Peer, Vec<u8>, Body, u64) {
        self.until("a long message comes", |w| !w[n].longs.is_empty());
        self[n].longs.pop_front().expect("just seen")
    }

    /// Opens memory to others.
    pub fn expose(&mut self, n: Node, memory: &Slice, access: Access) -> (RegionId, Key) {
        let endpoint = self[n].endpoint();
        let region = endpoint.register(memory, access).expect("memory is registered");
        let key = endpoint.export(region).expect("a region is exported");
        (region, key)
    }

    /// Opens a part of a region to others.
    pub fn expose_part(
        &mut self,
        n: Node,
        region: RegionId,
        range: Range<u64>,
        access: Access,
    ) -> (KeyId, Key) {
        let made = self[n].endpoint().export_part(region, range, access);
        made.unwrap_or_else(|error| self.fail(&format!("a part was not exported: {error}")))
    }

    /// Imports a key, after a journey as bytes.
    pub fn import(&mut self, n: Node, key: &Key) -> Remote {
        let key = Key::from_bytes(key.as_bytes().to_vec()).expect("a key is short enough");
        let imported = self[n].endpoint().import(&key);
        imported.unwrap_or_else(|error| self.fail(&format!("a key was not imported: {error}")))
    }

    /// Submits a put of one piece.
    pub fn put(&mut self, n: Node, remote: Remote, offset: u64, from: &Slice) -> Token {
        self.put_at(n, remote, offset, from, Level::Visible)
    }

    /// The same, which completes at this level.
    pub fn put_at(
        &mut self,
        n: Node,
        remote: Remote,
        offset: u64,
        from: &Slice,
        level: Level,
    ) -> Token {
        let span = RemoteSpan { offset, len: from.len() as u64 };
        let local = from.clone();
        self.op(n, |token| Operation::Put {
            token,
            remote,
            local: smallvec![local],
            spans: smallvec![span],
            level,
            event: None,
        })
    }

    /// Submits a get of one piece.
    pub fn get(&mut self, n: Node, remote: Remote, offset: u64, into: &Slice) -> Token {
        let span = RemoteSpan { offset, len: into.len() as u64 };
        let local = into.clone();
        self.op(n, |token| Operation::Get {
            token,
            remote,
            local: smallvec![local],
            spans: smallvec![span],
        })
    }

    /// Closes a region and waits for it.
    pub fn deregister(&mut self, n: Node, region: RegionId) {
        let token = self.op(n, |token| Operation::Deregister {
            token,
            region,
            patience: Operation::PATIENCE,
        });
        self.ok(n, token);
    }

    /// Submits the end of a key to a part.
    pub fn revoke(&mut self, n: Node, key: KeyId) -> Token {
        let patience = Operation::PATIENCE;
        self.op(n, |token| Operation::Revoke { token, key, patience })
    }
}
