//! The thread that drives while the program does not.

use super::shared::{Next, Shared};
use crate::driver::sleep_on;
use std::{
    os::fd::{AsFd, OwnedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

/// Until the endpoint ends. `fd` is the endpoint's descriptor; `longest` the longest interval at
/// which the thread looks at a program that drives.
pub(super) fn run(shared: &Shared, fd: &OwnedFd, longest: Duration) {
    let mut watch = longest;
    loop {
        let mut core = shared.lock_behind();
        let attend = || shared.attend(&mut core, &mut watch, longest);
        // The panic is caught under the lock: no other thread sees what is driven in between.
        let next = match catch_unwind(AssertUnwindSafe(attend)) {
            Ok(next) => next,
            Err(panic) => {
                tracing::error!("a pass over an endpoint panicked: its thread ends");
                return shared.fail(&mut core, panic);
            }
        };
        drop(core);
        let [timer, _] = match next {
            Next::End => return,
            Next::Pass => continue,
            Next::Attend => sleep_on([shared.timer(), fd.as_fd()], None),
            Next::Watch => [sleep_on([shared.timer()], None)[0], false],
        };
        if timer {
            shared.take_timer();
        }
    }
}
