//! Nodes, memory that is opened to them, and leave to reach theirs.

use super::{
    Net, Worker,
    objects::{Context, made},
};
use crate::sys::{
    UCP_EP_CLOSE_FLAG_FORCE, UCP_EP_PARAM_FIELD_ERR_HANDLER, UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
    UCP_EP_PARAM_FIELD_REMOTE_ADDRESS, UCP_ERR_HANDLING_MODE_NONE, UCP_ERR_HANDLING_MODE_PEER,
    UCP_MEM_MAP_PARAM_FIELD_ADDRESS, UCP_MEM_MAP_PARAM_FIELD_LENGTH, UCP_OP_ATTR_FIELD_FLAGS,
    ucp_ep, ucp_ep_params, ucp_err_handler, ucp_mem, ucp_mem_map_params, ucp_rkey, ucs_status_t,
};
use petasos_datagram::{Node, slots::copy_payload};
use petasos_fabric::{Region, Slice, two_sided::Outgoing};
use std::{
    ffi::c_void,
    mem::MaybeUninit,
    ptr::{self, NonNull},
    sync::{Arc, Weak},
};

/// What lies behind what a peer says, for the library is told no length, and reads until it finds an end: each of these
/// bytes is the last of any list, of one that is as long as its length can say.
static SLACK: [u8; 32 << 10] = [0xff; 32 << 10];

/// What is kept while an operation is under way.
pub(super) enum Held {
    /// Nothing but the slot's own buffer.
    Nothing,
    /// What is sent, and the list of its pieces.
    Payload(
        #[expect(dead_code, reason = "held for the library")] Outgoing,
        #[expect(dead_code, reason = "held for the library")] Pieces,
    ),
    /// What is read or written, and by which leave.
    Memory(
        #[expect(dead_code, reason = "held for the library")] Slice,
        #[expect(dead_code, reason = "held for the library")] Key,
    ),
}

/// A list of pieces, at a fixed place: a vector, as pointers into a box end where it is moved.
pub(super) struct Pieces(pub(super) Vec<crate::sys::ucp_dt_iov>);

/// Leave to reach memory of a node.
#[derive(Clone)]
pub struct Key(Arc<Unpacked>);

struct Unpacked {
    rkey: NonNull<ucp_rkey>,
    base: u64,
    /// Gone, it took the key with it.
    worker: Weak<Worker>,
}

// SAFETY: used by the thread that drives the worker.
unsafe impl Send for Unpacked {}
// SAFETY: as above; what is shared is read only.
unsafe impl Sync for Unpacked {}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Key({:#x})", self.0.base)
    }
}

impl Key {
    /// The library's key, and where the memory lies there.
    pub(super) fn parts(&self) -> (*mut ucp_rkey, u64) {
        (self.0.rkey.as_ptr(), self.0.base)
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.upgrade()
            && worker.context.is_here()
        {
            // SAFETY: unpacked for this worker, destroyed once; operations hold the key until they are over.
            unsafe { (worker.library.ucp_rkey_destroy)(self.rkey.as_ptr()) };
        }
    }
}

/// Memory that was opened: closed when dropped, and held until then.
pub struct Opened {
    memh: NonNull<ucp_mem>,
    memory: Slice,
    /// Where it lies, and the library's key.
    place: Vec<u8>,
    context: Arc<Context>,
}

// SAFETY: its context was opened for several threads.
unsafe impl Send for Opened {}

impl Opened {
    pub(super) fn place(&self) -> &[u8] {
        &self.place
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.context.is_here() {
            return;
        }
        // SAFETY: mapped in this context, unmapped once.
        let status = unsafe {
            (self.context.library.ucp_mem_unmap)(self.context.context.as_ptr(), self.memh.as_ptr())
        };
        if status != crate::sys::UCS_OK {
            // It may still be reached: then it stays, for good.
            std::mem::forget(self.memory.clone());
        }
    }
}

/// A peer's connection broke: whoever sends to it next is told, and who met it knows already.
unsafe extern "C" fn broke(_: *mut c_void, _: *mut ucp_ep, _: ucs_status_t) {}

impl Net {
    /// Makes a node known, of the address of its worker.
    pub(super) fn connect(&mut self, name: &[u8]) -> Result<Node, String> {
        let address = [name, &SLACK].concat();
        let mode = match self.kind.tells_of_death() {
            true => UCP_ERR_HANDLING_MODE_PEER,
            false => UCP_ERR_HANDLING_MODE_NONE,
        };
        let mut params = MaybeUninit::<ucp_ep_params>::zeroed();
        let mut ep = ptr::null_mut();
        let library = self.worker.library;
        // SAFETY: of the parameters those fields are filled that the mask names; an open worker; the address is read
        // during the call, and is what a peer who proved who it is said that its worker's is, with slack behind it.
        let status = unsafe {
            let params = params.as_mut_ptr();
            (*params).field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS
                | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE
                | UCP_EP_PARAM_FIELD_ERR_HANDLER;
            (*params).address = address.as_ptr().cast();
            (*params).err_mode = mode;
            (&raw mut (*params).err_handler)
                .write(ucp_err_handler { cb: broke, arg: ptr::null_mut() });
            (library.ucp_ep_create)(self.worker.as_ptr(), params, &mut ep)
        };
        let ep = made(status, ep)
            .map_err(|status| format!("UCX cannot reach it: {}", library.error(status.into())))?;
        let index = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(None);
            self.nodes.len() as u32 - 1
        });
        self.nodes[index as usize] = Some(ep);
        Ok(Node(index.into()))
    }

    /// Forgets a node. Where the library tells of dead peers its endpoint is closed at once; else it goes when all that
    /// is on its way has arrived, which, if the peer is gone, may be never: then it goes with the worker.
    pub(super) fn disconnect(&mut self, node: Node) {
        let Some(ep) = self.nodes.get_mut(node.0 as usize).and_then(Option::take) else { return };
        self.free.push(node.0 as u32);
        let mut param = super::objects::request(closed, ptr::null_mut());
        if self.kind.tells_of_death() {
            param.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
            param.flags = UCP_EP_CLOSE_FLAG_FORCE;
        }
        let library = self.worker.library;
        param.user_data = ptr::from_ref(library).cast_mut().cast();
        // SAFETY: an endpoint of this worker's, closed once, for it was just taken out of its place.
        unsafe { (library.ucp_ep_close_nbx)(ep.as_ptr(), &param) };
    }

    pub(super) fn endpoint(&self, node: Node) -> Option<*mut ucp_ep> {
        self.nodes.get(node.0 as usize)?.map(NonNull::as_ptr)
    }

    /// Opens memory to nodes. `None` if the library says no.
    pub(super) fn map(&mut self, memory: &Slice) -> Option<Opened> {
        self.facts.access?;
        if memory.is_empty() {
            return None;
        }
        let context = self.worker.context.clone();
        let library = context.library;
        let mut params = MaybeUninit::<ucp_mem_map_params>::zeroed();
        let mut memh = ptr::null_mut();
        // SAFETY: of the parameters those fields are filled that the mask names; the context is open. The memory is
        // mapped, and held as long as the registration is (`Opened` has both, and ends the registration first).
        let status = unsafe {
            let params = params.as_mut_ptr();
            (*params).field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
            (*params).address = memory.as_ptr().cast();
            (*params).length = memory.len();
            (library.ucp_mem_map)(context.context.as_ptr(), params, &mut memh)
        };
        let memh = made(status, memh).ok()?;
        let place = (memory.as_ptr() as u64).to_le_bytes().to_vec();
        let mut opened = Opened { memh, memory: memory.clone(), place, context };
        let (mut packed, mut len) = (ptr::null_mut(), 0);
        // SAFETY: a registration of this context's; places for both answers.
        let status = unsafe {
            (library.ucp_rkey_pack)(
                opened.context.context.as_ptr(),
                memh.as_ptr(),
                &mut packed,
                &mut len,
            )
        };
        let packed = made(status, packed).ok()?;
        // SAFETY: the library's bytes, so many, until they are released.
        let key = unsafe { std::slice::from_raw_parts(packed.as_ptr().cast::<u8>(), len) };
        opened.place.extend_from_slice(key);
        // SAFETY: what was just packed, released once.
        unsafe { (library.ucp_rkey_buffer_release)(packed.as_ptr()) };
        (opened.place.len() <= petasos_datagram::frame::MAX_PLACE).then_some(opened)
    }

    /// Leave to reach memory of a node's.
    pub(super) fn unpack(&mut self, node: Node, place: &[u8]) -> Option<Key> {
        let ep = self.endpoint(node)?;
        let (base, key) = place.split_first_chunk()?;
        if key.is_empty() {
            return None;
        }
        let key = [key, &SLACK].concat();
        let mut rkey = ptr::null_mut();
        // SAFETY: an endpoint of this worker's; the key is read during the call, and is what a peer who proved who it is
        // said, with slack behind it; a place for the answer.
        let status =
            unsafe { (self.worker.library.ucp_ep_rkey_unpack)(ep, key.as_ptr().cast(), &mut rkey) };
        let (rkey, base) = (made(status, rkey).ok()?, u64::from_le_bytes(*base));
        Some(Key(Arc::new(Unpacked { rkey, base, worker: Arc::downgrade(&self.worker) })))
    }
}

/// An endpoint has been closed.
unsafe extern "C" fn closed(request: *mut c_void, _: ucs_status_t, library: *mut c_void) {
    // SAFETY: the library's table, which lives as long as the process; the request of this callback, given back once.
    unsafe {
        let library = &*library.cast_const().cast::<crate::sys::library::Library>();
        (library.ucp_request_free)(request);
    }
}

/// A packet in one piece.
pub(super) fn flatten(head: &[u8], payload: &Outgoing) -> Region {
    let whole = Region::zeroed(head.len() + payload.len());
    whole.write(0, head);
    copy_payload(payload, &whole, head.len());
    whole
}
