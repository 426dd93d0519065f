//! Cap'n Proto RPC, as in its own examples: buffered reading and writing, one thread.
//!
//! The code of the service in `schema/echo_capnp.rs` is made from `schema/echo.capnp`, and is held
//! here so that the compiler is not needed.

use crate::{
    Error, Session, Setup, Transport, Unavailable, Waiting,
    asynchronous::{Client, Connection, Stack, open as open_calls},
    echo_capnp::{echo, payload},
    payload::Check,
};
use ::capnp::message::ReaderOptions;
use bytes::Bytes;
use capnp_rpc::{RpcSystem, rpc_twoparty_capnp::Side, twoparty::VatNetwork};
use futures_util::io::{AsyncReadExt, BufReader, BufWriter};
use std::{io, rc::Rc};
use tokio_util::compat::TokioAsyncReadCompatExt;

pub(crate) const NAME: &str = "Cap'n Proto RPC";
pub(crate) const VERSION: &str = "0.27.3";
pub(crate) const HOW: &str = "the two-party network with buffers on tokio's runtime for one thread; \
                              code from a schema, the payload as Data";

/// For `map_err`.
fn failed(doing: &'static str) -> impl FnOnce(::capnp::Error) -> Error {
    Error::peer(NAME, doing)
}

pub(crate) fn open(
    setup: &Setup,
    transport: Transport,
    _: Waiting,
) -> Result<Box<dyn Session>, Unavailable> {
    open_calls::<Caller>(setup, transport)
}

fn network(
    connection: impl Connection,
    side: Side,
) -> Box<VatNetwork<impl futures_util::AsyncRead + Unpin>> {
    let (reader, writer) = connection.compat().split();
    let mut options = ReaderOptions::new();
    // Else some 64 MiB of messages would be all.
    options.traversal_limit_in_words(None);
    Box::new(VatNetwork::new(BufReader::new(reader), BufWriter::new(writer), side, options))
}

#[derive(Clone)]
struct Caller(echo::Client);

impl Client for Caller {
    const NAME: &'static str = NAME;
    const STACK: Stack = Stack::Capnp;

    async fn connect(connection: impl Connection) -> Result<Caller, Error> {
        let mut system = RpcSystem::new(network(connection, Side::Client), None);
        let client = system.bootstrap(Side::Server);
        tokio::task::spawn_local(system);
        Ok(Caller(client))
    }

    async fn echo(&self, payload: &Bytes, check: Check) -> Result<(), Error> {
        let mut request = self.0.echo_request();
        request.get().set_bytes(payload);
        let response = request.send().promise.await.map_err(failed("a call"))?;
        let back = response.get().and_then(payload::Reader::get_bytes);
        check.check(NAME, payload, back.map_err(failed("an answer"))?)
    }

    async fn put(&self, payload: &Bytes) -> Result<(), Error> {
        let mut request = self.0.put_request();
        request.get().set_bytes(payload);
        request.send().promise.await.map_err(failed("a call"))?;
        Ok(())
    }
}

struct Answerer;

impl echo::Server for Answerer {
    async fn echo(
        self: Rc<Self>,
        params: echo::EchoParams,
        mut results: echo::EchoResults,
    ) -> Result<(), ::capnp::Error> {
        results.get().set_bytes(params.get()?.get_bytes()?);
        Ok(())
    }

    async fn put(
        self: Rc<Self>,
        params: echo::PutParams,
        _: echo::PutResults,
    ) -> Result<(), ::capnp::Error> {
        params.get()?.get_bytes()?;
        Ok(())
    }
}

pub(crate) async fn answer(connection: impl Connection) -> io::Result<()> {
    let client: echo::Client = capnp_rpc::new_client(Answerer);
    let network = network(connection, Side::Server);
    RpcSystem::new(network, Some(client.client)).await.map_err(io::Error::other)
}
