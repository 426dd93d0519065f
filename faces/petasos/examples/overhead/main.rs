//! What the contract, and a call, add to the library below them: 64 bytes there and back, and data
//! by the megabyte, by libfabric or UCX alone and over it, in turns in one run.
//!
//! ```text
//! cargo run --profile dist -p petasos --example overhead -- ofi+shm 5       # ofi+tcp, ucx+posix, ucx+cma, ucx+tcp
//! ```
//!
//! The kind of address, and how many turns. In each turn two processes, a core each, spin.

mod alone;
mod ours;
mod sides;

use petasos_datagram::{bare::Plain, frame::HEADER_LEN};
use petasos_fabric::{Address, two_sided::header::PREFIX};
use petasos_testing::median;
use sides::{Anything, Side, other, pin};

/// Of a message, or of the arguments and of the result of a call, in bytes.
const LEN: usize = 64;
/// What a message of the contract has before it on the way.
const HEADS: usize = HEADER_LEN + PREFIX;
/// One transfer of data, in bytes.
const BLOCK: usize = 1 << 20;
/// How many are under way, how many there are, and how often.
const DEEP: u32 = 8;
const BLOCKS: u32 = 100;
const RUNS: usize = 9;

/// What measures, or answers if it is the other side: see [`Side`].
type Way = fn(&Address, &mut Side) -> Anything<f64>;

/// All of them, by the names under which the other side is told which one is meant.
fn ways<N: Plain>() -> [(&'static str, Way); 7]
where
    N::OpenError: 'static,
{
    [
        ("message alone", alone::message::<N>),
        ("packet alone", alone::whole_packet::<N>),
        ("message", ours::message::<N>),
        ("call", ours::call),
        ("puts alone", alone::puts::<N>),
        ("stream alone", alone::stream::<N>),
        ("puts", ours::puts::<N>),
    ]
}

fn main() -> Anything<()> {
    petasos::prepare();
    let scheme = std::env::args().nth(1).unwrap_or("ofi+shm".to_owned());
    match scheme.split_once('+') {
        Some(("ofi", _)) => of_library::<petasos_ofi::Net>("libfabric", &scheme),
        Some(("ucx", _)) => of_library::<petasos_ucx::Net>("UCX", &scheme),
        _ => {
            Err(format!("{scheme}: this compares with libfabric or UCX; say ofi+shm, ucx+posix …")
                .into())
        }
    }
}

fn of_library<N: Plain>(library: &str, scheme: &str) -> Anything<()>
where
    N::OpenError: 'static,
{
    let address = Address::parse(&format!("{scheme}://*"))?;
    if let Some(role) = std::env::args().nth(3) {
        pin(1);
        let (_, way) =
            ways::<N>().into_iter().find(|(name, _)| *name == role).ok_or("no such role")?;
        return way(&address, &mut Side::Other).map(drop);
    }
    pin(0);
    let turns: usize = std::env::args().nth(2).map_or(Ok(5), |turns| turns.parse())?;
    // Medians of those that are named, in turns.
    let in_turns = |names: &[&str]| -> Anything<Vec<f64>> {
        let mut values = vec![Vec::new(); names.len()];
        for _ in 0..turns {
            for (name, values) in names.iter().zip(&mut values) {
                let way =
                    ways::<N>().into_iter().find(|(of, _)| of == name).ok_or("no such role")?.1;
                let (mut child, mut side) = other(scheme, name)?;
                values.push(way(&address, &mut side)?);
                child.wait()?;
            }
        }
        Ok(values.into_iter().map(median).collect())
    };

    let times = in_turns(&["message alone", "packet alone", "message", "call"])?;
    println!("{scheme}, {LEN} bytes there and back, median of {turns} turns:");
    let whole = format!("{library} alone, {} bytes", LEN + HEADS);
    let names = [&format!("{library} alone"), &*whole, "the contract", "a call"];
    for (name, time) in names.iter().zip(&times) {
        let (more, percent) = (time - times[0], (time / times[0] - 1.0) * 100.0);
        println!("  {name:25} {time:7.0} ns {more:+7.0} ns, {percent:+.1} %");
    }

    // Where the library reaches memory by itself, puts of its own are the measure, else messages
    // whose receiver copies them to where they belong, as the owner does that serves our puts.
    let (reference, how) = match alone::has_access::<N>(&address)? {
        true => ("puts alone", "puts"),
        false => ("stream alone", "messages of 64 KiB, copied by the receiver"),
    };
    let rates = in_turns(&[reference, "puts"])?;
    println!("{scheme}, {BLOCK} bytes at a time, {DEEP} under way:");
    println!("  {library} alone, {how}: {:.2} GB/s", rates[0]);
    println!("  the contract, puts: {:.2} GB/s, {:.2}", rates[1], rates[1] / rates[0]);
    Ok(())
}
