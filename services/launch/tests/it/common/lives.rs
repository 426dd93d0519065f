//! Jobs whose processes die, alone or with their nodes, and are started again: what every process
//! does, how it is followed, and what holds in the end.

use super::{Net, fence, get, ms};
use petasos_pmix::{
    Entry, Error, Proc, Scope,
    event::Event,
    message::{Answer, Request},
    status,
};
use std::collections::BTreeMap;

pub(crate) fn seeds() -> u64 {
    std::env::var("PETASOS_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(60)
}

/// A process sends a request, which is answered soon.
pub(crate) fn after(net: &mut Net, proc: Proc, what: Request) -> Result<Answer, Error> {
    net.ask(ms(0), proc, what);
    net.run(ms(20));
    net.last(proc)
}

pub(crate) fn put(value: &str) -> Request {
    Request::Commit(vec![("k".into(), Entry { scope: Scope::Global, value: value.into() })])
}

#[track_caller]
pub(crate) fn has(result: &Result<Answer, Error>, value: &str) {
    let Ok(Answer::BusinessCard(card)) = result else { panic!("{result:?}") };
    assert_eq!(card.entries["k"].value.as_str(), Some(value));
}

/// All processes of a job, each of which goes from fence to fence.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// The results of the fences of the last process of each rank, in order.
    pub(crate) fences: BTreeMap<Proc, Vec<bool>>,
    /// How many requests were examined already.
    begun: usize,
    asked: usize,
    told: usize,
    /// The requests that are not answered. Those of a process that has died stay so.
    open: Vec<usize>,
}

impl Lives {
    /// All connect.
    pub(crate) fn begin(net: &mut Net) -> Lives {
        let mut lives = Lives::default();
        for proc in net.procs() {
            net.ask(ms(0), proc, Request::Connect(proc));
            lives.fences.insert(proc, Vec::new());
        }
        lives
    }

    /// Processes that were started again since the last call connect.
    pub(crate) fn begin_again(&mut self, net: &mut Net) {
        for at in self.begun..net.restarted.len() {
            let (proc, _) = net.restarted[at];
            self.fences.insert(proc, Vec::new());
            net.ask(ms(10), proc, Request::Connect(proc));
        }
        self.begun = net.restarted.len();
    }

    /// The answers since the last call. A process that has connected puts its number on its card,
    /// registers for failures, and comes to its first fence.
    pub(crate) fn answered(
        &mut self,
        net: &mut Net,
    ) -> Vec<(Proc, Request, Result<Answer, Error>)> {
        self.open.extend(self.asked..net.asked.len());
        self.asked = net.asked.len();
        let done = self.open.extract_if(.., |at| net.asked[*at].answer.is_some());
        let mut answered = Vec::new();
        for at in done.collect::<Vec<_>>() {
            let asked = &net.asked[at];
            let (_, result) = asked.answer.clone().unwrap();
            let (proc, what) = (asked.proc, asked.what.clone());
            if let (Request::Connect(_), Ok(Answer::Welcome { restarts, .. })) = (&what, &result) {
                let codes = vec![status::PROC_ABORTED];
                net.ask(ms(0), proc, Request::Register { handler: 1, codes });
                net.ask(ms(0), proc, put(&restarts.to_string()));
                net.ask(ms(1), proc, fence());
            }
            answered.push((proc, what, result));
        }
        answered
    }

    /// A fence is over; the next one begins.
    pub(crate) fn fenced(&mut self, net: &mut Net, proc: Proc, done: bool) {
        self.fences.get_mut(&proc).unwrap().push(done);
        let collect = net.random.one_in(2);
        let next = Request::Fence { group: None, collect, timeout: None };
        let think = ms(1) + net.random.time(ms(4));
        net.ask(think, proc, next);
    }

    /// The failures of which each process was told since the last call.
    pub(crate) fn told(&mut self, net: &Net) -> Vec<(Proc, Event)> {
        let told = net.told[self.told..].iter();
        self.told = net.told.len();
        let deaths = told.filter(|told| told.event.code == status::PROC_ABORTED);
        deaths.map(|told| (told.proc, told.event.clone())).collect()
    }

    /// All live processes have come together, and cards are those of the last processes. Gives how
    /// often each rank was started again.
    #[track_caller]
    pub(crate) fn end(&self, seed: u64, net: &mut Net) -> BTreeMap<Proc, u32> {
        assert!(net.dead.is_empty(), "seed {seed}: {:?} {:?}", net.dead, net.moved);
        let mut numbers: BTreeMap<Proc, u32> = BTreeMap::new();
        for (proc, restarts) in &net.restarted {
            let before = numbers.insert(*proc, *restarts).unwrap_or_default();
            assert!(*restarts > before, "seed {seed}: {proc}");
        }
        for fences in self.fences.values() {
            let last = fences.iter().rev().take(20).filter(|done| **done).count();
            assert_eq!(last, 20, "seed {seed}: {fences:?}");
        }
        let (procs, before) = (net.procs(), net.asked.len());
        for proc in &procs {
            procs.iter().for_each(|of| net.ask(ms(0), *proc, get(*of, "k")));
        }
        net.run(ms(50));
        for asked in &net.asked[before..] {
            let Request::Get { proc, .. } = asked.what else { continue };
            let number = numbers.get(&proc).copied().unwrap_or_default();
            has(&asked.answer.clone().unwrap().1, &number.to_string());
        }
        numbers
    }
}

/// A number in the information of an event.
pub(crate) fn said(event: &Event, key: &str) -> Option<u32> {
    let found = event.info.iter().find(|(name, _)| name == key);
    found.and_then(|(_, value)| value.as_u64()).map(|number| number as u32)
}
