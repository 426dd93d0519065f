//! Other stacks, measured in turn with Petasos.
//!
//! Each cell of the tables, for example echoes of 64 bytes over TCP with both sides asleep in
//! between, is measured for the machine, for Petasos, and for each peer right after each other,
//! several times. So a moment in which the machine is slow is slow for all, and ratios mean
//! something.

mod report;

use super::Bench;
use crate::{
    bare,
    bulk::{self, Amount},
    client,
    exit::{Code, Failure, Outcome},
    latency,
    limits::{self, Plan, RoundTrip},
    load::Load,
    pair::{Pair, Setting},
    peer_process,
    server::Server,
    waiting::Waiting,
};
use petasos::{Transport, wire::Encoding};
use petasos_peers::{Error, Peer, Session};
pub(super) use report::Report;
use report::{Cell, Found, Tally};

/// Payloads of echoes, in bytes.
const ECHOES: [usize; 4] = [0, 64, 1024, 65_536];
const QUICK_ECHOES: [usize; 2] = [64, 65_536];

/// Calls under way at a time.
const IN_FLIGHT: [usize; 3] = [1, 16, 64];

/// Large arguments, in bytes.
const LARGE: [usize; 2] = [1 << 20, 16 << 20];
const QUICK_LARGE: [usize; 1] = [1 << 20];

/// Whether other stacks are built in.
pub(super) const BUILT_IN: bool = true;

pub(super) fn require_built_in() -> Outcome {
    Ok(())
}

/// Adds what was measured over one transport.
pub(super) fn measure(
    bench: &Bench,
    transport: &'static Transport,
    report: &mut Option<Report>,
) -> Outcome {
    let report = report.get_or_insert_default();
    for waiting in bench.waitings() {
        bench.step(transport, format_args!("other stacks, {}", word(waiting)));
        // There are many cells.
        let plan = bench.plan_of(3);
        let group = Group { bench, plan, transport, waiting };
        let found = limits::on_client_core(&bench.plan, || group.measure(report))?;
        report.add(found, transport.scheme, word(waiting));
    }
    Ok(())
}

fn word(waiting: Waiting) -> &'static str {
    if waiting == Waiting::Sleeping { "sleeping" } else { "spinning" }
}

/// Stacks that can be compared: over one transport, all waiting in the same manner.
struct Group<'a> {
    bench: &'a Bench,
    plan: Plan,
    transport: &'static Transport,
    waiting: Waiting,
}

/// The stacks that are measured in a round beside the machine.
struct Entrants {
    pair: Pair,
    /// Messages of Petasos without calls, which compare with bare messages of others.
    bare: Option<(bare::Client, Server)>,
    guests: Vec<Guest>,
}

/// A peer that is available in this round.
struct Guest {
    peer: Peer,
    session: Box<dyn Session>,
}

impl Group<'_> {
    fn measure(&self, report: &mut Report) -> Outcome<Vec<Tally>> {
        let mut tallies: Vec<Tally> = self.cells().into_iter().map(Tally::new).collect();
        for _ in 0..self.bench.rounds {
            let pair = Pair::start(&self.setting())?;
            // Bare messages are measured by spinning only.
            let spins = self.waiting == Waiting::Spinning;
            let bare = spins.then(|| pair.frozen(|| self.setting().bare())).transpose()?;
            let mut all = Entrants { pair, bare, guests: self.guests(report) };
            for tally in &mut tallies {
                let round = self.round(&mut all, tally, report);
                round.map_err(|failure| all.pair.explain(failure))?;
            }
        }
        Ok(tallies)
    }

    fn cells(&self) -> Vec<Cell> {
        let (echoes, large) = match self.bench.quick {
            true => (&QUICK_ECHOES[..], &QUICK_LARGE[..]),
            false => (&ECHOES[..], &LARGE[..]),
        };
        let echoes = echoes.iter().map(|&bytes| Cell::Echo { bytes });
        let rates = IN_FLIGHT.iter().map(|&in_flight| Cell::Rate { in_flight });
        let large = large.iter().map(|&bytes| Cell::Large { bytes });
        echoes.chain(rates).chain(large).collect()
    }

    fn setting(&self) -> Setting<'_> {
        self.bench.setting(self.transport, self.waiting, &self.plan)
    }

    /// Opens the peers that belong here.
    fn guests(&self, report: &mut Report) -> Vec<Guest> {
        let setup = peer_process::setup(self.plan.cores, &self.bench.scratch);
        let mut guests = Vec::new();
        for peer in petasos_peers::peers().into_iter().filter(|peer| self.has(peer)) {
            match peer.open(&setup) {
                Ok(session) => guests.push(Guest { peer, session }),
                Err(why) => report.skip(peer.name, &why),
            }
        }
        guests
    }

    fn has(&self, peer: &Peer) -> bool {
        use petasos_peers::{Transport as Theirs, Waiting as Wait};
        let tcp = !client::is_within_node(self.transport.scheme);
        let sleeping = self.waiting == Waiting::Sleeping;
        (peer.transport == Theirs::Tcp) == tcp && (peer.waiting == Wait::Sleeping) == sleeping
    }

    /// One round of a cell: the machine, Petasos, the peers.
    fn round(&self, all: &mut Entrants, tally: &mut Tally, report: &mut Report) -> Outcome {
        let Entrants { pair, bare, guests } = all;
        // It spins only while it is measured.
        let still = bare.as_ref().map(|(_, server)| server.freeze()).transpose()?;
        let (machine, ours) = {
            let cell = tally.cell();
            let machine = match cell {
                Cell::Large { .. } => None,
                Cell::Echo { bytes } => Some(pair.frozen(|| self.limit(bytes))?),
                Cell::Rate { .. } => Some(pair.frozen(|| self.limit(0))?),
            };
            match (cell, machine) {
                (Cell::Echo { bytes }, Some(machine)) => {
                    let ours = self.echo(pair, bytes)?;
                    (Found::of(&machine), Found::of(&ours))
                }
                (Cell::Rate { in_flight }, Some(machine)) => {
                    let rate = pair.rate(in_flight, self.plan.time)?;
                    let one_at_a_time = Found::value(1e9 / machine.median).named(machine.name);
                    (one_at_a_time, Found::value(rate))
                }
                (Cell::Large { bytes }, _) | (Cell::Echo { bytes }, None) => {
                    self.large(pair, bytes)?
                }
                (Cell::Rate { .. }, None) => return Ok(()),
            }
        };
        tally.machine_and_petasos(machine, ours);
        if let Cell::Large { bytes } = tally.cell()
            && let Some(lent) = pair.loans(&self.plan, bytes)?
        {
            tally.another(Found::value(lent));
        }
        let _frozen = pair.server.freeze()?;
        drop(still);
        if let Some((client, _)) = bare {
            self.message(client, tally)?;
        }
        let _still = bare.as_ref().map(|(_, server)| server.freeze()).transpose()?;
        for Guest { peer, session } in guests {
            match self.guest(peer, &mut **session, tally.cell()) {
                Ok(found) => tally.peer(peer, found),
                Err(Error::Unsupported { .. }) => {}
                Err(error) => report.skip(peer.name, &error),
            }
        }
        Ok(())
    }

    /// A cell of echoes, by messages without calls, if a message may be so long.
    fn message(&self, client: &mut bare::Client, tally: &mut Tally) -> Outcome {
        if let Cell::Echo { bytes } = tally.cell()
            && bytes <= client.longest()
        {
            tally.another(Found::value(client.echo(&self.plan, bytes)?));
        }
        Ok(())
    }

    fn guest(&self, peer: &Peer, session: &mut dyn Session, cell: Cell) -> Result<Found, Error> {
        let time = self.plan.time;
        match cell {
            Cell::Echo { bytes } => {
                let times = session.echo(bytes.max(peer.smallest), time)?;
                Ok(Found { p99: times.p99, ..Found::value(times.median) })
            }
            Cell::Rate { in_flight } => {
                session.rate(peer.smallest, in_flight, time).map(Found::value)
            }
            Cell::Large { bytes } => session.stream(bytes, time).map(Found::value),
        }
    }

    /// The machine's limit for a call with so many bytes there and back.
    fn limit(&self, bytes: usize) -> Outcome<RoundTrip> {
        latency::limit_of(self.transport, self.waiting, &self.plan, bytes)
    }

    /// Calls of Petasos, one after the other; their answers are checked as far as those of peers.
    fn echo(&self, pair: &Pair, bytes: usize) -> Outcome<RoundTrip> {
        match bytes {
            0 => pair.null_call(&self.plan, Encoding::Native),
            _ => pair.echo(&self.plan, bytes, Encoding::Native),
        }
    }

    /// Large arguments, which the target pulls, beside their limit. In a process of their own, as
    /// the bench of bulk data has it.
    fn large(&self, pair: &Pair, bytes: usize) -> Outcome<(Found, Found)> {
        let _frozen = pair.server.freeze()?;
        let amount = Amount { bytes, of_transport: false, rounds: 1 };
        let Some(moved) = bulk::measure(&self.setting(), amount)? else {
            return Err(Failure::new(Code::Failed, "any memory can be pulled"));
        };
        let pull = moved.pull;
        Ok((Found::value(pull.limit).named(pull.of), Found::value(pull.value)))
    }
}
