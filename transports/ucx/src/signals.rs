//! Signals are the program's: UCX takes over some when it is loaded, to print where a program
//! crashed, and gets none.

use std::mem::MaybeUninit;

/// Those that UCX may take (`UCX_ERROR_SIGNALS`, `UCX_DEBUG_SIGNO`).
const SIGNALS: [libc::c_int; 6] =
    [libc::SIGILL, libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGHUP, libc::SIGABRT];

/// What the program does about signals.
pub(crate) struct Kept(Vec<(libc::c_int, libc::sigaction)>);

impl Kept {
    /// As it is now; nothing if the user wants UCX's handlers (`UCX_HANDLE_ERRORS` in the
    /// environment).
    pub(crate) fn take() -> Kept {
        if std::env::var_os("UCX_HANDLE_ERRORS").is_some() {
            return Kept(Vec::new());
        }
        let of = |signal: libc::c_int| {
            let mut action = MaybeUninit::<libc::sigaction>::zeroed();
            // SAFETY: asks only; a place for the answer, of which all zeroes is a value.
            let code = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
            // SAFETY: as above.
            (code == 0).then(|| (signal, unsafe { action.assume_init() }))
        };
        Kept(SIGNALS.into_iter().filter_map(of).collect())
    }

    /// Makes it so again.
    pub(crate) fn restore(self) {
        for (signal, action) in self.0 {
            // SAFETY: what the system said was in force a moment ago.
            let _ = unsafe { libc::sigaction(signal, &action, std::ptr::null_mut()) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the time that any test of this binary looks, another may have loaded the library.
    #[test]
    fn no_handlers_of_the_library_stay() {
        if std::env::var_os("UCX_HANDLE_ERRORS").is_some() || crate::find().is_err() {
            return petasos_testing::skip("UCX is not here, or its handlers are wanted");
        }
        let here = [libc::SIGILL, libc::SIGFPE, libc::SIGHUP, libc::SIGABRT];
        for (signal, action) in Kept::take().0.into_iter().filter(|(s, _)| here.contains(s)) {
            // The program that started this may have had some ignored, as nohup does.
            let is = action.sa_sigaction;
            assert!([libc::SIG_DFL, libc::SIG_IGN].contains(&is), "signal {signal}: {is:#x}");
        }
    }
}
