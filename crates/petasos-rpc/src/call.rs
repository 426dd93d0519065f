//! Calls to others: slots, credit, the answer.

use crate::{
    Bulk, CallError, Method,
    inner::{Body, Inner},
    peers::SELF,
    timers::Due,
};
use petasos_fabric::{Access, Address, LostReason, Peer, Region, RegionId, Slice};
use petasos_wire::{
    Encoding,
    rpc::{self, CallId, Remote, Request, Response, Status, Trace},
};
use slab::Slab;
use std::{
    cell::Cell,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

/// How a call is made; `Default` suits most.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CallOptions {
    /// Its time limit; none: the engine's. `Duration::MAX` is no limit.
    pub timeout: Option<Duration>,
    /// Which provider of the interface.
    pub provider: u16,
    /// How arguments and result are encoded.
    pub encoding: Encoding,
    /// Whether checksums guard request and response.
    pub checked: bool,
    /// The trace that it belongs to; else that of the current span begins, if traces are wanted.
    pub trace: Option<Trace>,
}

impl CallOptions {
    /// Sets the time limit.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> CallOptions {
        self.timeout = Some(timeout);
        self
    }

    /// Sets the provider.
    #[must_use]
    pub fn provider(mut self, provider: u16) -> CallOptions {
        self.provider = provider;
        self
    }

    /// Sets the encoding.
    #[must_use]
    pub fn encoding(mut self, encoding: Encoding) -> CallOptions {
        self.encoding = encoding;
        self
    }

    /// Asks for checksums.
    #[must_use]
    pub fn checked(mut self) -> CallOptions {
        self.checked = true;
        self
    }

    /// Makes it part of a trace.
    #[must_use]
    pub fn trace(mut self, trace: Option<Trace>) -> CallOptions {
        self.trace = trace;
        self
    }
}

/// Somebody to call: an address, and the peer found there. Cheap to clone; belongs to its engine.
///
/// When the peer is lost, its calls fail; the next call looks the address up again, so that a
/// server that was restarted there is found.
#[derive(Clone, Debug)]
pub struct Target {
    pub(crate) inner: Rc<Inner>,
    shared: Rc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: Address,
    peer: Cell<Option<Peer>>,
}

impl Target {
    pub(crate) fn new(inner: Rc<Inner>, address: Address) -> Target {
        Target { inner, shared: Rc::new(Shared { address, peer: Cell::new(None) }) }
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    /// Calls a method with bytes, gives bytes. `arguments` appends them to a buffer.
    ///
    /// The future need not be polled for the call to be under way. Dropping it cancels the call,
    /// here and at the target.
    pub fn call_raw(
        &self,
        method: Method,
        options: &CallOptions,
        arguments: impl FnOnce(Encoding, &mut Vec<u8>),
    ) -> Call {
        let started = self.inner.start(self, method, options, arguments);
        let (slot, failed) = match started {
            Ok(id) => (Some(id), None),
            Err(error) => (None, Some(error)),
        };
        let target = Rc::clone(&self.shared);
        Call { inner: Rc::clone(&self.inner), target, method: method.name, slot, failed }
    }

    /// Tells a method something; no answer comes. It is done at most once, and is dropped when
    /// the target is busy. An error means that it did not leave.
    pub fn notify_raw(
        &self,
        method: Method,
        options: &CallOptions,
        arguments: impl FnOnce(Encoding, &mut Vec<u8>),
    ) -> Result<(), CallError> {
        self.inner.tell(self, method, options, arguments)
    }

    /// Lends memory to a call of `method`.
    pub fn lend(&self, method: Method, memory: Slice, access: Access) -> Result<Bulk, CallError> {
        Bulk::new(&self.inner, &[memory], access).map_err(|error| CallError::Transfer {
            peer: self.shared.address.clone(),
            method: method.name,
            reason: error.to_string(),
        })
    }

    fn peer(&self, method: &Method) -> Result<Peer, CallError> {
        let inner = &self.inner;
        if let Some(peer) = self.shared.peer.get()
            && inner.peers.borrow_mut().get(peer).is_some()
        {
            return Ok(peer);
        }
        let address = &self.shared.address;
        let peer = if *address == inner.address {
            SELF
        } else {
            let resolved = inner.endpoint.borrow_mut().resolve(address, inner.config.patience);
            resolved.map_err(|error| CallError::Unresolved {
                peer: address.clone(),
                method: method.name,
                reason: error.to_string(),
            })?
        };
        let mut peers = inner.peers.borrow_mut();
        if peers.get(peer).is_none() {
            peers.add(peer, address.clone());
        }
        self.shared.peer.set(Some(peer));
        Ok(peer)
    }
}

/// A call under way: resolves to the bytes of the result.
///
/// Dropping it cancels the call: the target is told, and drops the handler's future. Whether the
/// handler had already done its work cannot be known then.
#[derive(Debug)]
#[must_use = "a call that is dropped is cancelled"]
pub struct Call {
    inner: Rc<Inner>,
    target: Rc<Shared>,
    method: &'static str,
    slot: Option<CallId>,
    failed: Option<CallError>,
}

impl Call {
    /// Polls for the undecoded result.
    pub(crate) fn poll_body(&mut self, context: &mut Context<'_>) -> Poll<Result<Body, CallError>> {
        let Some(id) = self.slot else {
            let error = self.failed.take().expect("a call is not polled after it ended");
            return Poll::Ready(Err(error));
        };
        let mut calls = self.inner.calls.borrow_mut();
        let slot = calls.get(id).expect("a call's slot lives as long as the call");
        match slot.outcome.take() {
            Some(outcome) => {
                slot.abandoned = true;
                calls.free_if_over(id);
                self.slot = None;
                Poll::Ready(outcome)
            }
            None => {
                match &mut slot.waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    none => *none = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    /// The peer and the method, for errors about the result.
    pub(crate) fn describe(&self) -> (Address, &'static str) {
        (self.target.address.clone(), self.method)
    }

    /// Cancels the call, here and at the target. The same as dropping it.
    pub fn cancel(self) {}
}

impl Future for Call {
    type Output = Result<Vec<u8>, CallError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_body(context).map_ok(|body| body.to_vec())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        if let Some(id) = self.slot {
            self.inner.abandon(id);
        }
    }
}

/// One call of ours.
#[derive(Debug)]
struct Slot {
    serial: u32,
    peer: Peer,
    method: Method,
    provider: u16,
    timeout: Duration,
    /// The request, while it waits for credit.
    queued: Option<Vec<u8>>,
    /// Whether the peer owes an answer: then the slot stays, and the credit is in use.
    owed: bool,
    /// Nobody waits for the outcome any more.
    abandoned: bool,
    outcome: Option<Result<Body, CallError>>,
    waker: Option<Waker>,
    /// Arguments that did not fit.
    lent: Option<RegionId>,
    started: Option<Instant>,
}

/// All calls of ours.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    slots: Slab<Slot>,
    serial: u32,
}

impl Calls {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    fn get(&mut self, id: CallId) -> Option<&mut Slot> {
        self.slots.get_mut(id.slot as usize).filter(|slot| slot.serial == id.generation)
    }

    /// Whether a deadline still matters.
    pub(crate) fn is_waiting(&self, slot: u32, serial: u32) -> bool {
        self.slots
            .get(slot as usize)
            .is_some_and(|s| s.serial == serial && s.outcome.is_none() && !s.abandoned)
    }

    fn free_if_over(&mut self, id: CallId) {
        if self.get(id).is_some_and(|slot| slot.abandoned && !slot.owed) {
            self.slots.remove(id.slot as usize);
        }
    }
}

impl Slot {
    fn finish(&mut self, outcome: Result<Body, CallError>) {
        if self.outcome.is_none() && !self.abandoned {
            self.outcome = Some(outcome);
            if let Some(waker) = &self.waker {
                waker.wake_by_ref();
            }
        }
    }
}

impl Inner {
    /// The frame of a request: with the arguments in it, or, if they do not fit, with the key to
    /// them and the region that was registered for them.
    fn frame(
        &self,
        request: &mut Request,
        peer: &Address,
        method: Method,
        arguments: impl FnOnce(Encoding, &mut Vec<u8>),
    ) -> Result<(Vec<u8>, Option<RegionId>), CallError> {
        let mut frame = self.buffer();
        request.encode(&mut frame);
        arguments(request.encoding, &mut frame);
        let mut lent = None;
        if frame.len() > self.max_frame {
            let body = Region::from_vec(frame.split_off(request.header_len()));
            let len = body.len() as u64;
            let lend = self.lend(&body.whole(), Access::READ);
            let (region, key) = lend.map_err(|error| CallError::Transfer {
                peer: peer.clone(),
                method: method.name,
                reason: error.to_string(),
            })?;
            lent = Some(region);
            frame.clear();
            request.overflow = true;
            request.encode(&mut frame);
            Remote { len, key: key.as_bytes() }.encode(&mut frame);
        }
        if request.checked {
            rpc::seal(&mut frame, request.header_len());
        }
        Ok((frame, lent))
    }

    fn start(
        self: &Rc<Self>,
        target: &Target,
        method: Method,
        options: &CallOptions,
        arguments: impl FnOnce(Encoding, &mut Vec<u8>),
    ) -> Result<CallId, CallError> {
        let peer = target.peer(&method)?;
        let timeout = options.timeout.unwrap_or(self.config.timeout);
        let mut calls = self.calls.borrow_mut();
        calls.serial = calls.serial.wrapping_add(1);
        let serial = calls.serial;
        let at = calls.slots.insert(Slot {
            serial,
            peer,
            method,
            provider: options.provider,
            timeout,
            queued: None,
            owed: false,
            abandoned: false,
            outcome: None,
            waker: None,
            lent: None,
            started: self.config.measure.then(Instant::now),
        });
        drop(calls);
        let id = CallId { slot: at as u32, generation: serial };
        let mut request = Request {
            one_way: false,
            encoding: options.encoding,
            checked: options.checked,
            overflow: false,
            trace: options.trace.or_else(|| crate::stats::begin_trace(&method, target.address())),
            provider: options.provider,
            call: id,
            method: method.id,
            signature: method.signature,
            left_us: left_us(timeout),
        };
        let framed = self.frame(&mut request, target.address(), method, arguments);
        let (frame, lent) = match framed {
            Ok(framed) => framed,
            Err(error) => {
                self.calls.borrow_mut().slots.remove(at);
                return Err(error);
            }
        };
        let send = {
            let (mut peers, mut calls) = (self.peers.borrow_mut(), self.calls.borrow_mut());
            let record = peers.get(peer).expect("`Target::peer` made a record");
            let slot = &mut calls.slots[at];
            slot.lent = lent;
            if record.waiting.is_empty() && record.outstanding < record.window {
                record.outstanding += 1;
                slot.owed = true;
                true
            } else if record.waiting.len() < self.config.queue_per_peer {
                record.waiting.push_back((id.slot, serial));
                false
            } else {
                calls.slots.remove(at);
                drop((peers, calls));
                lent.inspect(|region| self.deregister_later(*region));
                return Err(CallError::Busy {
                    peer: target.address().clone(),
                    method: method.name,
                    retry_after: self.config.retry_after,
                });
            }
        };
        if send {
            self.send_frame(peer, &[&frame]);
            self.recycle(frame);
        } else {
            self.calls.borrow_mut().slots[at].queued = Some(frame);
        }
        if timeout != Duration::MAX {
            self.timers.borrow_mut().add(timeout, Due::Call(id.slot, serial));
        }
        self.stats.borrow_mut().calls_made += 1;
        Ok(id)
    }

    fn tell(
        self: &Rc<Self>,
        target: &Target,
        method: Method,
        options: &CallOptions,
        arguments: impl FnOnce(Encoding, &mut Vec<u8>),
    ) -> Result<(), CallError> {
        let peer = target.peer(&method)?;
        let mut request = Request {
            one_way: true,
            encoding: options.encoding,
            checked: options.checked,
            overflow: false,
            trace: options.trace.or_else(|| crate::stats::begin_trace(&method, target.address())),
            provider: options.provider,
            call: CallId { slot: u32::MAX, generation: 0 },
            method: method.id,
            signature: method.signature,
            left_us: left_us(options.timeout.unwrap_or(self.config.timeout)),
        };
        let (frame, lent) = self.frame(&mut request, target.address(), method, arguments)?;
        if let Some(region) = lent {
            // Nobody would say when it has been fetched.
            let len = frame.len();
            self.deregister_later(region);
            return Err(CallError::TooLarge {
                peer: target.address().clone(),
                method: method.name,
                reason: format!(
                    "a one-way call takes at most {} bytes of arguments, these are {len}",
                    self.max_frame - request.header_len()
                ),
            });
        }
        let parked = self.peers.borrow_mut().get(peer).map_or(0, |record| record.parked.len());
        if parked >= self.config.queue_per_peer {
            return Err(CallError::Busy {
                peer: target.address().clone(),
                method: method.name,
                retry_after: self.config.retry_after,
            });
        }
        self.send_frame(peer, &[&frame]);
        self.recycle(frame);
        self.stats.borrow_mut().one_way_made += 1;
        Ok(())
    }

    /// Takes in an answer.
    pub(crate) fn take_response(self: &Rc<Self>, peer: Peer, response: &Response, body: Body) {
        let mut calls = self.calls.borrow_mut();
        let id = response.call;
        let Some(slot) = calls.get(id).filter(|slot| slot.peer == peer && slot.owed) else {
            drop(calls);
            self.stats.borrow_mut().garbage += 1;
            return;
        };
        slot.owed = false;
        let lent = slot.lent.take();
        let (method, provider) = (slot.method, slot.provider);
        let (abandoned, started) = (slot.abandoned, slot.started);
        let wanted = slot.outcome.is_none() && !abandoned;
        let fetching = response.overflow && wanted;
        if fetching {
            drop(calls);
            self.fetch_result(peer, id, method, body);
        } else {
            if wanted {
                let outcome = if response.status == Status::Ok {
                    Ok(body)
                } else {
                    let address = self.address_of(peer);
                    Err(refusal(response.status, &body, address, method, provider, slot.timeout))
                };
                slot.finish(outcome);
            }
            calls.free_if_over(id);
            drop(calls);
            if response.overflow {
                self.send_frame(peer, &[&rpc::release(id)]);
            }
        }
        if let Some(started) = started {
            self.stats.borrow_mut().record(method.name, started.elapsed());
        }
        if let Some(region) = lent {
            self.deregister_later(region);
        }
        if let Some(record) = self.peers.borrow_mut().get(peer) {
            record.window = u32::from(response.window.max(1));
        }
        // What is being fetched counts with the target until it is released.
        if !fetching {
            self.return_credit(peer);
        }
    }

    /// The peer has done with a call of ours: the next one may go.
    pub(crate) fn return_credit(self: &Rc<Self>, peer: Peer) {
        if let Some(record) = self.peers.borrow_mut().get(peer) {
            record.outstanding = record.outstanding.saturating_sub(1);
            if record.waiting.is_empty() {
                return;
            }
        }
        self.send_waiting(peer);
    }

    /// Completes a call whose result came by another way.
    pub(crate) fn finish_call(&self, id: CallId, outcome: Result<Body, CallError>) {
        let mut calls = self.calls.borrow_mut();
        if let Some(slot) = calls.get(id) {
            slot.finish(outcome);
            calls.free_if_over(id);
        }
    }

    /// Sends what waited for credit.
    fn send_waiting(&self, peer: Peer) {
        loop {
            let frame = {
                let (mut peers, mut calls) = (self.peers.borrow_mut(), self.calls.borrow_mut());
                let Some(record) = peers.get(peer) else { return };
                if record.outstanding >= record.window {
                    return;
                }
                let Some((slot, generation)) = record.waiting.pop_front() else { return };
                // A call that ended while it waited has no request any more.
                let Some(slot) = calls.get(CallId { slot, generation }) else { continue };
                let Some(frame) = slot.queued.take() else { continue };
                slot.owed = true;
                record.outstanding += 1;
                frame
            };
            self.send_frame(peer, &[&frame]);
            self.recycle(frame);
        }
    }

    fn abandon(&self, id: CallId) {
        let mut calls = self.calls.borrow_mut();
        let Some(slot) = calls.get(id) else { return };
        slot.abandoned = true;
        let finished = slot.outcome.take().is_some();
        slot.queued = None;
        let (peer, owed, lent) = (slot.peer, slot.owed, slot.lent.take());
        calls.free_if_over(id);
        drop(calls);
        if let Some(region) = lent {
            self.deregister_later(region);
        }
        if owed && !finished {
            self.stats.borrow_mut().calls_cancelled += 1;
            self.send_frame(peer, &[&rpc::cancel(id)]);
        }
    }

    pub(crate) fn call_is_late(&self, slot: u32, serial: u32) {
        let id = CallId { slot, generation: serial };
        let mut calls = self.calls.borrow_mut();
        let Some(slot) = calls.get(id) else { return };
        let (peer, owed, lent) = (slot.peer, slot.owed, slot.lent.take());
        slot.queued = None;
        let error = CallError::Deadline {
            peer: self.address_of(peer),
            method: slot.method.name,
            timeout: slot.timeout,
        };
        slot.finish(Err(error));
        drop(calls);
        if let Some(region) = lent {
            self.deregister_later(region);
        }
        if owed {
            self.send_frame(peer, &[&rpc::cancel(id)]);
        }
    }

    /// Ends the calls to a peer that is gone.
    pub(crate) fn end_calls(&self, peer: Peer, address: &Address, reason: &LostReason) {
        let mut lent = Vec::new();
        self.calls.borrow_mut().slots.retain(|_, slot| {
            if slot.peer != peer {
                return true;
            }
            (slot.owed, slot.queued) = (false, None);
            lent.extend(slot.lent.take());
            let method = slot.method.name;
            let (peer, reason) = (address.clone(), reason.clone());
            slot.finish(Err(CallError::PeerLost { peer, method, reason }));
            !slot.abandoned
        });
        lent.into_iter().for_each(|region| self.deregister_later(region));
    }

    pub(crate) fn end_all_calls(&self) {
        self.calls.borrow_mut().slots.retain(|_, slot| {
            (slot.owed, slot.queued) = (false, None);
            slot.finish(Err(CallError::EngineGone));
            !slot.abandoned
        });
    }

    pub(crate) fn address_of(&self, peer: Peer) -> Address {
        match self
            .peers
            .try_borrow_mut()
            .ok()
            .and_then(|mut p| p.get(peer).map(|r| r.address.clone()))
        {
            Some(address) => address,
            None => self.address.clone(),
        }
    }
}

/// The time left as it travels; 0 is none.
fn left_us(timeout: Duration) -> u32 {
    match u32::try_from(timeout.as_micros()) {
        Ok(micros) => micros.max(1),
        Err(_) => 0,
    }
}

/// The error behind a status.
fn refusal(
    status: Status,
    body: &[u8],
    peer: Address,
    method: Method,
    provider: u16,
    timeout: Duration,
) -> CallError {
    /// The longest text of a peer's that is passed on.
    const LONGEST: usize = 1024;
    let text = || String::from_utf8_lossy(&body[..body.len().min(LONGEST)]).into_owned();
    let (ours, method) = (method.signature, method.name);
    match status {
        Status::NoMethod => CallError::NoSuchMethod { peer, method },
        Status::NoProvider => CallError::NoSuchProvider { peer, method, provider },
        Status::Signature => {
            let theirs = body.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            CallError::SignatureMismatch { peer, method, ours, theirs }
        }
        Status::Busy => {
            let millis = body.first_chunk().map_or(1, |bytes| u32::from_le_bytes(*bytes));
            CallError::Busy { peer, method, retry_after: Duration::from_millis(millis.into()) }
        }
        Status::BadArguments => CallError::BadArguments { peer, method, reason: text() },
        Status::Deadline => CallError::Deadline { peer, method, timeout },
        Status::TooLarge => CallError::TooLarge { peer, method, reason: text() },
        Status::Cancelled => CallError::Cancelled { peer, method },
        Status::Failed | Status::Ok => CallError::Failed { peer, method, reason: text() },
    }
}
