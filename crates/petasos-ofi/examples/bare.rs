//! A message of 64 bytes there and back: by libfabric alone, and by the contract over it, in turns in one run.
//!
//! `cargo run --release -p petasos-ofi --example bare -- ofi+shm 5` (the kind of address, and how many turns).

use petasos_fabric::{Address, Clock, Endpoint, Event, Lease, Peer, Time};
use petasos_ofi::{Config, Ofi, bare::Bare};
use std::{
    error::Error,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

type Anything<T> = Result<T, Box<dyn Error>>;

const LEN: usize = 64;
const BATCH: u32 = 2000;
const BATCHES: usize = 40;

fn main() -> Anything<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scheme = arguments.first().map_or("ofi+shm", String::as_str);
    if let Some(role) = arguments.get(2) {
        return match role.as_str() {
            "bare" => bare(scheme, None).map(drop),
            _ => ours(scheme, None).map(drop),
        };
    }
    let turns: usize = arguments.get(1).map_or(Ok(5), |turns| turns.parse())?;
    let (mut alone, mut contract) = (Vec::new(), Vec::new());
    for _ in 0..turns {
        let mut child = other(scheme, "bare")?;
        alone.push(bare(scheme, Some(&mut child))?);
        child.wait()?;
        let mut child = other(scheme, "ours")?;
        contract.push(ours(scheme, Some(&mut child))?);
        child.wait()?;
    }
    let (alone, contract) = (median(alone), median(contract));
    println!("{scheme}, {LEN} bytes there and back, median of {turns} turns:");
    println!(
        "  libfabric alone {alone:.0} ns, the contract {contract:.0} ns, difference {:.0} ns",
        contract - alone
    );
    Ok(())
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The same program, as the other side.
fn other(scheme: &str, role: &str) -> Anything<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([scheme, "0", role]).stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command.spawn()?)
}

/// Tells the other side a line, and gives the line that it says.
fn exchange(child: Option<&mut Child>, line: &str) -> Anything<String> {
    let mut heard = String::new();
    match child {
        Some(child) => {
            writeln!(child.stdin.as_mut().ok_or("no way in")?, "{line}")?;
            BufReader::new(child.stdout.as_mut().ok_or("no way out")?).read_line(&mut heard)?;
        }
        None => {
            println!("{line}");
            std::io::stdin().lock().read_line(&mut heard)?;
        }
    }
    Ok(heard.trim().to_owned())
}

/// Measures, or answers.
fn rounds(first: bool, mut send: impl FnMut(), mut receive: impl FnMut()) -> f64 {
    let mut batches = Vec::new();
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..BATCH {
            if first {
                send();
                receive();
            } else {
                receive();
                send();
            }
        }
        batches.push(begin.elapsed().as_nanos() as f64 / f64::from(BATCH));
    }
    median(batches)
}

fn bare(scheme: &str, child: Option<&mut Child>) -> Anything<f64> {
    let first = child.is_some();
    let mut end = Bare::open(&Address::parse(&format!("{scheme}://*"))?)?;
    let name: String = end.name().iter().map(|byte| format!("{byte:02x}")).collect();
    let heard = exchange(child, &name)?;
    let byte = |at: usize| u8::from_str_radix(&heard[at..at + 2], 16);
    let name = (0..heard.len()).step_by(2).map(byte).collect::<Result<Vec<u8>, _>>()?;
    let other = end.insert(&name).ok_or("not a name")?;
    let end = std::cell::RefCell::new(end);
    let send = || {
        while !end.borrow_mut().send(other, &[7; LEN]) {
            end.borrow_mut().receive();
        }
    };
    let receive = || while end.borrow_mut().receive().is_none() {};
    Ok(rounds(first, send, receive))
}

fn ours(scheme: &str, child: Option<&mut Child>) -> Anything<f64> {
    let first = child.is_some();
    let mut end = Ofi::open(&Address::parse(&format!("{scheme}://*"))?, Config::default())?;
    let heard = exchange(child, end.address().as_str())?;
    let clock = Clock::start();
    let mut events = Vec::new();
    if first {
        end.resolve(&Address::parse(&heard)?, Duration::from_secs(10))?;
    }
    let peer = loop {
        end.progress(clock.now(), 16, &mut events);
        let up = events.drain(..).find_map(|event| match event {
            Event::PeerUp { peer, .. } => Some(peer),
            _ => None,
        });
        if let Some(peer) = up {
            break peer;
        }
    };
    let end = std::cell::RefCell::new(end);
    let send = || while end.borrow_mut().inject(peer, &[&[7; LEN]]).is_err() {};
    let (mut passes, mut now) = (0u32, clock.now());
    let receive =
        || receive(&mut end.borrow_mut(), &clock, &mut now, &mut events, &mut passes, peer);
    let time = rounds(first, send, receive);
    // The last answer leaves before the endpoint does.
    for _ in 0..100 {
        end.borrow_mut().progress(clock.now(), 16, &mut Vec::new());
    }
    Ok(time)
}

/// Takes a message by the short way, as engines do, with a whole pass whenever that finds nothing.
fn receive(
    end: &mut Ofi,
    clock: &Clock,
    now: &mut Time,
    events: &mut Vec<Event>,
    passes: &mut u32,
    peer: Peer,
) {
    let mut message = Lease::default();
    loop {
        if end.poll_message(&mut message) == Some(peer) {
            return;
        }
        *passes = passes.wrapping_add(1);
        if passes.is_multiple_of(64) {
            *now = clock.now();
        }
        if passes.is_multiple_of(8) {
            end.progress(*now, 16, events);
            let came = events.drain(..).any(|event| matches!(event, Event::Message { .. }));
            if came {
                return;
            }
        }
    }
}
