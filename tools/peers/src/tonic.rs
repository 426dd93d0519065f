//! tonic: gRPC over HTTP/2.
//!
//! What the protocol compiler would generate is written out here, a few lines, so that it is not
//! needed. Payloads are `Bytes`, which saves tonic a copy, and windows are so large that the flow
//! control never stops a large one. Frames stay at the 16 KiB that HTTP/2 begins with: larger ones
//! made echoes of 64 KiB faster, but calls with 1 MiB half as fast.

use crate::{
    Error, Session, Setup, Transport, Unavailable, Waiting,
    asynchronous::{Client, Connection, LONGEST, Stack, open as open_calls},
    payload::Check,
};
use ::tonic::{
    Request, Response, Status,
    body::Body,
    client::Grpc,
    codegen::{BoxFuture, Service},
    server::{Grpc as Answers, NamedService},
    transport::{Channel, Endpoint, Server},
};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use std::{
    convert::Infallible,
    io,
    sync::{Mutex, PoisonError},
    task::{Context, Poll},
};
use tonic_prost::ProstCodec;
use tower::service_fn;

pub(crate) const NAME: &str = "tonic";
pub(crate) const VERSION: &str = "0.14.9";
pub(crate) const HOW: &str = "unary gRPC calls with protocol buffers on tokio's runtime for one \
                              thread; HTTP/2 windows larger than any payload";

/// Bytes that may be under way in a stream, and in a connection.
const WINDOW: u32 = LONGEST as u32;

const ECHO: &str = "/petasos.peers.Echo/Echo";
const PUT: &str = "/petasos.peers.Echo/Put";

#[derive(Clone, PartialEq, Message)]
struct Payload {
    #[prost(bytes = "bytes", tag = "1")]
    bytes: Bytes,
}

pub(crate) fn open(
    setup: &Setup,
    transport: Transport,
    _: Waiting,
) -> Result<Box<dyn Session>, Unavailable> {
    open_calls::<Caller>(setup, transport)
}

#[derive(Clone)]
struct Caller(Grpc<Channel>);

impl Client for Caller {
    const NAME: &'static str = NAME;
    const STACK: Stack = Stack::Tonic;

    async fn connect(connection: impl Connection) -> Result<Caller, Error> {
        let connection = Mutex::new(Some(connection));
        let connector = service_fn(move |_| {
            let connection = connection.lock().unwrap_or_else(PoisonError::into_inner).take();
            let again = || io::Error::other("there is but one connection");
            async move { connection.map(TokioIo::new).ok_or_else(again) }
        });
        let channel = Endpoint::from_static("http://localhost")
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .connect_with_connector(connector)
            .await
            .map_err(Error::peer(NAME, "connecting"))?;
        let grpc = Grpc::new(channel);
        Ok(Caller(grpc.max_decoding_message_size(LONGEST).max_encoding_message_size(LONGEST)))
    }

    async fn echo(&self, payload: &Bytes, check: Check) -> Result<(), Error> {
        let back = self.call(ECHO, payload).await?;
        check.check(NAME, payload, &back)
    }

    async fn put(&self, payload: &Bytes) -> Result<(), Error> {
        self.call(PUT, payload).await.map(drop)
    }
}

impl Caller {
    async fn call(&self, path: &'static str, payload: &Bytes) -> Result<Bytes, Error> {
        // As the generated code does, for which a client is to be cloned for each call under way.
        let mut grpc = self.0.clone();
        grpc.ready().await.map_err(Error::peer(NAME, "a call"))?;
        let request = Request::new(Payload { bytes: payload.clone() });
        let codec = ProstCodec::<Payload, Payload>::default();
        let response = grpc.unary(request, PathAndQuery::from_static(path), codec).await;
        Ok(response.map_err(Error::peer(NAME, "a call"))?.into_inner().bytes)
    }
}

#[derive(Clone)]
struct Answerer;

impl NamedService for Answerer {
    const NAME: &'static str = "petasos.peers.Echo";
}

impl Service<http::Request<Body>> for Answerer {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let codec = ProstCodec::<Payload, Payload>::default();
        let mut grpc = Answers::new(codec)
            .max_decoding_message_size(LONGEST)
            .max_encoding_message_size(LONGEST);
        Box::pin(async move {
            Ok(match request.uri().path() {
                ECHO => grpc.unary(service_fn(echo), request).await,
                PUT => grpc.unary(service_fn(put), request).await,
                _ => Status::unimplemented("no such method").into_http(),
            })
        })
    }
}

async fn echo(request: Request<Payload>) -> Result<Response<Payload>, Status> {
    Ok(Response::new(request.into_inner()))
}

async fn put(_: Request<Payload>) -> Result<Response<Payload>, Status> {
    Ok(Response::new(Payload::default()))
}

pub(crate) async fn answer(connection: impl Connection) -> io::Result<()> {
    // Never at its end, which would be taken as a wish to close.
    let incoming = stream::iter([Ok::<_, io::Error>(connection)]).chain(stream::pending());
    Server::builder()
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .serve_with_incoming(Answerer, incoming)
        .await
        .map_err(io::Error::other)
}
