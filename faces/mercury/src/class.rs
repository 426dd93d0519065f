//! Classes and contexts as programs hold them.

use crate::{
    abi::{
        BUSY, Code, CoreCreateCb, CoreRpcCb, CreateCb, FreeData, INVALID_ARG, IO_ERROR, NA_ERROR,
        ProcCb, RpcCb, hg_class, hg_context, hg_core_class, hg_core_context, hg_core_rpc_info,
        na_class, na_class_ops, na_context,
    },
    engine::{Counters, Engine, Shares, UNDER_WAY, Wait},
    handle::HandlePtr,
    log::{Level, refuse, say},
    names::Named,
    queue::{Arg, Queue},
    quick::Quick,
    wire,
};
use petasos::{OpenOptions, SecretBytes};
use petasos_fabric::{Tuning, driver::Driver};
use rustix::{
    event::epoll,
    time::{TimerfdClockId, TimerfdFlags, timerfd_create},
};
use std::{
    collections::HashMap,
    ffi::{CString, c_char, c_void},
    mem::offset_of,
    os::fd::OwnedFd,
    ptr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

/// How long a class that ends waits until its last responses have come.
const FLUSH: Duration = Duration::from_millis(500);
/// Bytes of a message, where nothing else is asked for.
pub(crate) const EAGER: usize = 4096;
/// Polling before sleep, where `petasos tune` has measured nothing.
const SPIN: Duration = Duration::from_micros(50);

/// Classes in a process: as many as numbers of operations tell apart.
const MOST: u8 = 128;

/// What a program asks of a class.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) listen: bool,
    pub(crate) never_sleep: bool,
    pub(crate) secret: Option<String>,
    pub(crate) max_input: usize,
    pub(crate) max_output: usize,
    pub(crate) sum_payload: bool,
    pub(crate) bulk_eager: bool,
    pub(crate) no_overflow: bool,
}

/// A call that is registered. The first part is what inline functions of the headers look at.
#[repr(C)]
pub(crate) struct Rpc {
    pub(crate) core: hg_core_rpc_info,
    pub(crate) procs: Option<(ProcCb, ProcCb)>,
    pub(crate) callback: RpcCb,
    pub(crate) data: Mutex<(Arg, FreeData)>,
    pub(crate) no_response: std::sync::atomic::AtomicBool,
}

// SAFETY: pointers in it are the program's, which nothing here looks at; the rest is shared safely.
unsafe impl Send for Rpc {}
// SAFETY: as above.
unsafe impl Sync for Rpc {}

impl Rpc {
    pub(crate) fn core(id: u64, rpc_cb: CoreRpcCb) -> Rpc {
        let core =
            hg_core_rpc_info { rpc_cb, data: ptr::null_mut(), free: None, id, no_response: 0 };
        let none = Mutex::new((Arg(ptr::null_mut()), None));
        Rpc { core, procs: None, callback: None, data: none, no_response: false.into() }
    }

    pub(crate) fn upper(id: u64, procs: (ProcCb, ProcCb), callback: RpcCb) -> Rpc {
        let mut rpc = Rpc::core(id, None);
        (rpc.procs, rpc.callback) = (Some(procs), callback);
        rpc
    }

    /// The data of the program's, replaced: what was there is freed.
    pub(crate) fn set_data(&self, data: *mut c_void, free: FreeData) {
        let mut place = lock(&self.data);
        let (before, release) = std::mem::replace(&mut *place, (Arg(data), free));
        drop(place);
        free_data(before.0, release);
    }
}

impl Drop for Rpc {
    fn drop(&mut self) {
        self.set_data(ptr::null_mut(), None);
        free_data(self.core.data, self.core.free);
    }
}

/// Gives data of the program's back.
pub(crate) fn free_data(data: *mut c_void, free: FreeData) {
    if let Some(free) = free.filter(|_| !data.is_null()) {
        // SAFETY: the program gave this function for this data, and it is called once.
        unsafe { free(data) };
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a class has, for any thread.
pub(crate) struct Shared {
    pub(crate) driver: Driver<Engine>,
    pub(crate) settings: Settings,
    pub(crate) counters: Arc<Counters>,
    /// Requests that wait to be called back.
    pub(crate) waiting: Arc<AtomicU64>,
    rpcs: RwLock<HashMap<u64, Arc<Rpc>, Quick>>,
    /// Handles that requests had, to be used again.
    pub(crate) spare: Mutex<Vec<HandlePtr>>,
    /// Called with each new handle.
    pub(crate) on_create: Mutex<(CreateCb, Arg)>,
    pub(crate) core_on_create: Mutex<(CoreCreateCb, Arg)>,
    contexts: AtomicU32,
    /// Descriptors of memory of this process that are not freed.
    pub(crate) bulks: AtomicUsize,
    /// Names the class in numbers of operations.
    pub(crate) number: u8,
    /// The class.
    class: AtomicUsize,
}

impl Shared {
    pub(crate) fn class(&self) -> *mut Class {
        ptr::with_exposed_provenance_mut(self.class.load(Ordering::Relaxed))
    }

    pub(crate) fn rpc(&self, id: u64) -> Option<Arc<Rpc>> {
        self.rpcs.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// Registers a call, in the place of what had this number.
    pub(crate) fn set_rpc(&self, rpc: Rpc) {
        let mut rpcs = self.rpcs.write().unwrap_or_else(PoisonError::into_inner);
        let before = rpcs.insert(rpc.core.id, Arc::new(rpc));
        drop(rpcs);
        drop(before);
    }

    pub(crate) fn remove_rpc(&self, id: u64) -> bool {
        let mut rpcs = self.rpcs.write().unwrap_or_else(PoisonError::into_inner);
        let before = rpcs.remove(&id);
        drop(rpcs);
        before.is_some()
    }

    /// Waits, and drives meanwhile; false if it takes longer.
    pub(crate) fn wait(&self, what: &Wait, timeout: Duration) -> bool {
        self.driver.wait(timeout, what).is_ready()
    }

    /// Waits for the end of something that was asked for; `None` if that takes longer.
    pub(crate) fn outcome(&self, outcome: &Arc<AtomicU32>, timeout: Duration) -> Option<Code> {
        self.wait(&Wait::End(outcome.clone()), timeout);
        Some(outcome.load(Ordering::Acquire)).filter(|code| *code != UNDER_WAY)
    }
}

/// A class. Its first parts are what inline functions of the headers look at.
#[repr(C)]
pub(crate) struct Class {
    pub(crate) hg: hg_class,
    pub(crate) core: hg_core_class,
    na: na_class,
    ops: na_class_ops,
    sizes: (usize, usize),
    _names: (CString, CString),
    pub(crate) shared: Arc<Shared>,
}

/// Classes by number.
static CLASSES: Mutex<Vec<Option<Arc<Shared>>>> = Mutex::new(Vec::new());

/// The class with this number.
pub(crate) fn numbered(number: u8) -> Option<Arc<Shared>> {
    lock(&CLASSES).get(usize::from(number)).cloned().flatten()
}

unsafe extern "C" fn max_unexpected(class: *const na_class) -> usize {
    // SAFETY: inline functions of the headers call it with the pointer that they found in a class.
    unsafe { (*Class::of_na(class)).sizes.0 }
}

unsafe extern "C" fn max_expected(class: *const na_class) -> usize {
    // SAFETY: as above.
    unsafe { (*Class::of_na(class)).sizes.1 }
}

unsafe extern "C" fn header(_: *const na_class) -> usize {
    wire::NA
}

unsafe extern "C" fn max_tag(_: *const na_class) -> u32 {
    u32::MAX
}

impl Class {
    /// Opens an endpoint.
    ///
    /// # Errors
    /// There is none of that name, or the system refused: the log has why.
    pub(crate) fn open(named: &Named, settings: Settings) -> Result<*mut Class, Code> {
        let mut options = OpenOptions::default();
        options.secret = settings.secret.as_deref().map(SecretBytes::new);
        if options.secret.is_none() {
            options.secret_file = std::env::var_os("PETASOS_SECRET_FILE").map(Into::into);
        }
        let endpoint = petasos::open(&named.url, &options).map_err(|error| {
            say(Level::Error, "cls", || format!("{}: {error}", named.url));
            NA_ERROR
        })?;
        let limits = endpoint.capabilities().limits;
        let size = |asked: usize| {
            let wanted = if asked == 0 { EAGER } else { asked };
            // Handles of such sizes are allocated: a megabyte is more than any program asks for.
            wanted.clamp(256, 1 << 20).min(limits.max_message)
        };
        let sizes = (size(settings.max_input), size(settings.max_output));
        let url = endpoint.address().as_str().to_owned();
        say(Level::Info, "cls", || format!("`{}` is {}, at {url}", named.protocol, named.url));
        let counters = Arc::<Counters>::default();
        let waiting = Arc::<AtomicU64>::default();
        let text = |text: &str| CString::new(text).map_err(|_| INVALID_ARG);
        let names = (text(&named.class)?, text(&named.protocol)?);
        // The class has its place before what refers to it.
        let mut place = Box::<Class>::new_uninit();
        let class: *mut Class = place.as_mut_ptr();
        // SAFETY: the pointers are computed, within the allocation, and not read.
        let (core, na, ops) =
            unsafe { (&raw mut (*class).core, &raw mut (*class).na, &raw mut (*class).ops) };
        let shares = Shares {
            counters: counters.clone(),
            waiting: waiting.clone(),
            max_input: sizes.0,
            class: core.expose_provenance(),
            listen: settings.listen,
        };
        let fd = endpoint.fd().map(|fd| fd.try_clone_to_owned()).transpose();
        let fd = fd.map_err(|_| IO_ERROR)?;
        let spin = match settings.never_sleep {
            true => None,
            false => Some(Tuning::of_machine().spin().unwrap_or(SPIN)),
        };
        let engine = Engine::new(endpoint, shares);
        let driver = Driver::new(engine, fd, spin).map_err(|_| IO_ERROR)?;
        let mut classes = lock(&CLASSES);
        let free = classes.iter().position(Option::is_none).unwrap_or(classes.len());
        let number = u8::try_from(free).ok().filter(|number| *number < MOST).ok_or_else(|| {
            refuse(BUSY, "cls", || format!("{MOST} classes are the most in a process"))
        })?;
        let shared = Arc::new(Shared {
            driver,
            counters,
            waiting,
            rpcs: RwLock::default(),
            spare: Mutex::default(),
            on_create: Mutex::new((None, Arg(ptr::null_mut()))),
            core_on_create: Mutex::new((None, Arg(ptr::null_mut()))),
            contexts: AtomicU32::new(0),
            bulks: AtomicUsize::new(0),
            number,
            class: AtomicUsize::new(class.expose_provenance()),
            settings: settings.clone(),
        });
        if free == classes.len() {
            classes.push(None);
        }
        classes[free] = Some(shared.clone());
        let none = ptr::null_mut();
        let protocol = names.1.as_ptr().cast_mut().cast::<c_char>();
        let class_name = names.0.as_ptr();
        place.write(Class {
            hg: hg_class { core_class: core, in_offset: 0, out_offset: 0 },
            core: hg_core_class {
                na_class: na,
                na_sm_class: ptr::null_mut(),
                data: none,
                data_free: None,
            },
            na: na_class {
                ops,
                plugin_class: none,
                protocol_name: protocol,
                progress_mode: u8::from(settings.never_sleep),
                listen: settings.listen,
            },
            ops: na_class_ops {
                class_name,
                before_is_self: [0; 16],
                addr_is_self: None,
                after_is_self: [0; 4],
                max_unexpected: Some(max_unexpected),
                max_expected: Some(max_expected),
                unexpected_header: Some(header),
                expected_header: Some(header),
                max_tag: Some(max_tag),
                rest: [0; 25],
            },
            sizes,
            _names: names,
            shared,
        });
        // SAFETY: it was written just now.
        Ok(Box::into_raw(unsafe { place.assume_init() }))
    }

    /// The class of a pointer of the core layer.
    pub(crate) fn of_core(core: *const hg_core_class) -> *mut Class {
        core.cast_mut().wrapping_byte_sub(offset_of!(Class, core)).cast()
    }

    fn of_na(na: *const na_class) -> *mut Class {
        na.cast_mut().wrapping_byte_sub(offset_of!(Class, na)).cast()
    }

    /// Bytes of buffers for input and output.
    pub(crate) fn sizes(&self) -> (usize, usize) {
        self.sizes
    }

    /// Ends a class.
    ///
    /// # Errors
    /// [`BUSY`] while it has contexts or memory.
    ///
    /// # Safety
    /// It is one of [`Class::open`], that no thread uses.
    pub(crate) unsafe fn close(class: *mut Class) -> Result<(), Code> {
        // SAFETY: the caller's promise.
        let shared = unsafe { (*class).shared.clone() };
        let contexts = shared.contexts.load(Ordering::Acquire);
        if contexts > 0 {
            return Err(refuse(BUSY, "cls", || format!("{contexts} contexts are not destroyed")));
        }
        let bulks = shared.bulks.load(Ordering::Acquire);
        if bulks > 0 {
            return Err(refuse(BUSY, "cls", || format!("{bulks} bulk handles are not freed")));
        }
        let until = Instant::now() + FLUSH;
        let asked = shared.driver.lock().probe();
        for outcome in asked {
            shared.outcome(&outcome, until.saturating_duration_since(Instant::now()));
        }
        let left = shared.driver.lock().finish();
        drop(left);
        let spare = std::mem::take(&mut *lock(&shared.spare));
        spare.into_iter().for_each(HandlePtr::free);
        lock(&CLASSES)[usize::from(shared.number)] = None;
        let rpcs =
            std::mem::take(&mut *shared.rpcs.write().unwrap_or_else(PoisonError::into_inner));
        drop(rpcs);
        // SAFETY: of a box, and no thread uses it (the caller's promise).
        let class = unsafe { Box::from_raw(class) };
        free_data(class.core.data, class.core.data_free);
        Ok(())
    }
}

/// A context. Its first parts are what inline functions of the headers look at.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) hg: hg_context,
    pub(crate) core: hg_core_context,
    na: na_context,
    pub(crate) shared: Arc<Shared>,
    pub(crate) queue: Arc<Queue>,
    /// What a program sleeps on, made when it first asks.
    sleep: OnceLock<Option<Sleeping>>,
    /// Handles that the program has.
    pub(crate) handles: Arc<AtomicUsize>,
}

/// A descriptor that is readable when there may be something to do, and what it is made of.
pub(crate) struct Sleeping {
    pub(crate) epoll: OwnedFd,
    /// For what is due at a time.
    pub(crate) timer: OwnedFd,
}

impl Context {
    /// # Errors
    /// [`BUSY`] if there is one with this number; the system refused.
    ///
    /// # Safety
    /// The class is one of [`Class::open`].
    pub(crate) unsafe fn open(class: *mut Class, id: u8) -> Result<*mut Context, Code> {
        // SAFETY: the caller's promise.
        let (shared, core_class) = unsafe { ((*class).shared.clone(), &raw mut (*class).core) };
        let queue = Arc::new(Queue::new(id).map_err(|_| IO_ERROR)?);
        let mut engine = shared.driver.lock();
        if engine.has_queue(id) {
            return Err(refuse(BUSY, "ctx", || format!("there is a context {id} already")));
        }
        engine.set_queue(id, Some(queue.clone()));
        drop(engine);
        shared.contexts.fetch_add(1, Ordering::AcqRel);
        let mut place = Box::<Context>::new_uninit();
        let context: *mut Context = place.as_mut_ptr();
        // SAFETY: the pointers are computed, within the allocation, and not read.
        let (core, na) = unsafe { (&raw mut (*context).core, &raw mut (*context).na) };
        place.write(Context {
            hg: hg_context { core_context: core, hg_class: class.cast() },
            core: hg_core_context {
                core_class,
                na_context: na,
                na_sm_context: ptr::null_mut(),
                data: ptr::null_mut(),
                data_free: None,
                id,
            },
            na: na_context { plugin_context: ptr::null_mut() },
            shared,
            queue,
            sleep: OnceLock::new(),
            handles: Arc::default(),
        });
        // SAFETY: it was written just now.
        Ok(Box::into_raw(unsafe { place.assume_init() }))
    }

    pub(crate) fn of_core(core: *const hg_core_context) -> *mut Context {
        core.cast_mut().wrapping_byte_sub(offset_of!(Context, core)).cast()
    }

    /// What a program sleeps on. `None`: the system has no descriptors.
    pub(crate) fn sleeping(&self) -> Option<&Sleeping> {
        let made = self.sleep.get_or_init(|| {
            let made = self.make_sleeping();
            made.map_err(|error| say(Level::Error, "poll", || error.to_string())).ok()
        });
        made.as_ref()
    }

    fn make_sleeping(&self) -> std::io::Result<Sleeping> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let none = epoll::EventData::new_u64(0);
        let readable = epoll::EventFlags::IN;
        epoll::add(&epoll, &timer, none, readable)?;
        epoll::add(&epoll, &self.queue.wake, none, readable)?;
        if let Some(fd) = self.shared.driver.lock().fd() {
            epoll::add(&epoll, fd, none, readable)?;
        }
        Ok(Sleeping { epoll, timer })
    }

    /// Ends a context.
    ///
    /// # Errors
    /// [`BUSY`] while the program has handles of it, transfers are under way, or callbacks wait to
    /// be called: nothing has changed.
    ///
    /// # Safety
    /// It is one of [`Context::open`], that no thread uses.
    pub(crate) unsafe fn close(context: *mut Context) -> Result<(), Code> {
        // SAFETY: the caller's promise.
        let (shared, queue, handles) = unsafe {
            let context = &*context;
            (context.shared.clone(), context.queue.clone(), context.handles.clone())
        };
        let mut engine = shared.driver.lock();
        let (waiting, ours) = queue.waits();
        // Those of the queue alone go with it.
        let count = handles.load(Ordering::Acquire).saturating_sub(ours);
        let transfers = engine.transfers_of(&queue);
        if waiting + count + transfers > 0 {
            drop(engine);
            return Err(refuse(BUSY, "ctx", || {
                format!(
                    "{count} handles are not destroyed, {transfers} transfers under way, {waiting} \
                     callbacks not called"
                )
            }));
        }
        engine.set_queue(queue.id, None);
        drop(engine);
        // Requests, which are refused, and what no program waits for.
        while let Some(entry) = queue.pop() {
            crate::trigger::give_up(&shared, entry);
        }
        shared.contexts.fetch_sub(1, Ordering::AcqRel);
        // SAFETY: of a box, and no thread uses it (the caller's promise).
        let context = unsafe { Box::from_raw(context) };
        free_data(context.core.data, context.core.data_free);
        Ok(())
    }
}
