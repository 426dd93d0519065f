//! Addresses as programs hold them.

use crate::abi::{hg_core_addr, hg_core_class};
use petasos_fabric::{Address, Peer};
use std::{
    ptr::{self, NonNull},
    sync::atomic::{AtomicU32, AtomicU64, Ordering, fence},
};

/// An address. The first part is what inline functions of the headers look at.
#[repr(C)]
pub(crate) struct Addr {
    core: hg_core_addr,
    refs: AtomicU32,
    url: Address,
    /// The peer that is known there, or [`NONE`].
    peer: AtomicU64,
}

const NONE: u64 = u64::MAX;

/// A reference to an address, counted.
pub(crate) struct AddrRef(NonNull<Addr>);

// SAFETY: what it points at does not change after it was made, but for atomics, and lives as long
// as there is a reference.
unsafe impl Send for AddrRef {}
// SAFETY: as above.
unsafe impl Sync for AddrRef {}

impl AddrRef {
    /// An address of a class whose own address is `own`.
    pub(crate) fn new(class: usize, url: Address, own: &Address) -> AddrRef {
        let class: *mut hg_core_class = ptr::with_exposed_provenance_mut(class);
        let is_self = u8::from(url == *own);
        let none = ptr::null_mut();
        let core = hg_core_addr { core_class: class, na_addr: none, na_sm_addr: none, is_self };
        let addr = Addr { core, refs: AtomicU32::new(1), url, peer: AtomicU64::new(NONE) };
        AddrRef(NonNull::from(Box::leak(Box::new(addr))))
    }

    fn get(&self) -> &Addr {
        // SAFETY: it lives while there is a reference, and is only ever shared.
        unsafe { self.0.as_ref() }
    }

    /// The pointer for C, which is a reference from now on.
    pub(crate) fn into_raw(self) -> *mut hg_core_addr {
        let raw = self.as_raw();
        std::mem::forget(self);
        raw
    }

    /// The pointer for C, good while this is.
    pub(crate) fn as_raw(&self) -> *mut hg_core_addr {
        self.0.as_ptr().cast()
    }

    /// The reference that C gives back.
    ///
    /// # Safety
    /// It is one that [`AddrRef::into_raw`] gave, not given back yet.
    pub(crate) unsafe fn from_raw(raw: *mut hg_core_addr) -> Option<AddrRef> {
        NonNull::new(raw.cast()).map(AddrRef)
    }

    /// Another reference to an address that C has.
    ///
    /// # Safety
    /// It is one that [`AddrRef::into_raw`] gave, or [`AddrRef::as_raw`] of one that lives.
    pub(crate) unsafe fn borrow(raw: *mut hg_core_addr) -> Option<AddrRef> {
        // SAFETY: the caller's promise; the reference is not given up here.
        let given = std::mem::ManuallyDrop::new(unsafe { AddrRef::from_raw(raw) }?);
        Some(AddrRef::clone(&given))
    }

    pub(crate) fn url(&self) -> &Address {
        &self.get().url
    }

    pub(crate) fn is_self(&self) -> bool {
        self.get().core.is_self != 0
    }

    /// The class, as pointers of C have it.
    pub(crate) fn class(&self) -> *mut hg_core_class {
        self.get().core.core_class
    }

    pub(crate) fn peer(&self) -> Option<Peer> {
        match self.get().peer.load(Ordering::Relaxed) {
            NONE => None,
            bits => Some(Peer { index: bits as u32, generation: (bits >> 32) as u32 }),
        }
    }

    pub(crate) fn set_peer(&self, peer: Peer) {
        self.get().peer.store(peer.to_bits(), Ordering::Relaxed);
    }

    pub(crate) fn forget_peer(&self) {
        self.get().peer.store(NONE, Ordering::Relaxed);
    }
}

impl Clone for AddrRef {
    fn clone(&self) -> AddrRef {
        self.get().refs.fetch_add(1, Ordering::Relaxed);
        AddrRef(self.0)
    }
}

impl Drop for AddrRef {
    fn drop(&mut self) {
        if self.get().refs.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: it was made by `Box::leak`, and this was the last reference.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}
