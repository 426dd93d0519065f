//! `petasos info PEER`: by which route a peer is reached, why by that one, and by which channels
//! messages to it travel.

use crate::{
    cli, client,
    exit::{Code, Failure, Outcome, lost_peer},
    output,
};
use petasos::{
    OpenOptions,
    auto::Auto,
    fabric::{Address, ChannelUse, Clock, Endpoint, Event, Incarnation, Peer},
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
    /// Empty for a transport with one channel.
    channels: Vec<Channel>,
    /// The time it took to connect.
    nanoseconds: u64,
}

/// A channel by which messages to the peer may travel.
#[derive(Serialize)]
struct Channel {
    name: &'static str,
    /// `open`, `asked for`, `closing`, `closed`, `refused`, `never`.
    state: &'static str,
    /// The messages that take it, or would if it were open.
    messages: Vec<Lengths>,
    credit: Option<Credit>,
}

/// Lengths of messages.
#[derive(Serialize)]
struct Lengths {
    from_bytes: usize,
    /// None: without an end.
    to_bytes: Option<usize>,
}

#[derive(Serialize)]
struct Credit {
    free: usize,
    all: usize,
    unit: &'static str,
}

impl From<ChannelUse> for Channel {
    fn from(channel: ChannelUse) -> Channel {
        let lengths = |sizes: &std::ops::RangeInclusive<usize>| Lengths {
            from_bytes: *sizes.start(),
            to_bytes: (*sizes.end() < usize::MAX).then_some(*sizes.end()),
        };
        let credit = |credit: petasos::fabric::ChannelCredit| Credit {
            free: credit.free,
            all: credit.all,
            unit: credit.unit,
        };
        Channel {
            name: channel.name,
            state: channel.state.as_str(),
            messages: channel.sizes.iter().map(lengths).collect(),
            credit: channel.credit.map(credit),
        }
    }
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
    let Report { address, incarnation, route, why, channels, nanoseconds, .. } = &report;
    output::print(&format!(
        "{peer}\naddress      {address}\nincarnation  {incarnation}\nroute        {route}\nwhy          {why}\n{}connected in {}",
        show(channels),
        output::time(*nanoseconds as f64)
    ))
}

/// A table of the channels; nothing if there is none to choose from.
fn show(channels: &[Channel]) -> String {
    if channels.is_empty() {
        return String::new();
    }
    let mut table = output::table(&["channel", "state", "messages", "credit"]);
    for channel in channels {
        // Exactly, as it is a border.
        let size = |bytes: usize| match bytes.is_multiple_of(1024) {
            true => output::size(bytes as u64),
            false => format!("{bytes} B"),
        };
        let lengths = |lengths: &Lengths| match (lengths.from_bytes, lengths.to_bytes) {
            (0, None) => "all".to_owned(),
            (0, Some(to)) => format!("up to {}", size(to)),
            (from, None) => format!("from {}", size(from)),
            (from, Some(to)) => format!("{} to {}", size(from), size(to)),
        };
        let messages: Vec<String> = channel.messages.iter().map(lengths).collect();
        let messages = if messages.is_empty() { "none".to_owned() } else { messages.join(", ") };
        let credit = channel.credit.as_ref().map_or_else(
            || "-".to_owned(),
            |Credit { free, all, unit }| format!("{free} of {all} {unit}"),
        );
        table.add_row([channel.name, channel.state, &messages, &credit]);
    }
    format!("{table}\n")
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
        let channels = by.channels_of(self.peer).into_iter().map(Channel::from).collect();
        Report { peer: peer.as_str(), address, incarnation, route, why, channels, nanoseconds }
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
