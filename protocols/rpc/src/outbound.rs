//! Calls to peers: the request, credit, the answer, and every other way to end.

use crate::{
    CallError, CallOptions, Method, Target,
    body::Body,
    bulk::Lending,
    calls::{About, Answered, Ended, LentBy, Outcome},
    inner::Inner,
    peers::Record,
};
use petasos_fabric::{Access, Buffer, Lease, LostReason, Peer, Region, RegionId, Slice};
use petasos_wire::{
    Encoding,
    rpc::{self, CallId, Remote, Request, Response, Status},
};
use std::{rc::Rc, time::Duration};

impl Inner {
    /// Makes a call. The request is built in `frame`, which is empty. `arguments` appends the
    /// encoded arguments to it; long bytes at their end it may return instead.
    #[inline]
    pub(crate) fn start<'a>(
        &self,
        target: &Target,
        about: About,
        options: &CallOptions,
        mut frame: Vec<u8>,
        arguments: impl FnOnce(Encoding, &mut Vec<u8>) -> &'a [u8],
    ) -> Result<CallId, CallError> {
        let About { method, timeout, .. } = about;
        // Whether it is still connected shows when the request is sent.
        let peer = target.last_peer();
        let id = self.calls.borrow_mut().open(peer, about);
        if options.is_plain() && !crate::stats::traces() {
            let (method, left) = ((method.id, method.signature), left_us(timeout));
            rpc::encode_plain_request(&mut frame, method, options.provider, id, left);
        } else {
            encode_header(target, method, options, timeout, id, &mut frame);
        }
        let rest = arguments(options.encoding, &mut frame);
        if !rest.is_empty() && !options.checked && self.send_in_two(peer, &frame, rest) {
            self.note_call(method, id, None);
            self.frames.recycle(frame);
            self.stats.calls_made.count();
            return Ok(id);
        }
        frame.extend_from_slice(rest);
        if !self.frames.fits_inline(frame.len()) || options.checked || self.config.measure {
            self.prepare(target, method, id, options.checked, &mut frame)?;
        }
        let mut peers = self.peers.borrow_mut();
        match peers.get(peer) {
            Some(record) if record.has_credit() => {
                record.take_credit();
                self.send_request(record, &frame);
                self.frames.recycle(frame);
            }
            _ => {
                drop(peers);
                self.send_otherwise(target, method, id, frame)?;
            }
        }
        self.stats.calls_made.count();
        Ok(id)
    }

    /// Sends a request whose last bytes are not in the frame, if it needs nothing else. False if it
    /// does.
    #[cold]
    #[inline(never)]
    fn send_in_two(&self, peer: Peer, frame: &[u8], rest: &[u8]) -> bool {
        let mut peers = self.peers.borrow_mut();
        match peers.get(peer) {
            Some(record)
                if record.has_credit() && self.frames.fits_inline(frame.len() + rest.len()) =>
            {
                record.take_credit();
                self.transmit(record, &[frame, rest]);
                true
            }
            _ => false,
        }
    }

    /// Sends a request to a peer that has to be resolved first, or for which there is no credit
    /// now.
    #[cold]
    #[inline(never)]
    fn send_otherwise(
        &self,
        target: &Target,
        method: Method,
        id: CallId,
        frame: Vec<u8>,
    ) -> Result<(), CallError> {
        // The peer was lost while the arguments were encoded, by code that drove the engine: the
        // call has that outcome already.
        if !self.calls.borrow().is_waiting(id) {
            return Ok(());
        }
        let sent = target.peer(&method).and_then(|peer| {
            self.calls.borrow_mut().redirect(id, peer);
            let mut peers = self.peers.borrow_mut();
            match peers.get(peer) {
                Some(record) if record.has_credit() => {
                    record.take_credit();
                    self.send_request(record, &frame);
                    self.frames.recycle(frame);
                }
                Some(record) => {
                    if !record.queue_call(id, self.config.queue_per_peer) {
                        return Err(self.busy(target, &method));
                    }
                    self.calls.borrow_mut().queue(id, frame);
                }
                None => return Err(self.busy(target, &method)),
            }
            Ok(())
        });
        if sent.is_err() {
            let lent = self.calls.borrow_mut().close(id);
            self.close_lent(lent);
        }
        sent
    }

    /// Sends a request. Not inlined, so that the frame's address and length are passed in
    /// registers: read as one from memory, they would wait for the two stores that wrote them.
    #[inline(never)]
    fn send_request(&self, record: &mut Record, frame: &[u8]) {
        self.transmit(record, &[frame]);
    }

    /// Makes a one-way call.
    pub(crate) fn start_one_way(
        &self,
        target: &Target,
        method: &Method,
        options: &CallOptions,
        arguments: impl FnOnce(Encoding, &mut Vec<u8>),
    ) -> Result<(), CallError> {
        let peer = target.peer(method)?;
        let timeout = options.timeout.unwrap_or(self.config.timeout);
        let mut request = header(target, method, options, timeout, rpc::NO_CALL);
        request.one_way = true;
        let mut frame = self.frames.buffer();
        request.encode(&mut frame);
        arguments(options.encoding, &mut frame);
        if frame.len() > self.frames.max_len() {
            // It could be lent, but no answer would say when it has been fetched.
            let most = self.frames.max_len() - request.header_len();
            let len = frame.len() - request.header_len();
            let reason =
                format!("a one-way call takes at most {most} bytes of arguments, these are {len}");
            let peer = target.address().clone();
            return Err(CallError::TooLarge { peer, method: method.name, reason });
        }
        if request.checked {
            rpc::seal(&mut frame, request.header_len());
        }
        let mut peers = self.peers.borrow_mut();
        if let Some(record) = peers.get(peer) {
            if record.deferred_len() >= self.config.queue_per_peer {
                return Err(self.busy(target, method));
            }
            self.transmit(record, &[&frame]);
        }
        self.frames.recycle(frame);
        self.stats.one_way_made.count();
        Ok(())
    }

    /// What only few requests need: arguments that do not fit are lent, and the frame carries the
    /// key to them; a checksum; the time at which the call began.
    #[cold]
    #[inline(never)]
    fn prepare(
        &self,
        target: &Target,
        method: Method,
        id: CallId,
        checked: bool,
        frame: &mut Vec<u8>,
    ) -> Result<(), CallError> {
        let (header, mut lent) = (rpc::request_len(frame), None);
        if !self.frames.fits_inline(frame.len()) {
            match self.lend_arguments(header, frame) {
                Ok(region) => lent = Some(region),
                Err(reason) => {
                    self.calls.borrow_mut().close(id);
                    let (peer, method) = (target.address().clone(), method.name);
                    return Err(CallError::Transfer { peer, method, reason });
                }
            }
        }
        if checked {
            rpc::seal(frame, header);
        }
        self.note_call(method, id, lent);
        Ok(())
    }

    /// Notes what only few calls have: lent arguments, the time at which it began.
    fn note_call(&self, method: Method, id: CallId, lent: Option<RegionId>) {
        let method = self.config.measure.then_some(method.name);
        if lent.is_some() || method.is_some() {
            self.calls.borrow_mut().note(id, lent, method);
        }
    }

    /// Lends the arguments after the header, and puts the key to them in their place.
    fn lend_arguments(&self, header: usize, frame: &mut Vec<u8>) -> Result<RegionId, String> {
        let mut request = self.frames.buffer();
        request.extend_from_slice(&frame[..header]);
        let arguments = after_header(std::mem::replace(frame, request), header);
        let len = arguments.len() as u64;
        let lend = self.transport.export(&arguments, Access::READ);
        let (region, key) = lend.map_err(|error| error.to_string())?;
        rpc::set_overflow(frame);
        Remote { len, key: key.as_bytes() }.encode(frame);
        Ok(region)
    }

    fn busy(&self, target: &Target, method: &Method) -> CallError {
        let retry_after = self.config.retry_after;
        CallError::Busy { peer: target.address().clone(), method: method.name, retry_after }
    }

    /// Takes in an answer whose result begins at `start` in the message.
    #[inline]
    pub(crate) fn take_response(
        self: &Rc<Self>,
        peer: Peer,
        response: Response,
        message: &mut Lease,
        start: usize,
    ) {
        let Response { call, status, overflow, window, .. } = response;
        let mut calls = self.calls.borrow_mut();
        let Some(slot) = calls.awaited(peer, call).filter(|_| !overflow) else {
            drop(calls);
            let body = Body::kept(std::mem::take(message), start, &self.kept);
            return self.take_any_response(peer, response, body);
        };
        let waker = slot.answered(status, (message, start), (&self.kept, &self.main));
        drop(calls);
        if let Some(waker) = waker {
            waker.wake();
        }
        self.return_credit(peer, Some(window));
    }

    /// The same for answers to calls that are not plain, and for answers to no call.
    #[cold]
    fn take_any_response(self: &Rc<Self>, peer: Peer, response: Response, body: Body) {
        let id = response.call;
        let Some(answered) = self.calls.borrow_mut().answered(peer, id) else {
            self.stats.garbage.count();
            return;
        };
        let Answered { wanted, lent, started } = answered;
        if let Some((began, method)) = started {
            self.stats.record(method, began.elapsed());
        }
        self.close_lent(lent);
        if response.overflow && wanted {
            // The call counts at the target until its result is fetched and released.
            if let Some(record) = self.peers.borrow_mut().get(peer) {
                record.set_window(response.window);
            }
            return self.fetch_result(peer, id, body);
        }
        if response.overflow {
            self.send_frame(peer, &rpc::release(id));
        }
        if wanted {
            self.finish_answered(id, response.status, body);
        }
        self.return_credit(peer, Some(response.window));
    }

    /// The peer is done with a call of ours: the next one may be sent. It may have said how many it
    /// takes.
    #[inline(always)]
    pub(crate) fn return_credit(&self, peer: Peer, window: Option<u16>) {
        let mut peers = self.peers.borrow_mut();
        let Some(record) = peers.get(peer) else { return };
        if record.return_credit(window) {
            drop(peers);
            self.send_waiting(peer);
        }
    }

    /// Sends the calls that waited for credit.
    fn send_waiting(&self, peer: Peer) {
        let mut peers = self.peers.borrow_mut();
        while let Some(record) = peers.get(peer)
            && let Some(id) = record.next_queued_call()
        {
            // A call that ended while it waited has no request left.
            let Some(frame) = self.calls.borrow_mut().unqueue(id) else { continue };
            record.take_credit();
            self.transmit(record, &[&frame]);
            self.frames.recycle(frame);
        }
    }

    /// Completes a call with an answer.
    pub(crate) fn finish_answered(&self, id: CallId, status: Status, body: Body) {
        let ended = self.calls.borrow_mut().finish_answered(id, status, body);
        self.settle(ended);
    }

    /// Completes a call otherwise.
    pub(crate) fn finish_call(&self, id: CallId, outcome: Outcome) {
        let ended = self.calls.borrow_mut().finish(id, outcome);
        self.settle(ended);
    }

    /// The future of a call was dropped: its target is told.
    #[cold]
    #[inline(never)]
    pub(crate) fn abandon(&self, id: CallId) {
        let ended = self.calls.borrow_mut().abandon(id);
        if let Some(peer) = ended.owing {
            self.stats.calls_cancelled.count();
            self.send_frame(peer, &rpc::cancel(id));
        }
        self.settle(ended);
    }

    /// The time limit of a call has passed: its target is told.
    pub(crate) fn call_is_late(&self, slot: u32, serial: u32) {
        let id = CallId { slot, generation: serial };
        let ended = self.calls.borrow_mut().finish(id, Outcome::TooLate);
        if let Some(peer) = ended.owing {
            self.send_frame(peer, &rpc::cancel(id));
        }
        self.settle(ended);
    }

    /// Ends the calls to a peer that is lost.
    pub(crate) fn end_calls(&self, peer: Peer, reason: &LostReason) {
        let ended = self.calls.borrow_mut().end(Some(peer), || Outcome::PeerLost(reason.clone()));
        ended.into_iter().for_each(|ended| self.settle(ended));
    }

    /// Ends all calls.
    pub(crate) fn end_all_calls(&self) {
        let ended = self.calls.borrow_mut().end(None, || Outcome::EngineEnded);
        ended.into_iter().for_each(|ended| self.settle(ended));
    }

    /// Has the memory closed when the call has ended to which it is lent: at once if it has, or was
    /// not sent.
    pub(crate) fn lend_to(&self, call: Option<CallId>, memory: &[Rc<Lending>]) {
        let mut calls = self.calls.borrow_mut();
        if !call.is_some_and(|call| calls.lend(call, memory)) {
            drop(calls);
            memory.iter().for_each(|lending| self.close_lending(lending));
        }
    }

    /// Closes what a call has lent.
    fn close_lent(&self, lent: LentBy) {
        let LentBy { arguments, memory } = lent;
        if let Some(region) = arguments {
            self.deregister(region);
        }
        memory.iter().for_each(|lending| self.close_lending(lending));
    }

    /// Tells the owner of memory that this side is done with it.
    pub(crate) fn give_back(&self, owner: Peer, key: &[u8]) {
        // A record, so that the frame can wait for room.
        if self.ensure_peer(owner) {
            self.send_parts(owner, &[&rpc::give_back(), key]);
        }
    }

    /// What is left to do for a call that ended.
    #[inline]
    fn settle(&self, ended: Ended) {
        self.close_lent(ended.lent);
        if let Some(waker) = ended.wake {
            waker.wake();
        }
    }
}

/// The bytes of a frame after its header, as memory that can be lent.
pub(crate) fn after_header(frame: Vec<u8>, header: usize) -> Slice {
    let len = frame.len() - header;
    let region = Region::from_buffer(Buffer::from(frame));
    region.slice(header, len).expect("a header is a part of its frame")
}

/// Appends the header of a request that is not plain.
#[cold]
#[inline(never)]
fn encode_header(
    target: &Target,
    method: Method,
    options: &CallOptions,
    timeout: Duration,
    call: CallId,
    frame: &mut Vec<u8>,
) {
    header(target, &method, options, timeout, call).encode(frame);
}

/// The header of a request.
#[inline]
fn header(
    target: &Target,
    method: &Method,
    options: &CallOptions,
    timeout: Duration,
    call: CallId,
) -> Request {
    Request {
        one_way: false,
        encoding: options.encoding,
        checked: options.checked,
        overflow: false,
        trace: options.trace.or_else(|| crate::stats::begin_trace(method, target.address())),
        provider: options.provider,
        call,
        method: method.id,
        signature: method.signature,
        left_us: left_us(timeout),
    }
}

/// The time left, as it is encoded: 0 means no limit.
#[inline]
fn left_us(timeout: Duration) -> u32 {
    /// Whole seconds whose microseconds fit.
    const MOST: u64 = u32::MAX as u64 / 1_000_000 - 1;
    match timeout.as_secs() {
        seconds @ 0..=MOST => (seconds as u32 * 1_000_000 + timeout.subsec_micros()).max(1),
        _ => 0,
    }
}
