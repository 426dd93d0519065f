//! By the library alone.

use crate::{
    BLOCK, BLOCKS, HEADS, LEN, RUNS,
    ours::rounds,
    sides::{Anything, Side, hex, rate, unhex},
};
use petasos_datagram::bare::{Bare, Other, Plain};
use petasos_fabric::{Address, Region};
use std::cell::RefCell;

/// Opens an endpoint, and makes the other side's known to it.
fn pair<N: Plain>(address: &Address, side: &mut Side) -> Anything<(Bare<N>, Other)>
where
    N::OpenError: 'static,
{
    let mut end = Bare::<N>::open(address)?;
    let heard = side.exchange(&hex(end.name()))?;
    let other = end.insert(&unhex(&heard)?).ok_or("not a name")?;
    Ok((end, other))
}

/// Whether the library reaches remote memory by itself.
pub(crate) fn has_access<N: Plain>(address: &Address) -> Anything<bool>
where
    N::OpenError: 'static,
{
    let mut end = Bare::<N>::open(address)?;
    Ok(end.expose(&Region::zeroed(BLOCK).whole()).is_some())
}

/// Nanoseconds for a message there and back.
pub(crate) fn message<N: Plain>(address: &Address, side: &mut Side) -> Anything<f64>
where
    N::OpenError: 'static,
{
    there_and_back::<N, LEN>(address, side)
}

/// The same with as many bytes as a message of the contract has on the way.
pub(crate) fn whole_packet<N: Plain>(address: &Address, side: &mut Side) -> Anything<f64>
where
    N::OpenError: 'static,
{
    there_and_back::<N, { LEN + HEADS }>(address, side)
}

fn there_and_back<N: Plain, const BYTES: usize>(address: &Address, side: &mut Side) -> Anything<f64>
where
    N::OpenError: 'static,
{
    let (end, other) = pair::<N>(address, side)?;
    let end = RefCell::new(end);
    let send = || {
        while !end.borrow_mut().send(other, &[7; BYTES]) {
            end.borrow_mut().receive();
        }
    };
    let receive = || while end.borrow_mut().receive().is_none() {};
    let time = rounds(side.is_first(), send, receive);
    // The last answer leaves before the endpoint does.
    for _ in 0..100 {
        end.borrow_mut().receive();
    }
    Ok(time)
}

/// Gigabytes in a second of the library's own writes into memory of the other side.
pub(crate) fn puts<N: Plain>(address: &Address, side: &mut Side) -> Anything<f64>
where
    N::OpenError: 'static,
{
    let (mut end, other) = pair::<N>(address, side)?;
    let memory = Region::zeroed(BLOCK).whole();
    let exposed = end.expose(&memory).ok_or("the library has no access of its own")?;
    let place = unhex(&side.exchange(&hex(&exposed.location()))?)?;
    let key = end.key(other, &place).ok_or("not a key")?;
    if !side.is_first() {
        while end.poll().1 == 0 {}
        return Ok(0.0);
    }
    memory.write(0, &vec![7; BLOCK]);
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

/// Gigabytes in a second of the library's messages, as long as ours are, each copied by its
/// receiver to where it belongs, which says after each block that it is there.
pub(crate) fn stream<N: Plain>(address: &Address, side: &mut Side) -> Anything<f64>
where
    N::OpenError: 'static,
{
    let (mut end, other) = pair::<N>(address, side)?;
    let memory = Region::zeroed(BLOCK).whole();
    let most = end.longest();
    let pieces = BLOCK.div_ceil(most);
    let piece = |at: usize| {
        let at = (at % pieces) * most;
        memory.part(at, most.min(BLOCK - at)).expect("within the block")
    };
    if side.is_first() {
        memory.write(0, &vec![7; BLOCK]);
        let (mut owed, mut next) = (0, 0);
        return Ok(rate(|room| {
            owed += room as usize * pieces;
            while owed > 0 && end.send_memory(other, &piece(next)) {
                (owed, next) = (owed - 1, next + 1);
            }
            end.poll().1
        }));
    }
    let (mut came, mut said) = (0, 0);
    while said < RUNS * BLOCKS as usize {
        if end.take(&piece(came)) {
            came += 1;
        }
        if said < came / pieces && end.send(other, b"there") {
            said += 1;
        }
    }
    // The last word leaves before the endpoint does.
    for _ in 0..1000 {
        end.poll();
    }
    Ok(0.0)
}
