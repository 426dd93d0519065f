//! What libfabric reads from the environment is set at the beginning of a program, and not once it
//! has threads.

use std::{env, process::Command, sync::mpsc, thread};

const NAME: &str = "FI_OFI_RXM_USE_SRX";
const OTHER: &str = "FI_MR_CACHE_MONITOR";
const BUFFERS: &str = "FI_OFI_RXM_MSG_RX_SIZE";

fn main() {
    // Each case in a process of its own, for the environment is the process's.
    match env::args().nth(1).as_deref() {
        Some("--alone") => {
            petasos_ofi::prepare();
            assert_eq!(env::var(NAME).as_deref(), Ok("1"));
            assert_eq!(env::var(OTHER).as_deref(), Ok("disabled"));
            assert_eq!(env::var(BUFFERS).as_deref(), Ok("512"));
        }
        Some("--threads") => {
            let (done, wait) = mpsc::channel::<()>();
            let other = thread::spawn(move || wait.recv());
            petasos_ofi::prepare();
            assert_eq!((env::var_os(NAME), env::var_os(BUFFERS)), (None, None));
            drop(done);
            let _ = other.join().unwrap();
        }
        Some("--set") => {
            petasos_ofi::prepare();
            assert_eq!(env::var(NAME).as_deref(), Ok("0"), "what the user says counts");
            assert_eq!(env::var(OTHER).as_deref(), Ok("disabled"));
        }
        // What the test runner passes.
        _ => {
            for (case, before) in [("--alone", None), ("--threads", None), ("--set", Some("0"))] {
                let mut again = Command::new(env::current_exe().unwrap());
                again
                    .arg(case)
                    .env_remove(NAME)
                    .env_remove(OTHER)
                    .env_remove(BUFFERS)
                    .envs(before.map(|value| (NAME, value)));
                assert!(again.status().unwrap().success(), "{case}");
            }
            println!("3 passed, 0 failed");
        }
    }
}
