//! What callbacks leave: packets that have arrived, and operations that have ended.

use super::{Net, fixed::Fixed};
use crate::sys::{
    UCP_AM_RECV_ATTR_FLAG_DATA, UCP_AM_RECV_ATTR_FLAG_RNDV, UCS_INPROGRESS, UCS_OK,
    library::Library, ucp_am_recv_param, ucs_status_t,
};
use petasos_datagram::{Happened, Packet};
use petasos_fabric::{Slice, memory::copy_opaque};
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    ffi::c_void,
    ptr::NonNull,
};

/// Packets up to here are copied in the callback, so that the library's buffers go back at once.
const COPIED: usize = 512;

/// Where callbacks put what they report. It lies at a fixed place
/// ([`Fixed`](super::fixed::Fixed)), and lives as long as the worker.
///
/// Callbacks come on the thread that calls into the worker, which is one at a time.
pub(super) struct Landing {
    arrived: RefCell<VecDeque<Arrival>>,
    /// Packets that were copied, one behind the other.
    copies: RefCell<Vec<u8>>,
    /// Slots that are over, with what the library said.
    over: RefCell<VecDeque<(u32, ucs_status_t)>>,
    /// By slot, what the library passes to callbacks.
    slots: Vec<Waiting>,
    /// Of slots that were added.
    more: RefCell<Vec<Fixed<Waiting>>>,
    /// The longest packet that there can be.
    longest: usize,
    /// Whether a flush of the worker is under way.
    pub(super) flushing: Cell<bool>,
}

/// A packet that came.
#[derive(Clone, Copy)]
pub(super) enum Arrival {
    /// Among the copies, from here on, so long.
    Copied(usize, usize),
    /// In the library's memory, which is to be given back.
    Kept(NonNull<u8>, usize),
}

/// The packet that was given last.
#[derive(Clone, Copy)]
pub(super) enum Current {
    Nothing,
    Is(Arrival),
}

/// A slot, as the library knows it.
pub(super) struct Waiting {
    slot: u32,
    /// Callbacks that are to come, and one more while there may be others.
    left: Cell<u8>,
    status: Cell<ucs_status_t>,
    landing: Cell<*const Landing>,
    library: Cell<Option<&'static Library>>,
}

impl Waiting {
    fn new(slot: u32) -> Waiting {
        Waiting {
            slot,
            left: Cell::new(0),
            status: Cell::new(UCS_OK),
            landing: Cell::new(std::ptr::null()),
            library: Cell::new(None),
        }
    }
}

impl Landing {
    pub(super) fn new(slots: usize, longest: usize) -> Landing {
        Landing {
            arrived: RefCell::default(),
            copies: RefCell::default(),
            over: RefCell::default(),
            slots: (0..slots as u32).map(Waiting::new).collect(),
            more: RefCell::default(),
            longest,
            flushing: Cell::new(false),
        }
    }

    /// The landing lies at its fixed place.
    pub(super) fn settle(&self, library: &'static Library) {
        for slot in &self.slots {
            slot.landing.set(self);
            slot.library.set(Some(library));
        }
    }

    /// There are this many slots from now on.
    #[cold]
    pub(super) fn grow(&self, count: usize) {
        let first = &self.slots[0];
        let mut more = self.more.borrow_mut();
        for slot in self.slots.len() + more.len()..count {
            let waiting = Waiting::new(slot as u32);
            waiting.landing.set(first.landing.get());
            waiting.library.set(first.library.get());
            more.push(Fixed::new(waiting));
        }
    }

    /// Calls `what` with a slot's entry.
    #[inline]
    fn with<T>(&self, slot: u32, what: impl FnOnce(&Waiting) -> T) -> T {
        match self.slots.get(slot as usize) {
            Some(waiting) => what(waiting),
            None => what(&self.more.borrow()[slot as usize - self.slots.len()]),
        }
    }

    /// An operation on a slot begins. Returns what the library passes to its callbacks.
    /// [`Landing::ended`] is called when no more callbacks are added.
    pub(super) fn began(&self, slot: u32) -> *mut c_void {
        self.with(slot, |waiting| {
            waiting.left.set(1);
            waiting.status.set(UCS_OK);
            std::ptr::from_ref(waiting).cast_mut().cast()
        })
    }

    /// Another callback will come for this slot.
    pub(super) fn expect(&self, slot: u32) {
        self.with(slot, |waiting| waiting.left.set(waiting.left.get() + 1));
    }

    /// One callback less is to come, with this result.
    pub(super) fn ended(&self, slot: u32, status: ucs_status_t) {
        self.with(slot, |waiting| {
            if status != UCS_OK {
                waiting.status.set(status);
            }
            let left = waiting.left.get().saturating_sub(1);
            waiting.left.set(left);
            if left == 0 {
                self.over.borrow_mut().push_back((slot, waiting.status.get()));
            }
        });
    }

    fn has_any(&self) -> bool {
        !self.arrived.borrow().is_empty() || !self.over.borrow().is_empty()
    }

    fn arrive(&self, data: NonNull<u8>, len: usize, may_keep: bool) -> ucs_status_t {
        if may_keep && len > COPIED {
            self.arrived.borrow_mut().push_back(Arrival::Kept(data, len));
            return UCS_INPROGRESS;
        }
        let mut copies = self.copies.borrow_mut();
        let at = copies.len();
        copies.reserve(len);
        // SAFETY: the library's memory, so long, during the callback; room that was just reserved
        // and to which there is no reference, in which so many bytes are then initialised.
        unsafe {
            copy_opaque(data.as_ptr(), copies.as_mut_ptr().add(at), len);
            copies.set_len(at + len);
        }
        self.arrived.borrow_mut().push_back(Arrival::Copied(at, len));
        UCS_OK
    }
}

/// An active message came.
///
/// # Safety
/// Called by the library, as `ucp_am_recv_callback_t`, with the `Landing` that it was given.
pub(super) unsafe extern "C" fn came(
    landing: *mut c_void,
    _: *const c_void,
    header: usize,
    data: *mut c_void,
    len: usize,
    param: *const ucp_am_recv_param,
) -> ucs_status_t {
    // SAFETY: lies at a fixed place and outlives the worker; there are no exclusive references to
    // it.
    let landing = unsafe { &*landing.cast_const().cast::<Landing>() };
    // SAFETY: the library's, for the duration of the call.
    let attributes = unsafe { (*param).recv_attr };
    // Our endpoints send nothing that has to be fetched, or has a header of UCX's.
    let ours = attributes & UCP_AM_RECV_ATTR_FLAG_RNDV == 0 && header == 0;
    match NonNull::new(data.cast::<u8>()) {
        Some(data) if ours && len > 0 && len <= landing.longest => {
            landing.arrive(data, len, attributes & UCP_AM_RECV_ATTR_FLAG_DATA != 0)
        }
        _ => UCS_OK,
    }
}

/// An operation of a slot is over.
///
/// # Safety
/// Called by the library, as `ucp_send_nbx_callback_t`, with what [`Landing::began`] gave.
pub(super) unsafe extern "C" fn over(
    request: *mut c_void,
    status: ucs_status_t,
    waiting: *mut c_void,
) {
    // SAFETY: lies at a fixed place, with the landing, and outlives the worker; no exclusive
    // references exist.
    let waiting = unsafe { &*waiting.cast_const().cast::<Waiting>() };
    if let Some(library) = waiting.library.get() {
        // SAFETY: the request of this callback, given back once.
        unsafe { (library.ucp_request_free)(request) };
    }
    // SAFETY: set before the worker was told of it, and at a fixed place.
    unsafe { &*waiting.landing.get() }.ended(waiting.slot, status);
}

/// The most calls to the library's progress in one poll.
const STEPS: usize = 64;

impl Net {
    /// The next packet or completion, if there is one.
    #[inline]
    pub(super) fn next_happened(&mut self) -> Option<Happened> {
        self.let_go();
        if let Some(happened) = self.take() {
            return Some(happened);
        }
        self.drive();
        self.take()
    }

    /// Moves the library on, when everything of before was taken, until something has landed or
    /// nothing moves any more: a long message arrives in parts that are not reported, and an
    /// endpoint that sleeps after one is not woken for the next. False if it was not enough.
    #[inline]
    fn drive(&self) -> bool {
        self.worker.landing.copies.borrow_mut().clear();
        (0..STEPS).any(|_| !self.worker.progress() || self.has_landed())
    }

    #[inline]
    fn take(&mut self) -> Option<Happened> {
        let worker = &self.worker;
        let arrived = worker.landing.arrived.borrow_mut().pop_front();
        if let Some(arrival) = arrived {
            self.current = Current::Is(arrival);
            let (at, len) = match arrival {
                Arrival::Copied(at, len) => (at, len),
                Arrival::Kept(_, len) => (0, len),
            };
            return Some(Happened::Packet(Packet { buffer: 0, at, len }));
        }
        loop {
            let (slot, status) = self.worker.landing.over.borrow_mut().pop_front()?;
            if let Some((mark, _)) = self.slots.done(slot) {
                let result = if status == UCS_OK { Ok(()) } else { Err(i32::from(status)) };
                return Some(Happened::Done(mark, result));
            }
        }
    }

    /// Whether anything was reported that was not taken.
    pub(super) fn has_landed(&self) -> bool {
        self.worker.landing.has_any()
    }

    /// Whether there is something to take, or still arriving, after the library was polled.
    pub(super) fn look_again(&mut self) -> bool {
        if self.has_landed() {
            return true;
        }
        self.let_go();
        !self.drive() || self.has_landed()
    }

    /// Releases the packet that was returned last.
    #[inline]
    pub(super) fn let_go(&mut self) {
        if let Current::Is(Arrival::Kept(data, _)) =
            std::mem::replace(&mut self.current, Current::Nothing)
        {
            self.worker.release(data);
        }
    }

    /// Copies from the current packet; `None` if that is beyond its end.
    #[inline]
    pub(super) fn read_current(&self, at: usize, into: &mut [u8]) -> Option<()> {
        match self.current {
            Current::Is(Arrival::Copied(begin, len)) if is_within(at, into.len(), len) => {
                let copies = self.worker.landing.copies.borrow();
                into.copy_from_slice(&copies[begin + at..][..into.len()]);
                Some(())
            }
            Current::Is(Arrival::Kept(data, len)) if is_within(at, into.len(), len) => {
                // SAFETY: the library's memory, so long, until it is given back; ours to write, and
                // no part of that.
                unsafe { copy_opaque(data.as_ptr().add(at), into.as_mut_ptr(), into.len()) };
                Some(())
            }
            _ => None,
        }
    }

    /// The same, to memory that others may write.
    pub(super) fn copy_current(&self, at: usize, into: &Slice) -> usize {
        match self.current {
            Current::Is(Arrival::Copied(begin, len)) if is_within(at, into.len(), len) => {
                let copies = self.worker.landing.copies.borrow();
                into.write(0, &copies[begin + at..][..into.len()]);
                into.len()
            }
            Current::Is(Arrival::Kept(data, len)) if is_within(at, into.len(), len) => {
                assert!(into.is_writable(), "receiving into read-only memory");
                // SAFETY: the library's memory, so long, until it is given back; writable memory of
                // a region, as long, to which there are no references, and which is no part of the
                // library's.
                unsafe { copy_opaque(data.as_ptr().add(at), into.as_ptr(), into.len()) };
                into.len()
            }
            _ => 0,
        }
    }
}

/// Whether `len` bytes from `at` on are within so many.
fn is_within(at: usize, len: usize, of: usize) -> bool {
    at.checked_add(len).is_some_and(|end| end <= of)
}

impl Landing {
    /// The packets that were not taken, to be given back.
    pub(super) fn abandon(&self) -> Vec<NonNull<u8>> {
        let arrived = std::mem::take(&mut *self.arrived.borrow_mut());
        self.copies.borrow_mut().clear();
        let kept = |arrival| match arrival {
            Arrival::Kept(data, _) => Some(data),
            Arrival::Copied(..) => None,
        };
        arrived.into_iter().filter_map(kept).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::fixed::Fixed;

    /// What a worker is: it has the landing, and goes elsewhere after the library was told of it.
    struct Holder {
        landing: Fixed<Landing>,
    }

    fn packet(landing: *mut c_void, bytes: &mut [u8]) {
        let mut param = std::mem::MaybeUninit::<ucp_am_recv_param>::zeroed();
        // SAFETY: plain data, of which all zeroes are a value; as the library calls it.
        let status = unsafe {
            let param = param.as_mut_ptr();
            (*param).recv_attr = 0;
            came(landing, std::ptr::null(), 0, bytes.as_mut_ptr().cast(), bytes.len(), param)
        };
        assert_eq!(status, UCS_OK);
    }

    #[test]
    fn callbacks_find_the_landing_wherever_its_holder_went() {
        let landing = Fixed::new(Landing::new(2, 100));
        for slot in &landing.slots {
            slot.landing.set(landing.as_ptr());
        }
        let (to_landing, to_slot) = (landing.as_ptr().cast(), landing.began(1));
        landing.expect(1);
        let holder = std::rc::Rc::new(Some(Holder { landing }));
        packet(to_landing, &mut [1, 2, 3]);
        packet(to_landing, &mut [0; 101]);
        // SAFETY: as the library calls it, with what `began` gave.
        unsafe { over(std::ptr::null_mut(), UCS_OK, to_slot) };
        let Some(Holder { landing }) = &*holder else { panic!("it is there") };
        assert!(landing.over.borrow().is_empty(), "one of two has ended");
        landing.ended(1, UCS_OK);
        assert_eq!(*landing.over.borrow(), [(1, UCS_OK)]);
        assert!(matches!(landing.arrived.borrow_mut().pop_front(), Some(Arrival::Copied(0, 3))));
        assert!(landing.arrived.borrow().is_empty(), "longer than any");
    }

    #[test]
    fn slots_that_were_added_find_the_landing() {
        let landing = Fixed::new(Landing::new(2, 100));
        for slot in &landing.slots {
            slot.landing.set(landing.as_ptr());
        }
        landing.grow(4);
        let first = landing.began(3);
        landing.grow(100);
        landing.expect(3);
        // SAFETY: as the library calls it, with what `began` gave.
        unsafe { over(std::ptr::null_mut(), -3, first) };
        landing.ended(3, UCS_OK);
        assert_eq!(*landing.over.borrow(), [(3, -3)]);
    }
}
