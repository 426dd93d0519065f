//! Progress, callbacks, and sleeping on a descriptor.

use super::{answer, some, value};
use crate::{
    abi::{Code, IO_ERROR, TIMEOUT, hg_context, hg_core_context},
    class::Context,
    engine::Wait,
};
use petasos_fabric::{Sleep, Time};
use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};
use std::{
    ffi::{c_int, c_uint},
    os::fd::AsRawFd,
    time::Duration,
};

/// Passes of one `HG_Event_progress`, at most.
const MOST_PASSES: u32 = 16;

/// Makes progress until the context has something to call back.
///
/// # Safety
/// The context is null or open.
unsafe fn progress(context: *mut Context, timeout: c_uint) -> Result<(), Code> {
    let context = some(context, "the context")?;
    // SAFETY: the caller's promise.
    let context = unsafe { &*context };
    if context.queue.len() > 0 {
        return Ok(());
    }
    if timeout == 0 {
        context.shared.driver.progress();
        return if context.queue.len() > 0 { Ok(()) } else { Err(TIMEOUT) };
    }
    let timeout = Duration::from_millis(timeout.into());
    match context.shared.wait(&Wait::Entry(context.queue.clone()), timeout) {
        true => Ok(()),
        false => Err(TIMEOUT),
    }
}

/// Calls back at most so many; waits for the first.
///
/// # Safety
/// The context is null or open; `count` is null or a place.
unsafe fn trigger(
    context: *mut Context,
    timeout: c_uint,
    most: c_uint,
    count: *mut c_uint,
) -> Result<(), Code> {
    let raw = some(context, "the context")?;
    let mut done = 0;
    if timeout > 0 {
        // SAFETY: the caller's promise.
        let context = unsafe { &*raw };
        if context.queue.len() == 0 {
            let timeout = Duration::from_millis(timeout.into());
            context.shared.wait(&Wait::Entry(context.queue.clone()), timeout);
        }
    }
    while done < most {
        // SAFETY: the caller's promise. No reference is kept while callbacks run.
        let Some(entry) = (unsafe { (*raw).queue.pop() }) else { break };
        done += 1;
        // SAFETY: the caller's promise.
        unsafe { crate::trigger::trigger(raw, entry) };
    }
    if !count.is_null() {
        // SAFETY: a place (the caller's promise).
        unsafe { count.write(done) };
    }
    if done > 0 || most == 0 { Ok(()) } else { Err(TIMEOUT) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Progress(context: *mut hg_context, timeout: c_uint) -> Code {
    // SAFETY: as `progress`.
    answer(|| unsafe { progress(context.cast(), timeout) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_progress(context: *mut hg_core_context, timeout: c_uint) -> Code {
    // SAFETY: as `progress`.
    answer(|| unsafe { progress(Context::of_core(some(context, "the context")?), timeout) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Trigger(
    context: *mut hg_context,
    timeout: c_uint,
    most: c_uint,
    count: *mut c_uint,
) -> Code {
    // SAFETY: as `trigger`.
    answer(|| unsafe { trigger(context.cast(), timeout, most, count) })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_trigger(
    context: *mut hg_core_context,
    timeout: c_uint,
    most: c_uint,
    count: *mut c_uint,
) -> Code {
    answer(|| {
        let context = Context::of_core(some(context, "the context")?);
        // SAFETY: as `trigger`.
        unsafe { trigger(context, timeout, most, count) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_event_get_wait_fd(context: *const hg_core_context) -> c_int {
    value(-1, || {
        let context = Context::of_core(some(context.cast_mut(), "the context").ok()?);
        // SAFETY: an open context.
        Some(unsafe { &*context }.sleeping()?.epoll.as_raw_fd())
    })
}

/// Whether there is something to do. If not, the program may sleep on the descriptor.
#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_event_ready(context: *mut hg_core_context) -> bool {
    value(true, || {
        let context = Context::of_core(some(context, "the context").ok()?);
        // SAFETY: an open context.
        let context = unsafe { &*context };
        context.queue.wake.take();
        if !context.queue.lie_down() {
            return Some(true);
        }
        let mut engine = context.shared.driver.lock();
        let sleep = engine.arm_outside();
        let now = engine.now();
        drop(engine);
        let until = match sleep {
            Sleep::Busy => return Some(true),
            Sleep::Until(Time::NEVER) => None,
            Sleep::Until(until) => Some(until.since(now).max(Duration::from_nanos(1))),
        };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = until.map_or(zero, |until| Timespec {
            tv_sec: until.as_secs() as i64,
            tv_nsec: until.subsec_nanos().into(),
        });
        let timer = Itimerspec { it_interval: zero, it_value: value };
        let set = timerfd_settime(&context.sleeping()?.timer, TimerfdTimerFlags::empty(), &timer);
        Some(set.is_err())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_event_progress(
    context: *mut hg_core_context,
    count: *mut c_uint,
) -> Code {
    answer(|| {
        let context = Context::of_core(some(context, "the context")?);
        // SAFETY: an open context.
        let context = unsafe { &*context };
        // This thread is awake: what it finds need not wake it.
        context.queue.get_up();
        // What one pass finds may bring more, as a message its answer.
        // Others get the lock in between, and it ends, whatever comes.
        for _ in 0..MOST_PASSES {
            if !context.shared.driver.progress() || context.queue.len() > 0 {
                break;
            }
        }
        if !count.is_null() {
            // SAFETY: a place.
            unsafe { count.write(context.queue.len() as c_uint) };
        }
        if context.sleeping().is_some() { Ok(()) } else { Err(IO_ERROR) }
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn HG_Core_event_trigger(
    context: *mut hg_core_context,
    most: c_uint,
    count: *mut c_uint,
) -> Code {
    answer(|| {
        let context = Context::of_core(some(context, "the context")?);
        // SAFETY: as `trigger`.
        match unsafe { trigger(context, 0, most, count) } {
            Err(TIMEOUT) => Ok(()),
            other => other,
        }
    })
}
