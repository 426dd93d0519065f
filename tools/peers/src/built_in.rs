//! The peers that are built in.

use crate::{Peer, Transport, Waiting, fi_pingpong, hg_rate, ucx_perftest};

/// All peers that are built in, those on shared memory first.
pub fn peers() -> Vec<Peer> {
    use {Transport::*, Waiting::*};
    let mut peers = Vec::new();
    #[cfg(feature = "iceoryx2")]
    peers.push(Peer {
        name: crate::iceoryx2::NAME,
        transport: Shm,
        waiting: Spinning,
        smallest: 0,
        how: crate::iceoryx2::HOW,
        version: || Ok(crate::iceoryx2::VERSION.to_owned()),
        open: crate::iceoryx2::open,
    });
    for transport in [Shm, Tcp] {
        peers.push(Peer {
            name: fi_pingpong::NAME,
            transport,
            waiting: Spinning,
            smallest: fi_pingpong::SMALLEST,
            how: fi_pingpong::HOW,
            version: fi_pingpong::version,
            open: fi_pingpong::open,
        });
        for waiting in [Spinning, Sleeping] {
            peers.push(Peer {
                name: ucx_perftest::NAME,
                transport,
                waiting,
                smallest: ucx_perftest::SMALLEST,
                how: ucx_perftest::HOW,
                version: ucx_perftest::version,
                open: ucx_perftest::open,
            });
            peers.push(Peer {
                name: hg_rate::NAME,
                transport,
                waiting,
                smallest: hg_rate::SMALLEST,
                how: hg_rate::HOW,
                version: hg_rate::version,
                open: hg_rate::open,
            });
        }
    }
    #[cfg(feature = "_async")]
    for transport in [Unix, Tcp] {
        #[cfg(feature = "tarpc")]
        peers.push(Peer {
            name: crate::tarpc::NAME,
            transport,
            waiting: Sleeping,
            smallest: 0,
            how: crate::tarpc::HOW,
            version: || Ok(crate::tarpc::VERSION.to_owned()),
            open: crate::tarpc::open,
        });
        #[cfg(feature = "capnp")]
        peers.push(Peer {
            name: crate::capnp::NAME,
            transport,
            waiting: Sleeping,
            smallest: 0,
            how: crate::capnp::HOW,
            version: || Ok(crate::capnp::VERSION.to_owned()),
            open: crate::capnp::open,
        });
        #[cfg(feature = "tonic")]
        peers.push(Peer {
            name: crate::tonic::NAME,
            transport,
            waiting: Sleeping,
            smallest: 0,
            how: crate::tonic::HOW,
            version: || Ok(crate::tonic::VERSION.to_owned()),
            open: crate::tonic::open,
        });
    }
    peers
}
