//! tarpc over a stream of length-delimited frames in bincode.
//!
//! Its server runs each call as a task, as in its examples. To run them one after the other instead
//! made no difference that could be told from noise.

use crate::{
    Error, Session, Setup, Transport, Unavailable, Waiting,
    asynchronous::{Client, Connection, LONGEST, Stack, open as open_calls},
    payload::Check,
};
use ::tarpc::{
    client::Config,
    context::{self, Context},
    serde_transport,
    server::{BaseChannel, Channel},
    tokio_serde::formats::Bincode,
    tokio_util::codec::{Framed, LengthDelimitedCodec},
};
use bytes::Bytes;
use futures_util::StreamExt;

pub(crate) const NAME: &str = "tarpc";
pub(crate) const VERSION: &str = "0.38.0";
pub(crate) const HOW: &str = "bincode in length-delimited frames on tokio's runtime for one thread, \
                              a task for each call";

/// The service. Payloads are of a type that serde writes as a whole, not byte by byte.
#[::tarpc::service]
trait Echo {
    /// Gives the payload back.
    async fn echo(payload: Bytes) -> Bytes;
    /// Takes a large payload, and says how long it was.
    async fn put(payload: Bytes) -> usize;
}

pub(crate) fn open(
    setup: &Setup,
    transport: Transport,
    _: Waiting,
) -> Result<Box<dyn Session>, Unavailable> {
    open_calls::<EchoClient>(setup, transport)
}

fn framed<S: Connection>(connection: S) -> Framed<S, LengthDelimitedCodec> {
    LengthDelimitedCodec::builder().max_frame_length(LONGEST).new_framed(connection)
}

impl Client for EchoClient {
    const NAME: &'static str = NAME;
    const STACK: Stack = Stack::Tarpc;

    async fn connect(connection: impl Connection) -> Result<EchoClient, Error> {
        let transport = serde_transport::new(framed(connection), Bincode::default());
        Ok(EchoClient::new(Config::default(), transport).spawn())
    }

    async fn echo(&self, payload: &Bytes, check: Check) -> Result<(), Error> {
        let back = self.echo(context::current(), payload.clone()).await;
        check.check(NAME, payload, &back.map_err(Error::peer(NAME, "a call"))?)
    }

    async fn put(&self, payload: &Bytes) -> Result<(), Error> {
        let received = self.put(context::current(), payload.clone()).await;
        let received = received.map_err(Error::peer(NAME, "a call"))?;
        let sent = payload.len();
        if received == sent { Ok(()) } else { Err(Error::Mismatch { peer: NAME, sent, received }) }
    }
}

#[derive(Clone)]
struct Answerer;

impl Echo for Answerer {
    async fn echo(self, _: Context, payload: Bytes) -> Bytes {
        payload
    }

    async fn put(self, _: Context, payload: Bytes) -> usize {
        payload.len()
    }
}

pub(crate) async fn answer(connection: impl Connection) {
    let transport = serde_transport::new(framed(connection), Bincode::default());
    let calls = BaseChannel::with_defaults(transport).execute(Answerer.serve());
    calls
        .for_each(async |call| {
            tokio::spawn(call);
        })
        .await;
}
