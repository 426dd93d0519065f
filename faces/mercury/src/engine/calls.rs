//! Requests and responses: which handle they are of, and what becomes of them when a peer is lost.

use super::{
    Ask, BATCH, Engine, KEEP, LONGEST, MOST_LONG, MOST_REQUESTS, Outcome, PATIENCE, Pending, count,
};
use crate::{
    abi::{self, BUSY, CANCELED, Code, HOSTUNREACH, INVALID_ARG, MSGSIZE, NOENTRY, NOMEM, SUCCESS},
    address::AddrRef,
    handle::HandleRef,
    log::{Level, say},
    queue::{Arrived, Counted, Entry, Payload},
    wire::{self, Header},
};
use bytes::Bytes;
use petasos_fabric::{
    Address, Body, InjectError, Lease, Level as Arrival, LostReason, Operation, Payload as Data,
    Peer, Region, Slice, Token,
};
use std::sync::atomic::Ordering;

/// A call that waits for its response, or, if it has no response, until it is sent.
pub(super) struct Call {
    sequence: u64,
    handle: HandleRef,
    peer: Peer,
    /// What sends it, until that is over.
    sent: Option<Token>,
    no_response: bool,
    /// The rest of the response, while it arrives, with the code of the response.
    body: Option<(Token, Code)>,
}

/// A request whose body arrives.
pub(super) struct Incoming {
    peer: Peer,
    header: Header,
    message: Vec<u8>,
    region: Region,
    counted: Counted,
}

/// What a request is sent with.
pub(crate) struct Request<'a> {
    pub(crate) addr: &'a AddrRef,
    pub(crate) target: u8,
    pub(crate) origin: u8,
    pub(crate) id: u64,
    pub(crate) no_response: bool,
    /// Room for the header, and the payload.
    pub(crate) message: &'a mut [u8],
    pub(crate) body: Option<Slice>,
}

/// What became of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// It is on its way.
    Now,
    /// Its completion comes.
    Later(Token),
    /// Its peer is lost.
    Never,
    /// Too much waits for its peer already.
    Full,
}

impl Engine {
    /// Sends a request. Its one end is an entry of the handle's queue.
    ///
    /// # Errors
    /// If its address is none: then nothing was sent, and no entry comes.
    pub(crate) fn call(&mut self, handle: &HandleRef, request: Request<'_>) -> Result<u64, Code> {
        let Request { addr, target, origin, id, no_response, message, body } = request;
        let mut peer = self.peer_of(addr)?;
        let mut flags = if body.is_some() { wire::MORE } else { 0 };
        if no_response {
            flags |= wire::NO_RESPONSE;
        }
        let at = self.calls.vacant_key();
        let sequence = self.number(at);
        let header = Header::Request { flags, target, origin, id, sequence };
        message[..wire::LEN].copy_from_slice(&header.encode());
        count(&self.counters.req_sent);
        if body.is_some() {
            count(&self.counters.req_extra);
        }
        let what = || Pending::Request(sequence);
        let mut sent = self.send(peer, message, body.clone(), &what);
        if sent == Sent::Never {
            // Its successor may be there already.
            addr.forget_peer();
            peer = self.peer_of(addr)?;
            sent = self.send(peer, message, body, &what);
        }
        if no_response && matches!(sent, Sent::Now | Sent::Later(_)) {
            self.unsure.insert(peer);
        }
        let over = match sent {
            Sent::Now => no_response.then_some(SUCCESS),
            Sent::Later(_) => None,
            Sent::Never => Some(HOSTUNREACH),
            Sent::Full => Some(BUSY),
        };
        if let Some(code) = over {
            self.call_back(handle.clone(), Entry::Forward, code);
            return Ok(sequence);
        }
        let sent = if let Sent::Later(token) = sent { Some(token) } else { None };
        let handle = handle.clone();
        self.calls.insert(Call { sequence, handle, peer, sent, no_response, body: None });
        Ok(sequence)
    }

    /// Sends a response; true if the handle's entry comes.
    pub(crate) fn respond(
        &mut self,
        handle: &HandleRef,
        (peer, sequence): (Peer, u64),
        code: Code,
        message: &mut [u8],
        body: Option<Slice>,
    ) -> Result<bool, Code> {
        let flags = if body.is_some() { wire::MORE } else { 0 };
        let header = Header::Response { flags, code: wire::code(code), sequence };
        message[..wire::LEN].copy_from_slice(&header.encode());
        count(&self.counters.resp_sent);
        if body.is_some() {
            count(&self.counters.resp_extra);
        }
        match self.send(peer, message, body, &|| Pending::Response(handle.clone())) {
            Sent::Never => Err(HOSTUNREACH),
            Sent::Full => Err(BUSY),
            sent => {
                self.unsure.insert(peer);
                Ok(sent != Sent::Now)
            }
        }
    }

    /// A response without a payload, to a request that no handler gets. It is dropped if the peer
    /// leaves too many in its way.
    pub(crate) fn refuse(&mut self, peer: Peer, header: &Header, code: Code) {
        let Header::Request { flags, sequence, .. } = *header else { return };
        if flags & wire::NO_RESPONSE != 0 {
            return;
        }
        let mut message = [0; wire::LEN + wire::SUM];
        let answer = Header::Response { flags: 0, code: wire::code(code), sequence };
        message[..wire::LEN].copy_from_slice(&answer.encode());
        let sent = self.send(peer, &message, None, &|| Pending::Ignored);
        if matches!(sent, Sent::Now | Sent::Later(_)) {
            self.unsure.insert(peer);
        }
    }

    fn send(
        &mut self,
        peer: Peer,
        message: &[u8],
        body: Option<Slice>,
        what: &dyn Fn() -> Pending,
    ) -> Sent {
        self.touch();
        if self.backlog.is_full(peer) {
            return Sent::Full;
        }
        if let Some(body) = body {
            if self
                .endpoint
                .peer(peer)
                .is_none_or(|info| matches!(info.state, petasos_fabric::PeerState::Lost(_)))
            {
                return Sent::Never;
            }
            let token = self.token(what());
            let header = Bytes::copy_from_slice(message);
            self.submit(Operation::SendLong { token, peer, header, body });
            return Sent::Later(token);
        }
        if message.len() <= self.max_inject && !self.backlog.has(Some(peer)) {
            match self.endpoint.inject(peer, &[message]) {
                Ok(()) => return Sent::Now,
                Err(InjectError::PeerLost | InjectError::UnknownPeer) => return Sent::Never,
                Err(_) => {}
            }
        }
        let token = self.token(what());
        let payload = Data::Bytes(Bytes::copy_from_slice(message));
        let level = Arrival::Reusable;
        self.submit(Operation::Send { token, peer, payload, level });
        Sent::Later(token)
    }

    /// The peer at an address.
    fn peer_of(&mut self, addr: &AddrRef) -> Result<Peer, Code> {
        if let Some(peer) = addr.peer() {
            return Ok(peer);
        }
        self.touch();
        let resolved = self.endpoint.resolve_running(addr.url(), PATIENCE);
        let peer = resolved.map_err(|error| {
            say(Level::Error, "addr", || error.to_string());
            INVALID_ARG
        })?;
        addr.set_peer(peer);
        Ok(peer)
    }

    /// Ends a call.
    ///
    /// # Errors
    /// `HG_SUCCESS`, as it were: there is no such call, any more.
    fn take_call(&mut self, sequence: u64) -> Option<Call> {
        let at = sequence as u32 as usize;
        let call = self.calls.get(at).filter(|call| call.sequence == sequence);
        call.is_some().then(|| self.calls.remove(at))
    }

    pub(super) fn call_back(
        &mut self,
        handle: HandleRef,
        entry: fn(HandleRef, Code) -> Entry,
        code: Code,
    ) {
        let queue = handle.queue();
        self.push(&queue, entry(handle, code));
    }

    /// A call ends without a response.
    pub(super) fn fail(&mut self, sequence: u64, code: Code) {
        let Some(call) = self.take_call(sequence) else { return };
        if let Some((token, _)) = call.body {
            self.end(token);
        }
        self.call_back(call.handle, Entry::Forward, code);
    }

    /// `HG_Cancel`: the call, if there is one, ends now, and is sent no further. A response that
    /// comes later finds none.
    pub(crate) fn cancel(&mut self, sequence: u64) {
        let at = sequence as u32 as usize;
        let known = self.calls.get(at).filter(|call| call.sequence == sequence);
        let sent = known.and_then(|call| call.sent);
        self.fail(sequence, CANCELED);
        if let Some(token) = sent {
            self.end(token);
        }
    }

    /// What sends a call is over.
    pub(super) fn is_sent(&mut self, sequence: u64, code: Code) {
        let at = sequence as u32 as usize;
        let known = self.calls.get_mut(at).filter(|call| call.sequence == sequence);
        let Some(call) = known else { return };
        // Its number may be another operation's from now on.
        call.sent = None;
        if code != SUCCESS || call.no_response {
            self.fail(sequence, code);
        }
    }

    pub(super) fn message(&mut self, peer: Peer, message: Lease) {
        let Some((header, payload)) = Header::decode(&message) else {
            return say(Level::Warning, "rpc", || format!("{peer:?} sent what is no message"));
        };
        match header {
            Header::Response { flags: 0, code, sequence } => {
                let at = sequence as u32 as usize;
                let known = self.calls.get(at);
                let known = known.filter(|call| call.sequence == sequence && call.peer == peer);
                if known.is_none_or(|call| call.body.is_some() || call.no_response) {
                    return say(Level::Info, "rpc", || "a response to no call".to_owned());
                }
                let call = self.calls.remove(at);
                count(&self.counters.resp_recv);
                let code = match call.handle.take_output(payload, None) {
                    Ok(()) => u32::from(code),
                    Err(error) => error,
                };
                self.call_back(call.handle, Entry::Forward, code);
            }
            Header::Request { flags, .. } if flags & wire::MORE == 0 => {
                if message.len() > self.max_input {
                    return self.refuse(peer, &header, MSGSIZE);
                }
                let payload = match self.waiting.load(Ordering::Relaxed) < KEEP as u64 {
                    true => Payload::Lent(message),
                    false => Payload::Copied(message.to_vec()),
                };
                if matches!(payload, Payload::Copied(_)) {
                    count(&self.counters.copied);
                }
                self.request(peer, header, payload);
            }
            Header::Probe => {}
            _ => say(Level::Warning, "rpc", || format!("{peer:?} sent half a message")),
        }
    }

    /// A request is here. What is of no use is refused.
    fn request(&mut self, peer: Peer, header: Header, payload: Payload) {
        let Header::Request { target, .. } = header else { return };
        let source = self.source(peer);
        let queue = self.queues[usize::from(target)].clone();
        let refused = match (&source, &queue) {
            (None, _) => Some(HOSTUNREACH),
            (Some(source), _) if !self.listen && !source.is_self() => Some(abi::OPNOTSUPPORTED),
            (_, None) => Some(NOENTRY),
            _ if self.waiting.load(Ordering::Relaxed) >= MOST_REQUESTS as u64 => Some(BUSY),
            _ => None,
        };
        let (Some(source), Some(queue), None) = (source, queue, refused) else {
            return self.refuse(peer, &header, refused.unwrap_or(NOENTRY));
        };
        count(&self.counters.req_recv);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let arrived = Arrived { peer, source, header, payload };
        self.push(&queue, Entry::Request(Box::new(arrived)));
    }

    /// The address of a peer that sent something.
    fn source(&mut self, peer: Peer) -> Option<AddrRef> {
        if let Some(known) = self.sources.get(&peer) {
            return Some(known.clone());
        }
        let url = self.endpoint.peer(peer)?.address;
        let addr = AddrRef::new(self.class, url, self.address());
        addr.set_peer(peer);
        self.sources.insert(peer, addr.clone());
        Some(addr)
    }

    pub(super) fn long_message(&mut self, peer: Peer, header: Lease, body: Body, len: u64) {
        let (decoded, message) = match Header::decode(&header) {
            Some((decoded, _)) => (decoded, header.to_vec()),
            None => (Header::Probe, Vec::new()),
        };
        drop(header);
        match decoded {
            Header::Request { flags, .. } if flags & wire::MORE != 0 => {
                let room = if message.len() > self.max_input {
                    Err(MSGSIZE)
                } else if self.waiting.load(Ordering::Relaxed) >= MOST_REQUESTS as u64 {
                    Err(BUSY)
                } else {
                    self.room(len)
                };
                let (region, counted) = match room {
                    Ok(room) => room,
                    Err(code) => {
                        self.discard(body);
                        return self.refuse(peer, &decoded, code);
                    }
                };
                let into = region.whole();
                let incoming = Incoming { peer, header: decoded, message, region, counted };
                let token = self.token(Pending::RequestBody(Box::new(incoming)));
                self.submit(Operation::Receive { token, body, into });
            }
            Header::Response { flags: wire::MORE, code, sequence } => {
                let at = sequence as u32 as usize;
                let known = self.calls.get(at);
                let known = known.filter(|call| call.sequence == sequence && call.peer == peer);
                let known = known.filter(|call| call.body.is_none() && !call.no_response);
                let Some(call) = known else {
                    return self.discard(body);
                };
                let handle = call.handle.clone();
                let head = handle.take_output(&message[wire::LEN..], None);
                let (region, counted) = match head.and_then(|()| self.room(len)) {
                    Ok(room) => room,
                    Err(code) => {
                        // The last one may be the program's function's, which is not called here.
                        drop(handle);
                        self.discard(body);
                        return self.fail(sequence, code);
                    }
                };
                count(&self.counters.resp_recv);
                let into = region.whole();
                let token = self.token(Pending::ResponseBody { sequence, region, counted });
                self.calls[at].body = Some((token, u32::from(code)));
                self.submit(Operation::Receive { token, body, into });
            }
            _ => {
                say(Level::Warning, "rpc", || format!("{peer:?} sent what is no message"));
                self.discard(body);
            }
        }
    }

    /// Memory for a body of this length, counted.
    fn room(&mut self, len: u64) -> Result<(Region, Counted), Code> {
        if len > LONGEST || len == 0 {
            return Err(MSGSIZE);
        }
        let counted = Counted::new(&self.long, len, MOST_LONG).ok_or(NOMEM)?;
        // The length is what a peer says: that there is no such memory ends its call alone.
        let region = Region::try_zeroed(len as usize).map_err(|error| {
            say(Level::Warning, "rpc", || error.to_string());
            NOMEM
        })?;
        Ok((region, counted))
    }

    fn discard(&mut self, body: Body) {
        let token = self.token(Pending::Ignored);
        self.submit(Operation::Discard { token, body });
    }

    pub(super) fn request_is_here(&mut self, incoming: Incoming, is_whole: bool) {
        let Incoming { peer, header, message, region, counted } = incoming;
        if is_whole {
            self.request(peer, header, Payload::Long(message, region, counted));
        }
    }

    pub(super) fn response_is_here(&mut self, sequence: u64, region: Region, code: Code) {
        let Some(call) = self.take_call(sequence) else { return };
        let answered = call.body.map_or(SUCCESS, |(_, answered)| answered);
        let code = if code == SUCCESS { answered } else { code };
        call.handle.take_extra_output(region);
        self.call_back(call.handle, Entry::Forward, code);
    }

    pub(super) fn lost(&mut self, peer: Peer, reason: &LostReason) {
        say(Level::Info, "addr", || match self.endpoint.peer(peer) {
            Some(info) => format!("{}: {reason}", info.address),
            None => format!("{peer:?}: {reason}"),
        });
        if let Some(source) = self.sources.remove(&peer) {
            source.forget_peer();
        }
        self.unsure.remove(&peer);
        let of_it = self.calls.iter().filter(|(_, call)| call.peer == peer);
        let all: Vec<u64> = of_it.map(|(_, call)| call.sequence).collect();
        for sequence in all {
            self.fail(sequence, HOSTUNREACH);
        }
    }

    /// The program says that a peer is gone: what is known of it goes as well, unless calls to it
    /// are under way.
    pub(crate) fn forget(&mut self, addr: &AddrRef) {
        let Some(peer) = addr.peer() else { return };
        addr.forget_peer();
        if self.calls.iter().all(|(_, call)| call.peer != peer) {
            self.sources.remove(&peer);
            self.unsure.remove(&peer);
            self.touch();
            self.endpoint.forget(peer);
        }
    }

    /// Asks all peers to which something was sent that nothing confirms whether it has come.
    pub(crate) fn probe(&mut self) -> Vec<Outcome> {
        let peers: Vec<Peer> = self.unsure.drain().take(BATCH * BATCH).collect();
        let ask = |peer| {
            let (ask, outcome) = Ask::new();
            let payload = Data::Bytes(Bytes::copy_from_slice(&Header::Probe.encode()));
            let level = Arrival::Delivered;
            let token = self.token(Pending::Waited(ask.0));
            self.submit(Operation::Send { token, peer, payload, level });
            outcome
        };
        peers.into_iter().map(ask).collect()
    }

    /// Ends all calls, and gives up what is not called back: the class ends.
    pub(crate) fn finish(&mut self) -> Vec<HandleRef> {
        let calls = std::mem::take(&mut self.calls);
        let calls = calls.into_iter().map(|(_, call)| call.handle);
        let handle = |(_, what)| match what {
            Pending::Response(handle) => Some(handle),
            _ => None,
        };
        let sent = std::mem::take(&mut self.pending).into_iter().filter_map(handle);
        calls.chain(sent).collect()
    }

    /// An address, of this class.
    pub(crate) fn addr(&self, url: Address) -> AddrRef {
        AddrRef::new(self.class, url, self.address())
    }
}
