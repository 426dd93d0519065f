//! `petasos info PEER`: by which route a peer is reached, and why by that one.

use crate::{
    cli, client,
    exit::{Code, Failure, Outcome, lost_peer},
    output,
};
use petasos::{
    OpenOptions,
    auto::Auto,
    fabric::{Address, Clock, Endpoint, Event, Incarnation, Peer},
};
use serde::Serialize;
use std::time::{Duration, Instant};

#[derive(Serialize)]
struct Report<'a> {
    peer: &'a str,
    /// Its whole address.
    address: String,
    incarnation: String,
    /// Its address over the transport that was chosen.
    route: String,
    why: String,
    /// The time it took to connect.
    nanoseconds: u64,
}

pub(super) fn run(peer: &Address, options: &cli::Info) -> Outcome {
    let mut open = OpenOptions::default();
    open.secret_file.clone_from(&options.secret);
    let own = client::own(peer, client::host(peer)?);
    let own = Address::parse(&own).map_err(petasos::OpenError::from)?;
    let patience = options.timeout;
    let report = match own.scheme() {
        "auto" => {
            let mut endpoint =
                petasos::open_auto(&own, &open).map_err(|e| client::refused(peer, e))?;
            let connected = connect(&mut endpoint, peer, patience)?;
            let chosen = |endpoint: &Auto| endpoint.chosen(connected.peer);
            let (route, why) =
                chosen(&endpoint).map_or_else(Default::default, |c| (c.address.to_string(), c.why));
            connected.report(peer, &endpoint, route, why)
        }
        scheme => {
            let opened = petasos::open(own.as_str(), &open);
            let mut endpoint = opened.map_err(|e| client::refused(peer, e))?;
            let connected = connect(&mut *endpoint, peer, patience)?;
            let why = format!("its URL names the transport {scheme}; auto:// would choose one");
            connected.report(peer, &*endpoint, peer.to_string(), why)
        }
    };
    if options.json.json {
        return output::print_json(&report);
    }
    let Report { address, incarnation, route, why, nanoseconds, .. } = &report;
    output::print(&format!(
        "{peer}\naddress      {address}\nincarnation  {incarnation}\nroute        {route}\nwhy          {why}\nconnected in {}",
        output::time(*nanoseconds as f64)
    ))
}

/// A peer that has answered.
struct Connected {
    peer: Peer,
    incarnation: Incarnation,
    took: Duration,
}

impl Connected {
    fn report<'a>(
        &self,
        peer: &'a Address,
        by: &dyn Endpoint,
        route: String,
        why: String,
    ) -> Report<'a> {
        let address = by.peer(self.peer).map_or_else(String::new, |info| info.address.to_string());
        let (incarnation, nanoseconds) =
            (format!("{:?}", self.incarnation), self.took.as_nanos() as u64);
        Report { peer: peer.as_str(), address, incarnation, route, why, nanoseconds }
    }
}

/// Drives an endpoint until the peer has answered.
fn connect(
    endpoint: &mut dyn Endpoint,
    address: &Address,
    patience: Duration,
) -> Outcome<Connected> {
    let (clock, begin) = (Clock::start(), Instant::now());
    let unresolved = |error: petasos::fabric::ResolveError| {
        Failure::new(Code::Usage, error).advise("write the URL as `petasos serve` prints it")
    };
    let wanted = endpoint.resolve(address, patience).map_err(unresolved)?;
    let mut events = Vec::new();
    loop {
        if !endpoint.progress(clock.now(), 64, &mut events) {
            std::thread::sleep(Duration::from_micros(20));
        }
        for event in events.drain(..) {
            match event {
                Event::PeerUp { peer, incarnation } if peer == wanted => {
                    return Ok(Connected { peer, incarnation, took: begin.elapsed() });
                }
                Event::PeerLost { peer, reason } if peer == wanted => {
                    let said = format!("{address}: {reason}");
                    return Err(lost_peer(address.as_str(), &reason, said));
                }
                _ => {}
            }
        }
    }
}
