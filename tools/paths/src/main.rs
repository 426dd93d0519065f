//! The paths whose instructions are counted: both ends on one thread, so that neither waits.
//!
//! ```text
//! cargo run --profile dist -p petasos-paths PATH [COUNT [URL]]     # a million, over shm://*
//! ```
//!
//! `scripts/instructions` runs each under callgrind, and compares with the committed counts. By
//! itself this prints the time of one round, which is the software's alone. Calls, messages and
//! operations go over any transport (`--features networks`), the others over shared memory.

#![forbid(unsafe_code)]

mod calls;
mod channels;
mod decode;
mod messages;
mod operations;
mod put;
mod wire;

use petasos::{
    OpenOptions,
    channel::Force,
    fabric::{Endpoint, Event, Peer, Time},
};
use std::{
    error::Error,
    process::ExitCode,
    time::{Duration, Instant},
};

const USAGE: &str = "petasos-paths null_call|echo_64|bytes_LEN|message|decode|put|channel_packet|\
                     channel_exclusive|write|read|send|tagged|tagged_behind [COUNT [URL]]\n\
                     the last five also with polled_ before: completions by next_completion";

fn timed(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// Two ends that know each other, and the handles that they have of each other.
fn connect(url: &str) -> ([Box<dyn Endpoint>; 2], [Peer; 2]) {
    let open = || petasos::open(url, &OpenOptions::default()).expect("an endpoint");
    let mut ends = [open(), open()];
    let there = ends[1].address().clone();
    ends[0].resolve(&there, Duration::from_secs(5)).expect("an address");
    let (mut up, mut events) = ([None; 2], Vec::new());
    while up.contains(&None) {
        for (end, up) in ends.iter_mut().zip(&mut up) {
            end.progress(Time::ZERO, 8, &mut events);
            for event in events.drain(..) {
                if let Event::PeerUp { peer, .. } = event {
                    *up = Some(peer);
                }
            }
        }
    }
    (ends, up.map(|peer| peer.expect("both are up")))
}

/// Runs a path so many times, after a few that connect and fill caches.
fn run(path: &str, count: u64, url: &str) -> Result<Duration, Box<dyn Error>> {
    match path {
        "message" => Ok(messages::run(count, url)),
        "decode" => Ok(decode::run(count)),
        "put" => put::run(count),
        "channel_packet" => channels::run(Force::Mp, count),
        "channel_exclusive" => channels::run(Force::Exclusive, count),
        _ => operations::run(path, count, url)
            .or_else(|| Some(Ok(calls::run(path, count, url)?)))
            .ok_or_else(|| format!("there is no path {path:?}"))?,
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (path, count, url) = match &arguments[..] {
        [path] => (path, Some(1_000_000), "shm://*"),
        [path, count] => (path, count.parse().ok(), "shm://*"),
        [path, count, url] => (path, count.parse().ok(), url.as_str()),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let Some(count) = count.filter(|count| *count > 0) else {
        eprintln!("COUNT is a number from 1 on: {USAGE}");
        return ExitCode::from(2);
    };
    match run(path, count, url) {
        Ok(took) => {
            println!("{path}: {:.1} ns", took.as_nanos() as f64 / count as f64);
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}: {USAGE}");
            ExitCode::from(2)
        }
    }
}
