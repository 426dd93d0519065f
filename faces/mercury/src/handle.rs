//! Handles: one allocation for both layers, with its own buffers, which are used again.

use crate::{
    abi::{
        Cb, Code, CoreCb, MSGSIZE, hg_context, hg_core_context, hg_core_handle, hg_core_info,
        hg_handle, hg_info, hg_proc,
    },
    address::AddrRef,
    class::{Class, Context, Rpc, Shared, free_data, lock},
    queue::{Arg, Arrived, Payload, Queue},
    wire::{self, Header},
};
use petasos_fabric::{Peer, Region};
use std::{
    mem::offset_of,
    ptr::{self, NonNull},
    sync::{
        Arc,
        atomic::{AtomicI32, AtomicU8, AtomicU64, AtomicUsize, Ordering, fence},
    },
};

/// Handles of requests that are kept to be used again.
const SPARE: usize = 512;

/// Nothing is under way.
pub(crate) const IDLE: u8 = 0;
/// A request or a response is, or its callback waits.
pub(crate) const BUSY_NOW: u8 = 1;

/// Whom to call back.
#[derive(Clone, Copy)]
pub(crate) enum Callback {
    None,
    Upper(Cb, Arg),
    Core(CoreCb, Arg),
}

impl Callback {
    /// Whether there is anybody.
    pub(crate) fn is_some(&self) -> bool {
        match self {
            Callback::None => false,
            Callback::Upper(callback, _) => callback.is_some(),
            Callback::Core(callback, _) => callback.is_some(),
        }
    }
}

/// A handle. The first parts are what programs see, the core layer's first.
///
/// One thread at a time changes it: the program's while nothing is under way, as Mercury has it,
/// and the engine's when a response comes, which the program then waits for.
#[repr(C)]
pub(crate) struct Handle {
    pub(crate) core: hg_core_handle,
    pub(crate) hg: hg_handle,
    refs: AtomicI32,
    pub(crate) state: AtomicU8,
    pub(crate) shared: Arc<Shared>,
    queue: Arc<Queue>,
    of_context: Arc<AtomicUsize>,
    pub(crate) rpc: Option<Arc<Rpc>>,
    pub(crate) addr: Option<AddrRef>,
    pub(crate) in_proc: hg_proc,
    pub(crate) out_proc: hg_proc,
    pub(crate) forward: Callback,
    pub(crate) respond: Callback,
    /// The last call.
    pub(crate) sequence: AtomicU64,
    /// Whom to answer.
    pub(crate) reply: Option<(Peer, u64)>,
    /// What did not fit into the buffers.
    pub(crate) in_extra: Option<Region>,
    pub(crate) out_extra: Option<Region>,
    /// Of a request that came.
    pub(crate) is_target: bool,
    pub(crate) responded: bool,
    _memory: (Box<[u64]>, Box<[u64]>),
}

/// A handle without references.
pub(crate) struct HandlePtr(NonNull<Handle>);

// SAFETY: no other reference is left.
unsafe impl Send for HandlePtr {}

impl HandlePtr {
    /// Frees it, and what the program has put there.
    pub(crate) fn free(self) {
        // SAFETY: it came of a box, and no other reference is left.
        let handle = unsafe { Box::from_raw(self.0.as_ptr()) };
        free_data(handle.hg.data, handle.hg.data_free);
        free_data(handle.core.data, handle.core.data_free);
    }
}

/// A reference to a handle, counted.
pub(crate) struct HandleRef(NonNull<Handle>);

// SAFETY: the count is atomic; what is behind it is changed by one thread at a time, as `Handle`
// says.
unsafe impl Send for HandleRef {}

fn buffer(len: usize) -> (Box<[u64]>, *mut u8) {
    let mut memory = vec![0u64; len.div_ceil(8)].into_boxed_slice();
    let at = memory.as_mut_ptr().cast();
    (memory, at)
}

impl HandleRef {
    /// A new handle.
    ///
    /// # Safety
    /// The context is one of [`Context::open`], and stays while there are handles of it.
    pub(crate) unsafe fn new(context: *mut Context) -> Result<HandleRef, Code> {
        // SAFETY: the caller's promise.
        let (shared, queue, handles) = unsafe {
            let context = &*context;
            (context.shared.clone(), context.queue.clone(), context.handles.clone())
        };
        let class: *mut Class = shared.class();
        // SAFETY: the class outlives its contexts.
        let (sizes, core_class) = unsafe { ((*class).sizes(), &raw mut (*class).core) };
        let (in_memory, in_buf) = buffer(sizes.0);
        let (out_memory, out_buf) = buffer(sizes.1);
        let hash = if shared.settings.sum_payload { 1 } else { 3 };
        let (none, class) = (ptr::null_mut(), class.cast());
        // SAFETY: the pointer is computed within the context.
        let core_context: *mut hg_core_context = unsafe { &raw mut (*context).core };
        let core = hg_core_handle {
            info: hg_core_info {
                core_class,
                context: core_context,
                addr: ptr::null_mut(),
                id: 0,
                context_id: 0,
            },
            rpc_info: ptr::null(),
            data: none,
            data_free: None,
            in_buf: in_buf.cast(),
            out_buf: out_buf.cast(),
            in_buf_size: sizes.0,
            out_buf_size: sizes.1,
            na_in_header_offset: wire::NA,
            na_out_header_offset: wire::NA,
            in_buf_used: 0,
            out_buf_used: 0,
        };
        let info = hg_info {
            hg_class: class,
            context: context.cast::<hg_context>(),
            addr: ptr::null_mut(),
            id: 0,
            context_id: 0,
        };
        handles.fetch_add(1, Ordering::AcqRel);
        let handle = Box::new(Handle {
            core,
            hg: hg_handle { info, core_handle: ptr::null_mut(), data: none, data_free: None },
            refs: AtomicI32::new(1),
            state: AtomicU8::new(IDLE),
            in_proc: hg_proc::new(class, hash),
            out_proc: hg_proc::new(class, hash),
            shared,
            queue,
            of_context: handles,
            rpc: None,
            addr: None,
            forward: Callback::None,
            respond: Callback::None,
            sequence: AtomicU64::new(u64::MAX),
            reply: None,
            in_extra: None,
            out_extra: None,
            is_target: false,
            responded: false,
            _memory: (in_memory, out_memory),
        });
        let raw = Box::into_raw(handle);
        // SAFETY: it was made just now.
        unsafe {
            (*raw).hg.core_handle = raw.cast();
            (*raw).in_proc.set_handle(&raw mut (*raw).hg);
            (*raw).out_proc.set_handle(&raw mut (*raw).hg);
            let handle = HandleRef(NonNull::new_unchecked(raw));
            handle.tell_created()?;
            Ok(handle)
        }
    }

    /// Calls what the program wants called with each new handle.
    ///
    /// # Safety
    /// There is no other reference to the handle.
    unsafe fn tell_created(&self) -> Result<(), Code> {
        // SAFETY: the functions are the program's, for this. They are called without a lock.
        unsafe {
            let shared = (*self.raw()).shared.clone();
            let (upper, arg) = *lock(&shared.on_create);
            let code = upper.map_or(0, |upper| upper(&raw mut (*self.raw()).hg, arg.0));
            if code != 0 {
                return Err(code);
            }
            let (core, arg) = *lock(&shared.core_on_create);
            let code = core.map_or(0, |core| core(self.raw().cast(), arg.0));
            if code == 0 { Ok(()) } else { Err(code) }
        }
    }

    /// The handle for a request that came: one that was used before, or a new one.
    ///
    /// # Errors
    /// What the program's function for new handles says.
    ///
    /// # Safety
    /// As [`HandleRef::new`].
    pub(crate) unsafe fn of_request(
        context: *mut Context,
        arrived: Arrived,
    ) -> Result<HandleRef, Code> {
        // SAFETY: the caller's promise.
        let shared = unsafe { (*context).shared.clone() };
        let spare = lock(&shared.spare).pop();
        let handle = match spare {
            // SAFETY: the caller's promise.
            None => unsafe { HandleRef::new(context)? },
            Some(HandlePtr(spare)) => {
                // SAFETY: no other reference is left, and the context lives.
                unsafe {
                    let handle = &mut *spare.as_ptr();
                    let context = &*context;
                    handle.refs.store(1, Ordering::Relaxed);
                    handle.of_context = context.handles.clone();
                    handle.queue = context.queue.clone();
                    context.handles.fetch_add(1, Ordering::AcqRel);
                    handle.core.info.context = (&raw const context.core).cast_mut();
                    handle.hg.info.context = (&raw const context.hg).cast_mut();
                }
                HandleRef(spare)
            }
        };
        let Arrived { peer, source, header, payload } = arrived;
        let Header::Request { flags, origin, id, sequence, .. } = header else {
            unreachable!("only requests arrive");
        };
        // SAFETY: this thread is the only one that has the handle.
        let inner = unsafe { &mut *handle.raw() };
        inner.is_target = true;
        inner.responded = flags & wire::NO_RESPONSE != 0;
        inner.reply = Some((peer, sequence));
        inner.set_target(Some(source), id, inner.shared.rpc(id));
        (inner.core.info.context_id, inner.hg.info.context_id) = (origin, origin);
        let message = payload.message();
        let len = message.len().min(inner.core.in_buf_size);
        // SAFETY: the buffer has so many bytes, and is no part of the message.
        unsafe { ptr::copy_nonoverlapping(message.as_ptr(), inner.core.in_buf.cast(), len) };
        inner.core.in_buf_used = len;
        let whole = len == message.len();
        inner.in_extra = match payload {
            Payload::Long(_, region, counted) => {
                // Here it is the handle's.
                drop(counted);
                Some(region)
            }
            _ => None,
        };
        if whole { Ok(handle) } else { Err(MSGSIZE) }
    }

    pub(crate) fn raw(&self) -> *mut Handle {
        self.0.as_ptr()
    }

    /// The queue of its context.
    pub(crate) fn queue(&self) -> Arc<Queue> {
        // SAFETY: it lives, and the queue is changed only when the handle has no references.
        unsafe { (*self.raw()).queue.clone() }
    }

    /// The pointer for C, which is a reference from now on.
    pub(crate) fn into_raw(self) -> *mut Handle {
        let raw = self.raw();
        std::mem::forget(self);
        raw
    }

    /// The reference that C gives back.
    ///
    /// # Safety
    /// It is one of [`HandleRef::into_raw`], or counted by [`HandleRef::count`].
    pub(crate) unsafe fn from_raw(raw: *mut Handle) -> Option<HandleRef> {
        NonNull::new(raw).map(HandleRef)
    }

    /// Another reference to a handle that C has.
    ///
    /// # Safety
    /// C has one.
    pub(crate) unsafe fn borrow(raw: *mut Handle) -> Option<HandleRef> {
        // SAFETY: the caller's promise; the reference is not given up here.
        let given = std::mem::ManuallyDrop::new(unsafe { HandleRef::from_raw(raw) }?);
        Some(HandleRef::clone(&given))
    }

    /// Adds a reference that C has.
    pub(crate) fn count(&self) {
        std::mem::forget(self.clone());
    }

    pub(crate) fn refs(&self) -> i32 {
        // SAFETY: it lives.
        unsafe { (*self.raw()).refs.load(Ordering::Acquire) }
    }

    /// Whom to call back when the call, or else the response, is over.
    pub(crate) fn callback(&self, is_forward: bool) -> Callback {
        // SAFETY: it lives, and its entry is in a queue: until that is taken out it is not changed.
        unsafe { if is_forward { (*self.raw()).forward } else { (*self.raw()).respond } }
    }

    /// A response is here.
    ///
    /// # Errors
    /// [`MSGSIZE`] if it is longer than what the handle has for it.
    pub(crate) fn take_output(&self, payload: &[u8], extra: Option<Region>) -> Result<(), Code> {
        // SAFETY: the program waits for the response, and leaves its place alone meanwhile; this is
        // the engine's thread, under its lock.
        unsafe {
            let handle = self.raw();
            let used = wire::LEN + payload.len();
            if used > (*handle).core.out_buf_size {
                return Err(MSGSIZE);
            }
            let at = (*handle).core.out_buf.cast::<u8>().add(wire::LEN);
            ptr::copy_nonoverlapping(payload.as_ptr(), at, payload.len());
            (*handle).core.out_buf_used = used;
            (*handle).out_extra = extra;
        }
        Ok(())
    }

    pub(crate) fn take_extra_output(&self, region: Region) {
        // SAFETY: as in `take_output`.
        unsafe { (*self.raw()).out_extra = Some(region) };
    }
}

impl Handle {
    /// The handle of a pointer of the upper layer.
    pub(crate) fn of_hg(hg: *mut hg_handle) -> *mut Handle {
        if hg.is_null() {
            return ptr::null_mut();
        }
        hg.wrapping_byte_sub(offset_of!(Handle, hg)).cast()
    }

    /// Its context.
    pub(crate) fn context(&self) -> *mut Context {
        Context::of_core(self.core.info.context)
    }

    /// Where its requests go, and which they are.
    pub(crate) fn set_target(&mut self, addr: Option<AddrRef>, id: u64, rpc: Option<Arc<Rpc>>) {
        let raw = addr.as_ref().map_or(ptr::null_mut(), AddrRef::as_raw);
        self.core.rpc_info = rpc.as_ref().map_or(ptr::null(), |rpc| &raw const rpc.core);
        (self.core.info.addr, self.hg.info.addr) = (raw, raw);
        (self.core.info.id, self.hg.info.id) = (id, id);
        (self.core.info.context_id, self.hg.info.context_id) = (0, 0);
        (self.rpc, self.addr) = (rpc, addr);
    }

    /// What the last use has left is forgotten.
    pub(crate) fn clear(&mut self) {
        (self.forward, self.respond) = (Callback::None, Callback::None);
        (self.in_extra, self.out_extra, self.reply) = (None, None, None);
        (self.core.in_buf_used, self.core.out_buf_used) = (0, 0);
        self.sequence.store(u64::MAX, Ordering::Relaxed);
        self.responded = false;
        self.state.store(IDLE, Ordering::Release);
    }
}

impl Clone for HandleRef {
    fn clone(&self) -> HandleRef {
        // SAFETY: it lives.
        unsafe { (*self.raw()).refs.fetch_add(1, Ordering::Relaxed) };
        HandleRef(self.0)
    }
}

impl Drop for HandleRef {
    fn drop(&mut self) {
        // SAFETY: it lives while there is a reference.
        let refs = unsafe { (*self.raw()).refs.fetch_sub(1, Ordering::Release) };
        if refs != 1 {
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: this was the last reference.
        let handle = unsafe { &mut *self.raw() };
        handle.of_context.fetch_sub(1, Ordering::AcqRel);
        if handle.is_target {
            handle.clear();
            handle.set_target(None, 0, None);
            let shared = handle.shared.clone();
            let mut spare = lock(&shared.spare);
            if spare.len() < SPARE {
                return spare.push(HandlePtr(self.0));
            }
        }
        HandlePtr(self.0).free();
    }
}
