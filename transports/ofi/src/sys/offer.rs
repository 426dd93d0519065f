//! What the providers of the library offer: descriptions that own their memory.

use super::{
    FI_CONTEXT, FI_CONTEXT2, FI_EP_RDM, FI_MR_ALLOCATED, FI_MR_ENDPOINT, FI_MR_PROV_KEY,
    FI_MR_VIRT_ADDR, FI_MSG, FI_MULTI_RECV, FI_NUMERICHOST, FI_ORDER_SAS, FI_RM_ENABLED, FI_RMA,
    FI_SOURCE, FI_THREAD_DOMAIN, VERSION, fi_info,
    library::{Library, library},
};
use crate::LoadError;
use std::{
    ffi::{CStr, CString, c_char, c_int},
    ptr::{self, NonNull},
};

/// A description of what one provider does on one device: a chain of exactly one.
pub(crate) struct Offer {
    info: NonNull<fi_info>,
    library: &'static Library,
}

// SAFETY: a tree of memory of its own, which nothing else points to, and which has no tie to a
// thread.
unsafe impl Send for Offer {}

/// What is asked of a provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    /// Its name in the library, as `tcp;ofi_rxm`; `None` for all.
    pub(crate) provider: Option<&'a str>,
    /// The local address that it shall use, where there are several.
    pub(crate) source: Option<&'a str>,
    /// Modes of registering memory that are accepted.
    pub(crate) memory: c_int,
    /// Beside messages.
    pub(crate) caps: u64,
}

/// All modes of registering memory that this crate understands.
pub(crate) const ANY_MEMORY: c_int =
    FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;

impl Offer {
    /// Offers of reliable datagram endpoints with messages in order, best first.
    pub(crate) fn find(wish: Wish<'_>) -> Result<Vec<Offer>, LoadError> {
        let library = library()?;
        let text = |text: Option<&str>| text.map(CString::new).transpose();
        let (Ok(provider), Ok(source)) = (text(wish.provider), text(wish.source)) else {
            return Ok(Vec::new());
        };
        // SAFETY: with null it makes an empty description with all its parts, or gives null.
        let hints = NonNull::new(unsafe { (library.dupinfo)(ptr::null()) });
        let hints = Offer { info: hints.ok_or(LoadError::NoMemory)?, library };
        // SAFETY: a description from the library has all of these parts (but the NIC's), they are
        // not used elsewhere, and the fields are those that all versions from 1.17 on have. The
        // name is made by `strdup`, for the library frees it with `free`; null means no wish.
        unsafe {
            let info = hints.info.as_ptr();
            (*info).caps = FI_MSG | wish.caps;
            (*info).mode = FI_CONTEXT | FI_CONTEXT2;
            (*(*info).ep_attr).r#type = FI_EP_RDM;
            (*(*info).tx_attr).msg_order = FI_ORDER_SAS;
            (*(*info).rx_attr).msg_order = FI_ORDER_SAS;
            (*(*info).domain_attr).threading = FI_THREAD_DOMAIN;
            (*(*info).domain_attr).resource_mgmt = FI_RM_ENABLED;
            (*(*info).domain_attr).mr_mode = wish.memory;
            if let Some(name) = &provider {
                (*(*info).fabric_attr).prov_name = libc::strdup(name.as_ptr());
            }
        }
        let node = source.as_ref().map_or(ptr::null(), |node| node.as_ptr());
        let flags = if node.is_null() { 0 } else { FI_SOURCE | FI_NUMERICHOST };
        let mut found = ptr::null_mut();
        // SAFETY: texts that end with zero and live beyond the call, a description of the library's
        // own, and a place for the answer.
        let code = unsafe {
            (library.getinfo)(VERSION, node, ptr::null(), flags, hints.info.as_ptr(), &mut found)
        };
        if code != 0 {
            // Nothing fits: no data, or no such provider.
            return Ok(Vec::new());
        }
        let mut offers = Vec::new();
        let mut next: *mut fi_info = found;
        while let Some(info) = NonNull::new(next) {
            // SAFETY: a link of the chain that was just made; a copy of it has no successor.
            unsafe {
                next = (*info.as_ptr()).next;
                if let Some(info) = NonNull::new((library.dupinfo)(info.as_ptr())) {
                    offers.push(Offer { info, library });
                }
            }
        }
        // SAFETY: the chain is ours, and nothing points into it: the offers are copies.
        unsafe { (library.freeinfo)(found) };
        Ok(offers)
    }

    /// Everything that any provider offers.
    pub(crate) fn all() -> Result<Vec<Offer>, LoadError> {
        Offer::find(Wish { provider: None, source: None, memory: ANY_MEMORY, caps: 0 })
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    /// For calls of the library that want a description.
    pub(crate) fn as_ptr(&self) -> *mut fi_info {
        self.info.as_ptr()
    }

    /// The description and its parts, which are all there.
    fn info(&self) -> &fi_info {
        // SAFETY: owned by this value, and not changed while it is borrowed.
        unsafe { self.info.as_ref() }
    }

    /// The provider's name in the library.
    pub(crate) fn provider(&self) -> String {
        // SAFETY: a description from the library has this part.
        text(unsafe { (*self.info().fabric_attr).prov_name })
    }

    /// Whether it is a layer above connections of a device's.
    pub(crate) fn layered_on_device(&self) -> bool {
        let name = self.provider();
        name.ends_with(";ofi_rxm") && !name.starts_with("tcp")
    }

    /// The device, or what stands for it.
    pub(crate) fn domain(&self) -> String {
        // SAFETY: a description from the library has this part.
        text(unsafe { (*self.info().domain_attr).name })
    }

    pub(crate) fn has(&self, caps: u64) -> bool {
        self.info().caps & caps == caps
    }

    pub(crate) fn has_rma(&self) -> bool {
        self.has(FI_RMA)
    }

    pub(crate) fn has_multi_recv(&self) -> bool {
        self.has(FI_MULTI_RECV)
    }

    /// The longest message that is taken before the call returns.
    pub(crate) fn inject_size(&self) -> usize {
        // SAFETY: a description from the library has this part.
        unsafe { (*self.info().tx_attr).inject_size }
    }

    /// Pieces of memory in one send.
    pub(crate) fn iov_limit(&self) -> usize {
        // SAFETY: a description from the library has this part.
        unsafe { (*self.info().tx_attr).iov_limit }
    }

    /// Sends under way at a time.
    pub(crate) fn tx_size(&self) -> usize {
        // SAFETY: a description from the library has this part.
        unsafe { (*self.info().tx_attr).size }
    }

    /// The longest message or access.
    pub(crate) fn max_message(&self) -> usize {
        // SAFETY: a description from the library has this part.
        unsafe { (*self.info().ep_attr).max_msg_size }
    }

    /// How memory is to be registered.
    pub(crate) fn memory(&self) -> c_int {
        // SAFETY: a description from the library has this part.
        unsafe { (*self.info().domain_attr).mr_mode }
    }

    /// Whether the provider makes the keys of memory.
    pub(crate) fn makes_keys(&self) -> bool {
        self.memory() & FI_MR_PROV_KEY != 0
    }

    /// Bytes of a key that mean something.
    pub(crate) fn key_size(&self) -> usize {
        // SAFETY: a description from the library has this part.
        unsafe { (*self.info().domain_attr).mr_key_size }
    }

    /// Bytes of completion data that a message or a write carries; 0 if there is none.
    pub(crate) fn completion_data(&self) -> usize {
        // SAFETY: a description from the library has this part.
        unsafe { (*self.info().domain_attr).cq_data_size }
    }

    /// The form of addresses: from 1 to 4 those of sockets.
    pub(crate) fn address_format(&self) -> u32 {
        self.info().addr_format
    }

    /// How tables of addresses are to be.
    pub(crate) fn av_type(&self) -> c_int {
        // SAFETY: a description from the library has this part.
        unsafe { (*self.info().domain_attr).av_type }
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        // SAFETY: made by the library, owned by this value, and not used after.
        unsafe { (self.library.freeinfo)(self.info.as_ptr()) }
    }
}

fn text(at: *const c_char) -> String {
    if at.is_null() {
        return String::new();
    }
    // SAFETY: the library's descriptions hold texts that end with a zero.
    unsafe { CStr::from_ptr(at) }.to_string_lossy().into_owned()
}
