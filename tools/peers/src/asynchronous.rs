//! What the peers on an asynchronous runtime share: one connection, a runtime on each side, and the
//! loops that measure.
//!
//! Both sides have tokio's runtime for one thread, pinned as our own two sides are. What was tried,
//! on a virtual machine with two cores that others used as well:
//!
//! - With the runtime for many threads, tarpc's calls of 64 bytes took 1.4 to 2.3 times as long,
//!   and it made 0.6 to 0.8 times as many a second with 64 in flight; tonic made 0.6 to 1.0 times
//!   as many. Cap'n Proto RPC is for one thread only.
//! - Without pinning, sides that sleep may come to share a core, which makes single calls faster
//!   (0.6 to 1.0 times the time over Unix sockets) as no other core has to be woken. They stay
//!   pinned: so are we, and so is the limit.

use crate::{
    Error, Session, Setup, Times, Transport, Unavailable,
    payload::{Check, payload},
    process::{Parent, Process, Task},
    timing::{Meter, Transfers, Watch},
};
use bytes::Bytes;
use futures_util::stream::{FuturesUnordered, StreamExt};
use serde::{Deserialize, Serialize};
use std::{
    future::{Future, pending},
    io,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::net::{UnixListener, UnixStream},
    path::Path,
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    runtime::{Builder, LocalRuntime},
};

/// The longest payload that is taken, in bytes.
#[cfg(any(feature = "tarpc", feature = "tonic"))]
pub(crate) const LONGEST: usize = 1 << 30;

/// Which of the stacks a server is to speak.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Stack {
    #[cfg(feature = "capnp")]
    Capnp,
    #[cfg(feature = "tarpc")]
    Tarpc,
    #[cfg(feature = "tonic")]
    Tonic,
}

/// A connection that a stack can use.
#[cfg(not(feature = "tonic"))]
pub(crate) trait Connection: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
#[cfg(not(feature = "tonic"))]
impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Connection for S {}

/// A connection that a stack can use.
#[cfg(feature = "tonic")]
pub(crate) trait Connection:
    AsyncRead + AsyncWrite + ::tonic::transport::server::Connected + Unpin + Send + 'static
{
}
#[cfg(feature = "tonic")]
impl<S> Connection for S where
    S: AsyncRead + AsyncWrite + ::tonic::transport::server::Connected + Unpin + Send + 'static
{
}

/// The calling side of a stack. Clones share the connection.
pub(crate) trait Client: Clone + 'static {
    const NAME: &'static str;
    const STACK: Stack;

    /// Takes a connection into use.
    fn connect(connection: impl Connection) -> impl Future<Output = Result<Self, Error>>;

    /// A call with the payload there and back.
    fn echo(&self, payload: &Bytes, check: Check) -> impl Future<Output = Result<(), Error>>;

    /// A call with the payload there, and next to nothing back.
    fn put(&self, payload: &Bytes) -> impl Future<Output = Result<(), Error>>;
}

/// A client and its server process.
struct Calls<C> {
    // Dropped in this order: the connection ends before the server goes.
    client: C,
    runtime: LocalRuntime,
    _process: Process,
}

/// Starts a server process and connects to it.
pub(crate) fn open<C: Client>(
    setup: &Setup,
    transport: Transport,
) -> Result<Box<dyn Session>, Unavailable> {
    let directory = setup.scratch.clone();
    let task = Task::Serve { stack: C::STACK, transport, directory };
    let (mut process, found_at) = Process::serve(C::NAME, setup, task)?;
    let runtime = runtime().map_err(Error::system("an asynchronous runtime"))?;
    let failed = || Error::system("connecting to a server process");
    let client = if transport == Transport::Tcp {
        let address: SocketAddr =
            found_at.parse().map_err(|_| process.failed(format!("is at {found_at:?}")))?;
        let stream = TcpStream::connect(address).map_err(failed())?;
        let local = stream.local_addr().map_err(failed())?;
        process.say(&local.to_string())?;
        runtime.block_on(async { C::connect(tcp(stream).map_err(failed())?).await })?
    } else {
        let stream = UnixStream::connect(&found_at).map_err(failed())?;
        process.say("connected")?;
        runtime.block_on(async { C::connect(unix(stream).map_err(failed())?).await })?
    };
    Ok(Box::new(Calls { client, runtime, _process: process }))
}

fn runtime() -> io::Result<LocalRuntime> {
    Builder::new_current_thread().enable_all().build_local(Default::default())
}

fn tcp(stream: TcpStream) -> io::Result<tokio::net::TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    tokio::net::TcpStream::from_std(stream)
}

fn unix(stream: UnixStream) -> io::Result<tokio::net::UnixStream> {
    stream.set_nonblocking(true)?;
    tokio::net::UnixStream::from_std(stream)
}

impl<C: Client> Session for Calls<C> {
    fn echo(&mut self, bytes: usize, time: Duration) -> Result<Times, Error> {
        let (client, payload) = (&self.client, Bytes::from(payload(bytes)));
        self.runtime.block_on(async {
            client.echo(&payload, Check::Whole).await?;
            let mut watch = Watch::new(time);
            while let Some(calls) = watch.next() {
                let begin = Instant::now();
                for _ in 0..calls {
                    client.echo(&payload, Check::Ends).await?;
                }
                watch.record(begin.elapsed());
            }
            Ok(watch.times())
        })
    }

    fn rate(&mut self, bytes: usize, in_flight: usize, time: Duration) -> Result<f64, Error> {
        let (client, payload) = (&self.client, Bytes::from(payload(bytes)));
        self.runtime.block_on(async {
            client.echo(&payload, Check::Whole).await?;
            let call = || client.echo(&payload, Check::Ends);
            let mut calls: FuturesUnordered<_> = (0..in_flight.max(1)).map(|_| call()).collect();
            let (mut meter, mut more) = (Meter::new(time), true);
            while let Some(done) = calls.next().await {
                done?;
                more = more && meter.call();
                if more {
                    calls.push(call());
                }
            }
            Ok(meter.rate())
        })
    }

    fn stream(&mut self, bytes: usize, time: Duration) -> Result<f64, Error> {
        let (client, payload) = (&self.client, Bytes::from(payload(bytes)));
        self.runtime.block_on(async {
            let mut transfers = Transfers::new(bytes, time);
            loop {
                let begin = Instant::now();
                client.put(&payload).await?;
                if !transfers.record(begin.elapsed()) {
                    return Ok(transfers.bandwidth());
                }
            }
        })
    }
}

/// What a server process does. True if the parent has said that all is done.
pub(crate) fn serve(
    stack: Stack,
    transport: Transport,
    directory: &Path,
    mut parent: Parent,
) -> io::Result<bool> {
    let runtime = runtime()?;
    if transport == Transport::Tcp {
        let Some(stream) = accept_tcp(&mut parent)? else { return Ok(false) };
        runtime.block_on(async { answer(stack, tcp(stream)?, parent).await })
    } else {
        let Some(stream) = accept_unix(directory, &mut parent)? else { return Ok(false) };
        runtime.block_on(async { answer(stack, unix(stream)?, parent).await })
    }
}

/// Listens for the parent and takes its connection; nothing if it died meanwhile.
///
/// The parent says over the private socket which address it connects from; other processes that
/// find the port are turned away.
fn accept_tcp(parent: &mut Parent) -> io::Result<Option<TcpStream>> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    parent.ready(listener.local_addr()?.to_string())?;
    let said = parent.hear()?;
    if said.is_empty() {
        return Ok(None);
    }
    let expected: SocketAddr = said.parse().map_err(io::Error::other)?;
    loop {
        let (stream, from) = listener.accept()?;
        if from == expected {
            return Ok(Some(stream));
        }
    }
}

fn accept_unix(directory: &Path, parent: &mut Parent) -> io::Result<Option<UnixStream>> {
    let path = directory.join(format!("peer-{}", std::process::id()));
    let text = path.to_str().ok_or_else(|| io::Error::other("the directory's name is no text"))?;
    let listener = UnixListener::bind(&path)?;
    parent.ready(text)?;
    let connected = parent.hear();
    // No other process is to find it.
    std::fs::remove_file(&path)?;
    if connected?.is_empty() { Ok(None) } else { Ok(Some(listener.accept()?.0)) }
}

/// Answers calls until the parent has said its last word.
async fn answer(stack: Stack, connection: impl Connection, parent: Parent) -> io::Result<bool> {
    let answering = async {
        match stack {
            #[cfg(feature = "capnp")]
            Stack::Capnp => crate::capnp::answer(connection).await?,
            #[cfg(feature = "tarpc")]
            Stack::Tarpc => crate::tarpc::answer(connection).await,
            #[cfg(feature = "tonic")]
            Stack::Tonic => crate::tonic::answer(connection).await?,
        }
        // The client is gone, which is to be told to us in a moment.
        pending::<io::Result<bool>>().await
    };
    // A thread of its own, which sleeps: the runtime is to see nothing but the stack.
    let end = tokio::task::spawn_blocking(move || parent.until_end());
    tokio::select! {
        failed = answering => failed,
        told = end => Ok(told.unwrap_or(false)),
    }
}
