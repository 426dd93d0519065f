//! A message of 64 bytes there and back, and puts of a megabyte: by the library alone, and by the contract over it, in
//! turns in one run. The examples `bare` and `bare_ucx` of the transports are this program.

use super::{Bare, Plain};
use crate::{Config, Datagrams};
use petasos_fabric::{
    Access, Address, Clock, Endpoint, Event, Key, Lease, Level, Operation, Peer, Region,
    RemoteSpan, Slice, Time, Token,
};
use std::{
    collections::VecDeque,
    error::Error,
    io::{BufRead, BufReader, Write},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

type Anything<T> = Result<T, Box<dyn Error>>;
/// What measures, or answers: see [`other`].
type Way = fn(&str, Option<&mut Child>) -> Anything<f64>;

const LEN: usize = 64;
const BATCH: u32 = 2000;
const BATCHES: usize = 40;
/// The length of a put, how many are under way, how many there are, and how often.
const PUT: usize = 1 << 20;
const DEEP: u32 = 8;
const PUTS: u32 = 100;
const RUNS: usize = 9;

/// The whole program: measures, or, started by itself, is the other side. `default` is the kind of address that is meant
/// if the command line names none.
///
/// # Errors
/// Whatever goes wrong.
pub fn main<N: Plain>(library: &str, default: &str) -> Anything<()>
where
    N::OpenError: 'static,
{
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let scheme = arguments.first().map_or(default, String::as_str);
    if let Some(role) = arguments.get(2) {
        return match role.as_str() {
            "bare" => bare::<N>(scheme, None).map(drop),
            "bare puts" => bare_puts::<N>(scheme, None).map(drop),
            "our puts" => our_puts::<N>(scheme, None).map(drop),
            _ => ours::<N>(scheme, None).map(drop),
        };
    }
    let turns: usize = arguments.get(1).map_or(Ok(5), |turns| turns.parse())?;
    let measured = |way: Way, role: &str| -> Anything<f64> {
        let mut child = other(scheme, role)?;
        let value = way(scheme, Some(&mut child))?;
        child.wait()?;
        Ok(value)
    };
    let in_turns = |first: (Way, &str), second: (Way, &str)| -> Anything<(f64, f64)> {
        let mut values = (Vec::new(), Vec::new());
        for _ in 0..turns {
            values.0.push(measured(first.0, first.1)?);
            values.1.push(measured(second.0, second.1)?);
        }
        Ok((median(values.0), median(values.1)))
    };
    let (alone, contract) = in_turns((bare::<N>, "bare"), (ours::<N>, "ours"))?;
    println!("{scheme}, {LEN} bytes there and back, median of {turns} turns:");
    println!(
        "  {library} alone {alone:.0} ns, the contract {contract:.0} ns, difference {:.0} ns",
        contract - alone
    );
    println!("{scheme}, puts of {PUT} bytes, {DEEP} under way:");
    if !has_access::<N>(scheme)? {
        let mut rates = Vec::new();
        for _ in 0..turns {
            rates.push(measured(our_puts::<N>, "our puts")?);
        }
        println!("  served by the owner: {:.2} GB/s", median(rates));
        return Ok(());
    }
    let (alone, contract) = in_turns((bare_puts::<N>, "bare puts"), (our_puts::<N>, "our puts"))?;
    println!(
        "  {library} alone {alone:.2} GB/s, the contract {contract:.2} GB/s, {:+.1} %",
        (contract / alone - 1.0) * 100.0
    );
    Ok(())
}

/// Whether the library is left to reach remote memory by itself.
fn has_access<N: Plain>(scheme: &str) -> Anything<bool>
where
    N::OpenError: 'static,
{
    let mut end = Bare::<N>::open(&Address::parse(&format!("{scheme}://*"))?)?;
    Ok(end.expose(&Region::zeroed(PUT).whole()).is_some())
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

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Anything<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16);
    Ok((0..text.len()).step_by(2).map(byte).collect::<Result<_, _>>()?)
}

/// Gigabytes in a second, of several runs: `more` begins puts as far as there is room, and says how many have ended.
fn rate(mut more: impl FnMut(u32) -> u32) -> f64 {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let begin = Instant::now();
        let (mut begun, mut ended) = (0, 0);
        while ended < PUTS {
            let room = (PUTS - begun).min(DEEP - (begun - ended));
            begun += room;
            ended += more(room);
        }
        runs.push(f64::from(PUTS) * PUT as f64 / begin.elapsed().as_nanos() as f64);
    }
    median(runs)
}

fn bare_puts<N: Plain>(scheme: &str, child: Option<&mut Child>) -> Anything<f64>
where
    N::OpenError: 'static,
{
    let first = child.is_some();
    let mut end = Bare::<N>::open(&Address::parse(&format!("{scheme}://*"))?)?;
    let memory = Region::zeroed(PUT).whole();
    let exposed = end.expose(&memory).ok_or("the library has no access of its own")?;
    let heard = exchange(child, &format!("{} {}", hex(&exposed.place()), hex(end.name())))?;
    let mut words = heard.split(' ');
    let mut word = || words.next().ok_or("cut short");
    let place = unhex(word()?)?;
    let other = end.insert(&unhex(word()?)?).ok_or("not a name")?;
    let key = end.key(other, &place).ok_or("not a key")?;
    if !first {
        while end.poll().1 == 0 {}
        return Ok(0.0);
    }
    memory.write(0, &vec![7; PUT]);
    let mut owed = 0;
    let rate = rate(|room| {
        owed += room;
        while owed > 0 && end.put(other, &memory, &key) {
            owed -= 1;
        }
        end.poll().0
    });
    while !end.send(other, b"enough") {
        end.poll();
    }
    for _ in 0..1000 {
        end.poll();
    }
    Ok(rate)
}

fn our_puts<N: Plain>(scheme: &str, child: Option<&mut Child>) -> Anything<f64>
where
    N::OpenError: 'static,
{
    let first = child.is_some();
    let mut end =
        Datagrams::<N>::open(&Address::parse(&format!("{scheme}://*"))?, Config::default())?;
    let memory = Region::zeroed(PUT).whole();
    let region = end.register(&memory, Access::ALL)?;
    let heard = exchange(child, &hex(end.export(region)?.as_bytes()))?;
    let (clock, mut events) = (Clock::start(), Vec::new());
    if !first {
        loop {
            end.progress(clock.now(), 64, &mut events);
            if events.drain(..).any(|event| matches!(event, Event::Message { .. })) {
                return Ok(0.0);
            }
        }
    }
    memory.write(0, &vec![7; PUT]);
    let remote = end.import(&Key::from_bytes(unhex(&heard)?)?)?;
    let mut queue = VecDeque::new();
    let (mut passes, mut now) = (0u32, clock.now());
    let rate = rate(|room| {
        queue.extend((0..room).map(|_| Operation::Put {
            token: Token(0),
            remote,
            local: [Slice::clone(&memory)].into_iter().collect(),
            spans: [RemoteSpan { offset: 0, len: PUT as u64 }].into_iter().collect(),
            level: Level::Visible,
            event: None,
        }));
        if !queue.is_empty() {
            end.submit(&mut queue);
        }
        passes = passes.wrapping_add(1);
        if passes.is_multiple_of(16) {
            now = clock.now();
        }
        end.progress(now, 64, &mut events);
        let done = |event: &Event| matches!(event, Event::Done { result: Ok(_), .. });
        events.drain(..).filter(done).count() as u32
    });
    while end.inject(remote.peer, &[b"enough"]).is_err() {
        end.progress(clock.now(), 64, &mut events);
    }
    for _ in 0..1000 {
        end.progress(clock.now(), 64, &mut events);
    }
    Ok(rate)
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

fn bare<N: Plain>(scheme: &str, child: Option<&mut Child>) -> Anything<f64>
where
    N::OpenError: 'static,
{
    let first = child.is_some();
    let mut end = Bare::<N>::open(&Address::parse(&format!("{scheme}://*"))?)?;
    let heard = exchange(child, &hex(end.name()))?;
    let other = end.insert(&unhex(&heard)?).ok_or("not a name")?;
    let end = std::cell::RefCell::new(end);
    let send = || {
        while !end.borrow_mut().send(other, &[7; LEN]) {
            end.borrow_mut().receive();
        }
    };
    let receive = || while end.borrow_mut().receive().is_none() {};
    Ok(rounds(first, send, receive))
}

fn ours<N: Plain>(scheme: &str, child: Option<&mut Child>) -> Anything<f64>
where
    N::OpenError: 'static,
{
    let first = child.is_some();
    let mut end =
        Datagrams::<N>::open(&Address::parse(&format!("{scheme}://*"))?, Config::default())?;
    let heard = exchange(child, end.address().as_str())?;
    let clock = Clock::start();
    let mut events = Vec::new();
    if first {
        end.resolve(&Address::parse(&heard)?, Duration::from_secs(10))?;
    }
    let peer = loop {
        end.progress(clock.now(), 16, &mut events);
        let up = events.iter().find_map(|event| match event {
            Event::PeerUp { peer, .. } => Some(*peer),
            _ => None,
        });
        // What came with it is taken by who receives.
        events.retain(|event| matches!(event, Event::Message { .. }));
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
fn receive<N: Plain>(
    end: &mut Datagrams<N>,
    clock: &Clock,
    now: &mut Time,
    events: &mut Vec<Event>,
    passes: &mut u32,
    peer: Peer,
) {
    let mut message = Lease::default();
    if events.pop().is_some() {
        return;
    }
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
