//! An engine inside a tokio runtime: on a current-thread runtime, or within a `LocalSet`.

use crate::Engine;
use futures_util::future::{Either, select};
use std::{
    io,
    task::{Context, Poll, Waker},
};
use tokio::io::unix::AsyncFd;

/// Drives the engine until `future` is ready; other tasks of the runtime run meanwhile.
///
/// The engine sleeps in the runtime's own event loop. Dropping the returned future stops driving;
/// the engine can be driven again.
///
/// ```no_run
/// # async fn run(engine: petasos_rpc::Engine) -> Result<(), Box<dyn std::error::Error>> {
/// use petasos_rpc::{CallOptions, Method};
///
/// let target = engine.lookup("tcp://node7:4040")?;
/// let call = target.call_bytes(Method::raw("Store::list"), &CallOptions::default(), b"");
/// let names = petasos_rpc::tokio::drive(&engine, call).await??;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If the transport has no descriptor to wait on, or the runtime cannot wait on it.
pub async fn drive<F: Future>(engine: &Engine, future: F) -> io::Result<F::Output> {
    let none = || io::Error::other("this transport has no descriptor to wait on");
    #[expect(deprecated, reason = "an owned descriptor stays open as long as this does")]
    let fd = AsyncFd::new(engine.fd().ok_or_else(none)?)?;
    let mut future = std::pin::pin!(future);
    loop {
        // Until nothing is left to do; the future is polled with its own waker below.
        let mut at_once = Context::from_waker(Waker::noop());
        loop {
            let busy = engine.progress();
            if let Poll::Ready(output) = future.as_mut().poll(&mut at_once) {
                return Ok(output);
            }
            if !busy {
                break;
            }
        }
        let Some(longest) = engine.arm() else {
            tokio::task::yield_now().await;
            continue;
        };
        let readable = std::pin::pin!(fd.readable());
        let late = std::pin::pin!(tokio::time::sleep(longest));
        let woken = select(select(readable, late), future.as_mut()).await;
        engine.awake();
        match woken {
            Either::Right((output, _)) => return Ok(output),
            Either::Left((Either::Left((guard, _)), _)) => guard?.clear_ready(),
            Either::Left((Either::Right(_), _)) => {}
        }
    }
}
