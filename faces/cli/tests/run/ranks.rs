//! What the ranks of a job do with each other.

use crate::{
    common::{Place, signal},
    example, ranks, succeeds, text,
};
use petasos_pmix::{
    Error, FenceOptions, GetOptions, Group, Job, JobError, Proc, Reply, Scope, Value,
    chain::Registration, event::Range, message::Persistence, status,
};
use petasos_testing::role;
use std::{sync::mpsc::channel, time::Duration};

const SOON: Option<Duration> = Some(Duration::from_secs(20));

#[test]
fn every_rank_calls_every_other_with_bulk_data() {
    let place = Place::new();
    let program = example("all_to_all");
    let ran = place.run(&["run", "-n", "4", program.to_str().unwrap(), "256"]).assert(0);
    let mut lines: Vec<&str> = ran.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), 4, "{ran:?}");
    for (rank, line) in lines.iter().enumerate() {
        let expected = format!("rank {rank} of 4: 786432 bytes to 3 peers");
        assert!(line.starts_with(&expected), "{line}");
    }
    place.assert_clean();
}

/// The program of the guide to jobs.
#[test]
fn each_rank_knows_its_neighbour() {
    let place = Place::new();
    let program = example("neighbours");
    let ran = place.run(&["run", "-n", "3", program.to_str().unwrap()]).assert(0);
    let line = |line: &&str| ran.out.lines().filter(|other| other == line).count();
    for rank in 0..3 {
        assert_eq!(line(&&*format!("{rank} of 3")), 1, "{ran:?}");
    }
    let calls: Vec<_> = ran.out.lines().filter_map(|line| line.split_once(" calls ")).collect();
    let mut addresses: Vec<_> = calls.iter().map(|(own, _)| *own).collect();
    addresses.sort_unstable();
    addresses.dedup();
    assert_eq!((calls.len(), addresses.len()), (3, 3), "{ran:?}");
    // Round once: from each to the next, and back to where it began after three.
    let next = |own| calls.iter().find(|call| call.0 == own).expect("an address of a rank").1;
    let begin = calls[0].0;
    let round = [next(begin), next(next(begin)), next(next(next(begin)))];
    assert!(round[0] != begin && round[1] != begin && round[2] == begin, "{ran:?}");
    place.assert_clean();
}

/// The daemon of this host is the command that runs the job: while it is stopped no requests are
/// answered.
#[test]
fn a_card_that_is_known_is_found_without_asking() {
    let name = "ranks::a_card_that_is_known_is_found_without_asking";
    if role().is_none() {
        let place = Place::new();
        succeeds(ranks(&place, &["-n", "3", "--timeout", "60s"], name));
        return place.assert_clean();
    }
    let job = Job::init().unwrap();
    let (rank, size) = (job.rank(), job.size());
    // What all ranks of the node map, and none can write.
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let shared: Vec<&str> = maps.lines().filter(|line| line.contains("petasos-job")).collect();
    assert!(!shared.is_empty() && shared.iter().all(|line| line.contains(" r--s ")), "{maps}");
    let bare = || job.fence_with(FenceOptions { without_cards: true, ..FenceOptions::default() });
    job.put(Scope::Global, "early", vec![rank as u8; 5_000]);
    job.put(Scope::Remote, "elsewhere", true);
    job.commit().unwrap();
    // Once more, with more on it.
    job.put(Scope::Local, "late", u64::from(rank));
    job.commit().unwrap();
    bare().unwrap();
    if rank == 0 {
        let daemon = std::os::unix::process::parent_id();
        signal(daemon, "STOP");
        let how = || GetOptions { timeout: Some(Duration::from_secs(1)), ..GetOptions::default() };
        let get = |peer, key| job.get_with(peer, key, how());
        let found: Vec<_> = (1..size).map(|peer| (get(peer, "early"), get(peer, "late"))).collect();
        signal(daemon, "CONT");
        for (peer, (early, late)) in (1..size).zip(found) {
            assert_eq!(early.unwrap(), Value::from(vec![peer as u8; 5_000]));
            assert_eq!(late.unwrap(), Value::Uint(u64::from(peer)));
        }
        // What is for others only is not seen here, and what is not there is looked for.
        for key in ["elsewhere", "nowhere"] {
            let error = job.get(1, key).unwrap_err();
            assert!(matches!(error, JobError::Refused(Error::NotFound { .. })), "{error}");
        }
    }
    bare().unwrap();
    job.finalize().unwrap();
}

/// The layers on matching one-sided messages: two-sided messages as of MPI, and a small SHMEM.
#[test]
fn two_sided_messages_and_a_small_shmem() {
    let place = Place::new();
    for (name, does) in
        [("two_sided", "messages sent and received"), ("shmem", "operations ended well")]
    {
        let program = example(name);
        for ranks in ["1", "2", "5"] {
            let ran = place.run(&["run", "-n", ranks, program.to_str().unwrap()]).assert(0);
            assert_eq!(ran.out.matches(does).count().to_string(), ranks, "{name}: {ran:?}");
        }
    }
    place.assert_clean();
}

#[test]
fn cards_are_exchanged_fully_and_directly() {
    let name = "ranks::cards_are_exchanged_fully_and_directly";
    if role().is_none() {
        let place = Place::new();
        succeeds(ranks(&place, &["-n", "5"], name));
        return place.assert_clean();
    }
    let job = Job::init().unwrap();
    let (rank, size) = (job.rank(), job.size());
    let next = (rank + 1) % size;
    // Directly: the get waits for the commit.
    job.put(Scope::Global, "direct", u64::from(rank));
    job.put(Scope::Internal, "mine", true);
    assert_eq!(job.get(rank, "direct").unwrap(), Value::Uint(u64::from(rank)));
    job.commit().unwrap();
    assert_eq!(job.get(next, "direct").unwrap(), Value::Uint(u64::from(next)));
    assert_eq!(job.get(rank, "mine").unwrap(), Value::Bool(true));
    // Fully.
    job.put(Scope::Global, "full", vec![rank as u8; 100_000]);
    job.commit().unwrap();
    job.fence().unwrap();
    for other in 0..size {
        assert_eq!(job.get(other, "full").unwrap(), Value::from(vec![other as u8; 100_000]));
        let internal = job.get(other, "mine");
        assert_eq!(internal.is_ok(), other == rank, "{internal:?}");
    }
    assert_eq!(job.get(Proc::JOB, "pmix.job.size").unwrap(), Value::Uint(5));
    let GetOptions { timeout, .. } = GetOptions::default();
    let how = GetOptions { immediate: true, timeout, ..GetOptions::default() };
    assert!(matches!(
        job.get_with(next, "never", how),
        Err(JobError::Refused(Error::NotFound { .. }))
    ));
    // A group of two, many times.
    if rank < 2 {
        let group = Some(Group::of([job.proc_of(0), job.proc_of(1)]));
        for _ in 0..50 {
            let group = group.clone();
            let how = FenceOptions { group, without_cards: true, timeout: SOON };
            job.fence_with(how).unwrap();
        }
    }
    // Published and looked up.
    if rank == 3 {
        job.publish("where", "here", Range::Session, Persistence::Session).unwrap();
    }
    let (value, owner) = job.lookup("where", SOON).unwrap();
    assert_eq!((value, owner.rank), (Value::from("here"), 3));
    job.fence().unwrap();
    job.finalize().unwrap();
    assert!(matches!(job.fence(), Err(JobError::Lost(_))));
}

#[test]
fn events_are_heard() {
    let name = "ranks::events_are_heard";
    if role().is_none() {
        let place = Place::new();
        succeeds(ranks(&place, &["-n", "3"], name));
        return place.assert_clean();
    }
    let job = Job::init().unwrap();
    // One comes before any rank has a handler: it is kept.
    if job.rank() == 0 {
        job.notify(5, Range::Session, vec![("which".into(), "early".into())]).unwrap();
    }
    job.fence().unwrap();
    let (sender, receiver) = channel();
    let tell = sender.clone();
    let with = Registration { codes: vec![5], ..Registration::default() };
    job.on_event(with, move |event, _| {
        tell.send((event.source.rank, event.info[0].1.to_string())).unwrap();
        Reply::seen()
    })
    .unwrap();
    let next = || receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(next(), (0, "early".to_owned()));
    job.fence().unwrap();
    // A handler may use the job. The rank that makes an event handles it as well, once.
    if job.rank() == 1 {
        job.notify(5, Range::Session, vec![("which".into(), "late".into())]).unwrap();
    }
    assert_eq!(next(), (1, "late".to_owned()));
    job.fence().unwrap();
    assert!(receiver.try_recv().is_err());
    job.finalize().unwrap();
}

#[test]
fn the_others_hear_of_a_death_and_a_fence_ends() {
    let name = "ranks::the_others_hear_of_a_death_and_a_fence_ends";
    if role().is_none() {
        let place = Place::new();
        let output = ranks(&place, &["-n", "3", "--keep-going"], name).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(128 + 9), "{said}");
        assert_eq!(said.matches("heard of 2").count(), 2, "{said}");
        return place.assert_clean();
    }
    let job = Job::init().unwrap();
    job.fence().unwrap();
    if job.rank() == 2 {
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
    }
    let (sender, receiver) = channel();
    let with = Registration { codes: vec![status::PROC_ABORTED], ..Registration::default() };
    job.on_event(with, move |event, _| {
        sender.send(event.source.rank).unwrap();
        Reply::complete()
    })
    .unwrap();
    match job.fence().unwrap_err() {
        JobError::Refused(Error::FenceBroken { proc, why, .. }) => {
            assert_eq!((proc.rank, why), (2, petasos_pmix::Termination::Signalled(9)));
        }
        other => panic!("{other}"),
    }
    assert_eq!(receiver.recv_timeout(Duration::from_secs(20)).unwrap(), 2);
    println!("\nheard of 2");
    job.finalize().unwrap();
}

/// In the middle of the launch: it never comes to be one of them.
#[test]
fn a_rank_that_dies_before_it_connects_is_named_to_all() {
    let name = "ranks::a_rank_that_dies_before_it_connects_is_named_to_all";
    if role().is_none() {
        let place = Place::new();
        let output = ranks(&place, &["-n", "3", "--keep-going"], name).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(128 + 9), "{said}");
        assert_eq!(said.matches("heard of 1").count(), 2, "{said}");
        assert!(said.contains("petasos: rank 1 on ") && said.contains("signal 9"), "{said}");
        return place.assert_clean();
    }
    if std::env::var("PETASOS_RANK").unwrap() == "1" {
        signal(std::process::id(), "KILL");
    }
    let job = Job::init().unwrap();
    match job.fence().unwrap_err() {
        JobError::Refused(Error::FenceBroken { proc, why, .. }) => {
            assert_eq!((proc.rank, why), (1, petasos_pmix::Termination::Signalled(9)));
        }
        other => panic!("{other}"),
    }
    // That event was before this handler.
    let (sender, receiver) = channel();
    let with = Registration { codes: vec![status::PROC_ABORTED], ..Registration::default() };
    job.on_event(with, move |event, _| {
        sender.send(event.source.rank).unwrap();
        Reply::seen()
    })
    .unwrap();
    assert_eq!(receiver.recv_timeout(SOON.unwrap()), Ok(1));
    println!("\nheard of 1");
    job.finalize().unwrap();
}

/// A rank that hangs, which the system does not see.
#[test]
fn the_others_hear_of_a_rank_that_makes_no_progress() {
    let name = "ranks::the_others_hear_of_a_rank_that_makes_no_progress";
    if role().is_none() {
        let place = Place::new();
        let said = succeeds(ranks(&place, &["-n", "3", "--timeout", "60s"], name));
        assert_eq!(said.matches("it has made no progress for 200ms").count(), 2, "{said}");
        return place.assert_clean();
    }
    let job = Job::init().unwrap();
    let (sender, receiver) = channel();
    let with = Registration { codes: vec![status::NO_PROGRESS], ..Registration::default() };
    job.on_event(with, move |event, _| {
        let why = event.info.iter().find(|(key, _)| key == "petasos.why").unwrap();
        sender.send((event.source.rank, why.1.to_string())).unwrap();
        Reply::seen()
    })
    .unwrap();
    job.fence().unwrap();
    if job.rank() == 2 {
        job.watch_progress(Some(Duration::from_millis(200))).unwrap();
        // Until the others have heard.
        job.lookup("go on", SOON).unwrap();
        job.progress().unwrap();
        job.watch_progress(None).unwrap();
    } else {
        let (rank, why) = receiver.recv_timeout(SOON.unwrap()).unwrap();
        println!("\n{rank}: {why}");
    }
    if job.rank() == 0 {
        job.publish("go on", true, Range::Session, Persistence::Session).unwrap();
    }
    job.fence().unwrap();
    // It does not hear of itself.
    assert!(job.rank() != 2 || receiver.try_recv().is_err());
    job.finalize().unwrap();
}

#[test]
fn a_rank_that_never_connects_ends_the_job_loudly() {
    let name = "ranks::a_rank_that_never_connects_ends_the_job_loudly";
    if role().is_none() {
        let place = Place::new();
        let output =
            ranks(&place, &["-n", "2", "--connect-timeout", "300ms"], name).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("petasos: rank 1 on ") && said.contains("never connected"), "{said}");
        return place.assert_clean();
    }
    if std::env::var("PETASOS_RANK").unwrap() == "0" {
        let job = Job::init().unwrap();
        let _ = job.fence();
    }
    std::thread::sleep(Duration::from_secs(100));
}

#[test]
fn abort_ends_all() {
    let name = "ranks::abort_ends_all";
    if role().is_none() {
        let place = Place::new();
        let output = ranks(&place, &["-n", "3"], name).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(9), "{said}");
        assert!(said.contains("rank 1 on ") && said.contains("aborted the job: enough"), "{said}");
        return place.assert_clean();
    }
    let job = Job::init().unwrap();
    if job.rank() == 1 {
        job.abort(9, "enough").unwrap();
    }
    std::thread::sleep(Duration::from_secs(100));
}

#[test]
fn without_a_job_there_is_a_word_about_it() {
    if role().is_none() {
        let error = Job::init().unwrap_err();
        assert!(error.to_string().contains("petasos run"), "{error}");
    }
}
