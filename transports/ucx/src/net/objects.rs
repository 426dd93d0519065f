//! The library's objects: contexts and workers, made and destroyed.

use super::{
    arrivals::{Landing, came},
    descriptors,
    emptying::Emptying,
    fixed::Fixed,
};
use crate::{
    OpenError,
    kinds::Kind,
    sys::{
        Began, UCP_AM_FLAG_WHOLE_MSG, UCP_AM_HANDLER_PARAM_FIELD_ARG,
        UCP_AM_HANDLER_PARAM_FIELD_CB, UCP_AM_HANDLER_PARAM_FIELD_FLAGS,
        UCP_AM_HANDLER_PARAM_FIELD_ID, UCP_FEATURE_AM, UCP_FEATURE_RMA, UCP_FEATURE_WAKEUP,
        UCP_OP_ATTR_FIELD_CALLBACK, UCP_OP_ATTR_FIELD_USER_DATA, UCP_PARAM_FIELD_FEATURES,
        UCP_PARAM_FIELD_MT_WORKERS_SHARED, UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK,
        UCP_WORKER_PARAM_FIELD_FLAGS, UCP_WORKER_PARAM_FIELD_THREAD_MODE, UCS_OK,
        UCS_THREAD_MODE_SERIALIZED, VERSION,
        library::{Library, library},
        ucp_am_handler_param, ucp_config, ucp_context, ucp_params, ucp_request_param, ucp_worker,
        ucp_worker_params, ucs_status_t,
    },
};
use nix::net::if_::InterfaceFlags;
use petasos_datagram::frame::MAX_NAME;
use petasos_fabric::{Home, Region};
use std::{
    ffi::{CString, c_void},
    mem::MaybeUninit,
    net::IpAddr,
    os::fd::RawFd,
    ptr::{self, NonNull},
};

/// The active message that carries packets.
pub(super) const PACKET: u32 = 7;

/// What a context is refused for is almost always the want of a device.
const DEVICES: &str = " (`ucx_info -d` lists the devices that UCX sees)";

/// A context: some of the library's transports, and memory that is registered with them.
pub(crate) struct Context {
    context: NonNull<ucp_context>,
    pub(super) library: &'static Library,
    transports: &'static str,
    home: Home,
}

impl Context {
    /// A context with the transports of this kind, on the device with this address of ours, if they
    /// are devices' own. `access` says whether the library is left to reach remote memory.
    pub(crate) fn open(
        kind: &'static Kind,
        host: Option<&str>,
        access: bool,
    ) -> Result<Context, OpenError> {
        let library = library()?;
        let transports = kind.transports;
        let refused = |call| move |status| refused(library, transports, call, status);
        let config = Options::read(library).map_err(refused("ucp_config_read"))?;
        config.set("TLS", transports).map_err(refused("transports"))?;
        for (name, value) in kind.queue() {
            config.set(name, &value).map_err(refused("the queue's options"))?;
        }
        if let Some((name, value)) = kind.always_looks() {
            config.set(name, value).map_err(refused("the option of progress"))?;
        }
        // Under one of its names: versions differ in whether they pass over names that they do not
        // know, or refuse them.
        let names = kind.connections().iter().map(|(name, value)| config.set(name, value));
        let known = names.reduce(|one, other| one.or(other));
        known.unwrap_or(Ok(())).map_err(refused("the option of connections"))?;
        if let Some(Device { name, loopback }) = device(kind, host) {
            if loopback && !library.connects_over_loopback() {
                return Err(OpenError::Loopback { version: library.version_text() });
            }
            config.set("NET_DEVICES", &name).map_err(refused("device"))?;
        }
        descriptors::suffice(descriptors::FIRST).map_err(|error| OpenError::Refused {
            version: library.version_text(),
            transports,
            call: "descriptors",
            reason: error.to_string(),
            advice: " (raise the limit of this process with `ulimit -n`)",
        })?;
        let mut params = MaybeUninit::<ucp_params>::zeroed();
        let mut context = ptr::null_mut();
        // SAFETY: of the parameters those fields are filled that the mask names, the rest is not
        // read; the options are whole, and there is a place for the answer. Nothing of it is kept.
        let status = unsafe {
            let params = params.as_mut_ptr();
            (*params).field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
            (*params).mt_workers_shared = 1;
            (*params).features = UCP_FEATURE_AM
                | if access { UCP_FEATURE_RMA } else { 0 }
                | if kind.wakes() { UCP_FEATURE_WAKEUP } else { 0 };
            (library.ucp_init_version)(
                VERSION.0,
                VERSION.1,
                params,
                config.config.as_ptr(),
                &mut context,
            )
        };
        let context = made(status, context).map_err(refused("ucp_init"))?;
        Ok(Context { context, library, transports, home: Home::current() })
    }

    pub(super) fn as_ptr(&self) -> *mut ucp_context {
        self.context.as_ptr()
    }

    /// Whether this is the process that opened it, and not a child with a copy: a child leaves all
    /// objects of the library alone, whose connections and memory are the parent's, and whose
    /// threads it does not have.
    pub(super) fn is_here(&self) -> bool {
        self.home.is_current()
    }

    /// Whether peers open memory of a worker by numbers of this process's descriptors: see
    /// [`descriptors`].
    fn opens_by_number(&self) -> bool {
        self.transports.contains("posix")
    }

    /// Whether a worker must not be destroyed while an answer of its to a peer that connects waits:
    /// see [`ending`](super::ending).
    pub(super) fn is_aborted_by_answers(&self) -> bool {
        self.transports == "tcp" && self.library.minor() == 13
    }

    fn refused(&self, call: &'static str) -> impl Fn(ucs_status_t) -> OpenError {
        let (library, transports) = (self.library, self.transports);
        move |status| refused(library, transports, call, status)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if !self.is_here() {
            return;
        }
        // SAFETY: made by `open`, destroyed once; its worker, which owns it, is destroyed before
        // its fields are dropped, and what is registered is unmapped before that, by the `Net` that
        // owns the worker.
        unsafe { (self.library.ucp_cleanup)(self.context.as_ptr()) };
    }
}

fn refused(
    library: &Library,
    transports: &'static str,
    call: &'static str,
    status: ucs_status_t,
) -> OpenError {
    let (version, reason) = (library.version_text(), library.error(status.into()));
    let advice = if call == "ucp_init" { DEVICES } else { "" };
    OpenError::Refused { version, transports, call, reason, advice }
}

/// What a call made that gives an object.
pub(super) fn made<T>(status: ucs_status_t, object: *mut T) -> Result<NonNull<T>, ucs_status_t> {
    match NonNull::new(object) {
        Some(object) if status == UCS_OK => Ok(object),
        _ if status == UCS_OK => Err(crate::sys::UCS_ERR_NO_MEMORY),
        _ => Err(status),
    }
}

/// An interface of the system's.
struct Device {
    name: String,
    loopback: bool,
}

/// The device that has this address, for kinds whose devices are the system's interfaces.
fn device(kind: &Kind, host: Option<&str>) -> Option<Device> {
    if kind.transports != "tcp" {
        return None;
    }
    let ip: IpAddr = host?.parse().ok()?;
    let of = |interface: &nix::ifaddrs::InterfaceAddress| {
        let address = interface.address.as_ref()?;
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    let found = nix::ifaddrs::getifaddrs().ok()?.find(|interface| of(interface) == Some(ip));
    match found {
        Some(interface) => {
            let loopback = interface.flags.contains(InterfaceFlags::IFF_LOOPBACK);
            Some(Device { name: interface.interface_name, loopback })
        }
        // All of 127.0.0.0/8 is there.
        None => ip.is_loopback().then(|| Device { name: "lo".to_owned(), loopback: true }),
    }
}

/// Options of a context: those of the environment, and ours.
struct Options {
    config: NonNull<ucp_config>,
    library: &'static Library,
}

impl Options {
    fn read(library: &'static Library) -> Result<Options, ucs_status_t> {
        let mut config = ptr::null_mut();
        // SAFETY: no prefix and no file; a place for the answer.
        let status = unsafe { (library.ucp_config_read)(ptr::null(), ptr::null(), &mut config) };
        Ok(Options { config: made(status, config)?, library })
    }

    fn set(&self, name: &str, value: &str) -> Result<(), ucs_status_t> {
        let text = |text: &str| CString::new(text).map_err(|_| crate::sys::UCS_ERR_NO_MEMORY);
        let (name, value) = (text(name)?, text(value)?);
        // SAFETY: options of the library's, and texts that end with a zero, which are copied.
        match unsafe {
            (self.library.ucp_config_modify)(self.config.as_ptr(), name.as_ptr(), value.as_ptr())
        } {
            UCS_OK => Ok(()),
            status => Err(status),
        }
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: made by `read`, released once.
        unsafe { (self.library.ucp_config_release)(self.config.as_ptr()) };
    }
}

/// A worker: sends, receives, and calls back. Destroyed when dropped, and then nothing of what it
/// was given is used any more. One that may have connected is to be ended by [`Worker::end`].
pub(super) struct Worker {
    worker: NonNull<ucp_worker>,
    pub(super) library: &'static Library,
    pub(super) context: Context,
    pub(super) landing: Fixed<Landing>,
    pub(super) emptying: Fixed<Emptying>,
    pub(super) wait: Option<RawFd>,
    /// Buffers of packets that it sends.
    pub(super) memory: Vec<Region>,
}

impl Worker {
    pub(super) fn open(
        context: Context,
        kind: &Kind,
        landing: Landing,
        memory: Region,
    ) -> Result<Worker, OpenError> {
        let library = context.library;
        let landing = Fixed::new(landing);
        landing.settle(library);
        let mut params = MaybeUninit::<ucp_worker_params>::zeroed();
        let mut worker = ptr::null_mut();
        if context.opens_by_number() {
            descriptors::prepare();
        }
        // SAFETY: of the parameters those fields are filled that the mask names; the context is
        // open, and the worker holds it; a place for the answer.
        let status = unsafe {
            let params = params.as_mut_ptr();
            (*params).field_mask =
                UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS;
            (*params).thread_mode = UCS_THREAD_MODE_SERIALIZED;
            (*params).flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;
            (library.ucp_worker_create)(context.context.as_ptr(), params, &mut worker)
        };
        let worker = made(status, worker).map_err(context.refused("ucp_worker_create"))?;
        let mut worker = Worker {
            worker,
            library,
            context,
            landing,
            emptying: Emptying::new(library),
            wait: None,
            memory: vec![memory],
        };
        let handler = ucp_am_handler_param {
            field_mask: UCP_AM_HANDLER_PARAM_FIELD_ID
                | UCP_AM_HANDLER_PARAM_FIELD_FLAGS
                | UCP_AM_HANDLER_PARAM_FIELD_CB
                | UCP_AM_HANDLER_PARAM_FIELD_ARG,
            id: PACKET,
            flags: UCP_AM_FLAG_WHOLE_MSG,
            cb: came,
            arg: worker.landing.as_ptr().cast(),
        };
        // SAFETY: an open worker; the landing lies at a fixed place, and is dropped after the
        // worker is destroyed.
        let status = unsafe { (library.ucp_worker_set_am_recv_handler)(worker.as_ptr(), &handler) };
        if status != UCS_OK {
            return Err(worker.context.refused("ucp_worker_set_am_recv_handler")(status));
        }
        if kind.wakes() {
            let mut fd = -1;
            // SAFETY: an open worker, made with the feature; the descriptor stays the worker's.
            let status = unsafe { (library.ucp_worker_get_efd)(worker.as_ptr(), &mut fd) };
            worker.wait = (status == UCS_OK && fd >= 0).then_some(fd);
        }
        Ok(worker)
    }

    pub(super) fn as_ptr(&self) -> *mut ucp_worker {
        self.worker.as_ptr()
    }

    /// The address by which others find it.
    pub(super) fn name(&self) -> Result<Vec<u8>, OpenError> {
        let (mut address, mut len) = (ptr::null_mut(), 0);
        // SAFETY: an open worker; places for both answers.
        let status =
            unsafe { (self.library.ucp_worker_get_address)(self.as_ptr(), &mut address, &mut len) };
        let refused = self.context.refused("ucp_worker_get_address");
        let address = made(status, address).map_err(&refused)?;
        // SAFETY: the library's bytes, so many, until they are released.
        let name =
            unsafe { std::slice::from_raw_parts(address.as_ptr().cast::<u8>(), len) }.to_vec();
        // SAFETY: what the worker gave, once.
        unsafe { (self.library.ucp_worker_release_address)(self.as_ptr(), address.as_ptr()) };
        match name.len() {
            1..=MAX_NAME => Ok(name),
            _ => Err(refused(crate::sys::UCS_ERR_EXCEEDS_LIMIT)),
        }
    }

    /// Moves everything on. False if there was nothing to be moved.
    #[inline]
    pub(super) fn progress(&self) -> bool {
        // SAFETY: an open worker, by the thread that drives it; callbacks find the landing, of
        // which nothing is borrowed.
        unsafe { (self.library.ucp_worker_progress)(self.as_ptr()) > 0 }
    }

    /// Whether nothing waits that its descriptor would not tell of.
    pub(super) fn arm(&self) -> bool {
        // SAFETY: an open worker, made for this.
        unsafe { (self.library.ucp_worker_arm)(self.as_ptr()) == UCS_OK }
    }

    /// Gives a packet back that was kept.
    pub(super) fn release(&self, data: NonNull<u8>) {
        // SAFETY: kept by the callback's answer, and given back once: the caller has just taken it
        // out of its place.
        unsafe { (self.library.ucp_am_data_release)(self.as_ptr(), data.as_ptr().cast()) };
    }

    /// Begins to wait until all that was posted has left: see [`Worker::is_flushed`].
    pub(super) fn begin_flush(&self) {
        let param = request(flushed, self.landing.as_ptr().cast());
        // SAFETY: an open worker; the landing outlives it.
        let began =
            Began::of(unsafe { (self.library.ucp_worker_flush_nbx)(self.as_ptr(), &param) });
        self.landing.flushing.set(began == Began::Running);
    }

    pub(super) fn is_flushed(&self) -> bool {
        !self.landing.flushing.get()
    }

    /// Throws away packets that were not taken.
    pub(super) fn abandon_arrived(&self) {
        for data in self.landing.abandon() {
            self.release(data);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if !self.context.is_here() {
            return;
        }
        self.abandon_arrived();
        // SAFETY: made by `open`, destroyed once; what it works on is held by the fields, and by
        // its owner until after this.
        let destroy = || unsafe { (self.library.ucp_worker_destroy)(self.as_ptr()) };
        match self.context.opens_by_number() {
            true => descriptors::keep_those_closed_by(destroy),
            false => destroy(),
        }
    }
}

/// A flush of the worker is over. Its request is the worker's, and goes with it.
unsafe extern "C" fn flushed(_: *mut c_void, _: ucs_status_t, landing: *mut c_void) {
    // SAFETY: lies at a fixed place and outlives the worker; there are no exclusive references to
    // it.
    unsafe { &*landing.cast_const().cast::<Landing>() }.flushing.set(false);
}

/// Parameters of an operation that calls back.
pub(super) fn request(
    callback: unsafe extern "C" fn(*mut c_void, ucs_status_t, *mut c_void),
    user_data: *mut c_void,
) -> ucp_request_param {
    ucp_request_param {
        op_attr_mask: UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
        cb: Some(callback),
        user_data,
        ..unheard()
    }
}

/// Parameters of an operation without a callback.
pub(super) fn unheard() -> ucp_request_param {
    ucp_request_param {
        op_attr_mask: 0,
        flags: 0,
        request: ptr::null_mut(),
        cb: None,
        datatype: 0,
        user_data: ptr::null_mut(),
        reply_buffer: ptr::null_mut(),
        memory_type: 0,
        recv_info: ptr::null_mut(),
        memh: ptr::null_mut(),
    }
}
