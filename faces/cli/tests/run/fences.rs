//! Fences of all ranks, whose end is told in shared memory to ranks that have just come, and over
//! sockets to those that wait longer.

use crate::{
    common::{Place, signal},
    hosts::{START, on_a, three},
    ranks, succeeds, text,
};
use petasos_pmix::{
    Error, FenceOptions, GetOptions, Job, JobError, Scope, Termination, Value, chain::Registration,
    event::Range,
};
use petasos_testing::{Hosts, role};
use std::{thread, time::Duration};

/// The rank that is late, and by how much: those that wait have gone from memory to the socket
/// meanwhile, or are about to.
const LATE: [u64; 8] = [0, 0, 0, 1, 19, 20, 21, 45];

#[test]
fn nobody_goes_on_before_the_last_has_come() {
    let name = "fences::nobody_goes_on_before_the_last_has_come";
    if role().is_none() {
        let place = Place::new();
        succeeds(ranks(&place, &["-n", "4"], name));
        if let Some(hosts) = Hosts::several(3) {
            let list = three(&hosts, [2, 2, 1]);
            let options = ["-n", "5", "--hosts", &list, START[0], START[1]];
            succeeds(on_a(&hosts, &ranks(&place, &options, name)));
        }
        return place.assert_clean();
    }
    let job = Job::init().unwrap();
    let (rank, size) = (job.rank(), job.size());
    for step in 0..48u32 {
        if step % size == rank {
            thread::sleep(Duration::from_millis(LATE[(step / size) as usize % LATE.len()]));
        }
        job.put(Scope::Global, &format!("step{step}"), u64::from(rank));
        job.commit().unwrap();
        job.fence().unwrap();
        for peer in 0..size {
            let now = GetOptions { immediate: true, ..GetOptions::default() };
            let found = job.get_with(peer, &format!("step{step}"), now);
            assert_eq!(found.unwrap(), Value::Uint(u64::from(peer)), "step {step}");
        }
    }
    job.finalize().unwrap();
}

#[test]
fn threads_come_to_fences_at_once_and_do_other_things() {
    let name = "fences::threads_come_to_fences_at_once_and_do_other_things";
    if role().is_none() {
        let place = Place::new();
        succeeds(ranks(&place, &["-n", "3"], name));
        return place.assert_clean();
    }
    let job = Job::init().unwrap();
    // The thread of the handlers reads the socket for all.
    let with = Registration { codes: vec![7], ..Registration::default() };
    job.on_event(with, |_, _| petasos_pmix::Reply::seen()).unwrap();
    thread::scope(|scope| {
        for thread in 0..3 {
            let job = &job;
            scope.spawn(move || {
                for nth in 0..60 {
                    if nth % 20 == thread * 6 {
                        thread::sleep(Duration::from_millis(25));
                    }
                    job.fence().unwrap();
                }
            });
        }
        for nth in 0..60u64 {
            job.put(Scope::Global, "nth", nth);
            job.commit().unwrap();
            job.notify(7, Range::Session, Vec::new()).unwrap();
        }
    });
    job.finalize().unwrap();
}

#[test]
fn a_death_in_the_middle_ends_the_fence_of_all() {
    let name = "fences::a_death_in_the_middle_ends_the_fence_of_all";
    if role().is_none() {
        let place = Place::new();
        // At once, and when all others sleep.
        for wait in ["0", "100"] {
            let mut command = ranks(&place, &["-n", "6", "--keep-going"], name);
            let output = command.env("DIES_AFTER", wait).output().unwrap();
            let said = text(&output);
            assert_eq!(output.status.code(), Some(128 + 9), "{said}");
            assert_eq!(said.matches("broken by 2").count(), 5, "{said}");
        }
        return place.assert_clean();
    }
    let wait = std::env::var("DIES_AFTER").unwrap().parse().unwrap();
    let job = Job::init().unwrap();
    (0..50).for_each(|_| job.fence().unwrap());
    if job.rank() == 2 {
        thread::sleep(Duration::from_millis(wait));
        signal(std::process::id(), "KILL");
    }
    match job.fence().unwrap_err() {
        JobError::Refused(Error::FenceBroken { proc, why: Termination::Signalled(9), .. }) => {
            println!("\nbroken by {}", proc.rank);
        }
        other => panic!("{other}"),
    }
    job.finalize().unwrap();
}

#[test]
fn a_fence_that_is_late_fails_for_all_and_the_next_does_not() {
    let name = "fences::a_fence_that_is_late_fails_for_all_and_the_next_does_not";
    if role().is_none() {
        let place = Place::new();
        succeeds(ranks(&place, &["-n", "3"], name));
        return place.assert_clean();
    }
    let job = Job::init().unwrap();
    for limit in [3, 60] {
        job.fence().unwrap();
        let timeout = Some(Duration::from_millis(limit));
        if job.rank() == 1 {
            // Beyond the time of the others, and what finding out which rank is missing may take.
            thread::sleep(Duration::from_millis(limit + 300));
        }
        match job.fence_with(FenceOptions { timeout, ..FenceOptions::default() }).unwrap_err() {
            JobError::Refused(Error::FenceTimeout { missing, .. }) => {
                assert!(missing.to_string().contains('1'), "{missing}");
            }
            other => panic!("{other}"),
        }
    }
    job.fence().unwrap();
    job.finalize().unwrap();
}
