//! What `docs/launch.md` says of how jobs begin and end: each rule by an example here, and all of
//! them under random orders of events in `seeds`.

mod seeds;
mod world;

use super::*;
use petasos_pmix::{JobId, Missing, Proc, Termination};
use std::time::Duration;

const HERE: Node = Node::HEAD;
const A: Node = Node(1);
const B: Node = Node(2);

fn at(seconds: u64) -> Time {
    Time(0).after(Duration::from_secs(seconds))
}

/// A job with so many ranks on each node, this one first.
fn job(settings: Settings, ranks: &[u32]) -> Controller {
    with(settings, false, ranks)
}

/// The same, with files for the nodes or without.
fn with(settings: Settings, stages: bool, ranks: &[u32]) -> Controller {
    let hosts = ["here", "a", "b", "c"][..ranks.len()].iter().map(|name| name.to_string());
    let run = |(node, count): (usize, &u32)| Run { node: Node(node as u32), count: *count };
    let runs = ranks.iter().enumerate().map(run).collect();
    Controller::new(settings, stages, hosts.collect(), runs, at(0))
}

fn orders(controller: &mut Controller) -> Vec<Order> {
    std::iter::from_fn(|| controller.poll()).collect()
}

/// A job whose daemons are ready: files are brought to them next, or its ranks run.
fn ready(settings: Settings, stages: bool, ranks: &[u32]) -> Controller {
    let mut controller = with(settings, stages, ranks);
    let nodes: Vec<Node> = controller.nodes().collect();
    nodes[1..].iter().for_each(|node| assert!(controller.daemon_arrived(*node)));
    controller.surveyed();
    nodes.iter().for_each(|node| controller.prepared(at(1), *node, Ok(())));
    orders(&mut controller);
    controller
}

/// A job whose ranks run.
fn running(settings: Settings, ranks: &[u32]) -> Controller {
    let controller = ready(settings, false, ranks);
    assert!(controller.is_running());
    controller
}

fn ends(controller: &mut Controller, on: Node, rank: u32, why: Termination) {
    controller.rank_ended(at(5), on, rank, 0, why);
}

fn loses(controller: &mut Controller, node: Node, not_replaced: Option<&str>) {
    let why = "cut".to_owned();
    assert!(controller.loss_heard(node, &why));
    let not_replaced = not_replaced.map(str::to_owned);
    let loss = Loss { node, why, ended_above: None, file: None, not_replaced };
    controller.node_lost(at(5), loss);
}

/// The exit code, and what is said of it, once the job is over.
fn outcome(mut controller: Controller) -> (i32, String) {
    assert_eq!(orders(&mut controller).last(), Some(&Order::Finish));
    let outcome = controller.outcome(None);
    (outcome.code, outcome.why.unwrap_or_default())
}

#[test]
fn a_job_of_two_hosts_begins_and_ends() {
    let settings = Settings { restart_failed: true, ..Settings::default() };
    let mut job = with(settings, true, &[1, 1]);
    assert_eq!(orders(&mut job), [Order::StartDaemons]);
    assert!(job.daemon_arrived(A) && !job.daemon_arrived(A));
    assert_eq!(orders(&mut job), [Order::Survey]);
    job.surveyed();
    assert_eq!(orders(&mut job), [Order::Describe, Order::SetUp(HERE), Order::SetUp(A)]);
    job.prepared(at(1), A, Ok(()));
    assert_eq!(orders(&mut job), []);
    job.prepared(at(1), HERE, Ok(()));
    assert_eq!(orders(&mut job), [Order::Stage, Order::Watch(HERE), Order::Watch(A)]);
    assert!(job.is_staging() && !job.feeds_reader());
    let files = Staged { files: 1, bytes: 7, hosts: 2, took: Duration::from_secs(1) };
    job.staged(at(2), files.clone());
    let start = [Order::AllowRestarts(Some(3)), Order::Start(HERE), Order::Start(A)];
    assert_eq!(orders(&mut job), start);
    assert_eq!((job.deadline(), job.feeds_reader()), (Time::NEVER, true));
    ends(&mut job, HERE, 0, Termination::Exited(0));
    assert_eq!((orders(&mut job), job.feeds_reader()), (vec![], false));
    ends(&mut job, A, 1, Termination::Exited(0));
    assert_eq!(orders(&mut job), [Order::Release(A), Order::Finish]);
    let outcome = job.outcome(None);
    assert_eq!((outcome.code, outcome.why, outcome.staged), (0, None, Some(files)));
    assert_eq!(outcome.ranks[&1], ("a".to_owned(), Termination::Exited(0)));
}

#[test]
fn the_first_failure_is_the_exit_code_and_the_others_are_asked_then_made_to_end() {
    let mut job = running(Settings::default(), &[1, 2]);
    ends(&mut job, A, 1, Termination::Exited(7));
    let both = |signal| [Order::Signal(HERE, signal), Order::Signal(A, signal)];
    let end = [&[Order::AllowRestarts(None)], &both(15)[..]].concat();
    assert_eq!((orders(&mut job), job.deadline()), (end, at(8)));
    ends(&mut job, HERE, 0, Termination::Signalled(15));
    job.time(at(7));
    assert_eq!(orders(&mut job), []);
    job.time(at(8));
    assert_eq!((orders(&mut job), job.deadline()), (both(9).to_vec(), at(11)));
    // Its daemon does not say that the rank has ended.
    job.time(at(11));
    let why = "the daemon there does not end its processes";
    assert_eq!(orders(&mut job), [Order::GiveUp(A, why)]);
    loses(&mut job, A, None);
    assert_eq!(outcome(job), (7, "rank 1 on a: it exited with code 7".to_owned()));
}

#[test]
fn exit_codes_are_those_of_a_shell() {
    let code = |why: Termination| {
        let mut job = running(Settings::default(), &[1]);
        ends(&mut job, HERE, 0, why);
        outcome(job).0
    };
    assert_eq!(code(Termination::Signalled(11)), 139);
    assert_eq!(code(Termination::NotStarted("none".to_owned())), 127);
    assert_eq!(code(Termination::NotFinalized), 1);
    assert_eq!(code(Termination::Failed("cut".to_owned())), 1);
    let abort = |status| {
        let mut job = running(Settings::default(), &[1, 1]);
        job.aborted(at(2), Proc::new(JobId(0), 1), status, "no more");
        ends(&mut job, HERE, 0, Termination::Signalled(15));
        ends(&mut job, A, 1, Termination::Exited(3));
        outcome(job)
    };
    assert_eq!(abort(5), (5, "rank 1 on a aborted the job: no more".to_owned()));
    assert_eq!([abort(0).0, abort(256).0, abort(257).0], [1, 1, 1]);
}

#[test]
fn with_keep_going_the_others_go_on_and_the_first_code_counts() {
    let mut job = running(Settings { keep_going: true, ..Settings::default() }, &[1, 1, 1]);
    ends(&mut job, A, 1, Termination::Exited(5));
    loses(&mut job, B, None);
    assert_eq!(orders(&mut job), []);
    ends(&mut job, HERE, 0, Termination::Exited(0));
    assert_eq!(outcome(job), (5, "rank 1 on a: it exited with code 5".to_owned()));
}

#[test]
fn a_rank_that_is_restarted_has_not_failed() {
    let settings = Settings { keep_going: true, restarts: 2, ..Settings::default() };
    let mut job = running(settings, &[2]);
    ends(&mut job, HERE, 1, Termination::Exited(5));
    job.restarted(1, 1);
    ends(&mut job, HERE, 0, Termination::Exited(0));
    assert!(job.is_running());
    // What comes late of the first process is no news.
    job.rank_ended(at(6), HERE, 1, 0, Termination::Exited(6));
    assert!(job.is_running());
    job.rank_ended(at(6), HERE, 1, 1, Termination::Exited(0));
    assert_eq!(orders(&mut job), [Order::Finish]);
    let outcome = job.outcome(None);
    assert_eq!((outcome.code, outcome.why, outcome.restarts), (0, None, [(1, 1)].into()));
}

#[test]
fn a_rank_that_fails_once_too_often_is_named_with_its_restarts() {
    let settings = Settings { restart_failed: true, restarts: 2, ..Settings::default() };
    for (restarts, said) in [(1, "once"), (2, "2 times")] {
        let mut job = running(settings.clone(), &[1]);
        job.restarted(0, restarts);
        job.rank_ended(at(6), HERE, 0, restarts, Termination::Exited(3));
        let why = format!("rank 0 on here: it exited with code 3, after it was restarted {said}");
        assert_eq!(outcome(job), (3, why));
    }
}

#[test]
fn time_stands_still_while_the_job_is_stopped_and_counts_anew_for_the_ranks() {
    let timeout = Some(Duration::from_secs(10));
    let mut job = ready(Settings { timeout, ..Settings::default() }, true, &[3]);
    assert_eq!(job.deadline(), at(11));
    job.staged(at(5), Staged { files: 1, bytes: 1, hosts: 1, took: Duration::ZERO });
    assert_eq!(job.deadline(), at(15));
    orders(&mut job);
    job.signal(at(6), 20);
    assert_eq!(orders(&mut job), [Order::Signal(HERE, 19), Order::Pause]);
    job.resumed(Duration::from_secs(100));
    assert_eq!((orders(&mut job), job.deadline()), (vec![Order::Signal(HERE, 18)], at(115)));
    ends(&mut job, HERE, 1, Termination::Exited(0));
    job.time(at(115));
    [0, 2].iter().for_each(|rank| ends(&mut job, HERE, *rank, Termination::Signalled(15)));
    assert_eq!(outcome(job), (124, "the time of 10s is over; running: rank 0, 2".to_owned()));
    // Without files it is the time of the ranks alone, and the files have theirs.
    let mut job = ready(Settings { timeout, ..Settings::default() }, true, &[1]);
    job.time(at(11));
    assert_eq!(outcome(job), (124, "the files were not on all nodes within 10s".to_owned()));
}

#[test]
fn signals_end_the_job_or_are_handed_on() {
    let mut job = running(Settings::default(), &[1]);
    job.signal(at(2), 10);
    job.signal(at(2), 12);
    assert_eq!(orders(&mut job), [Order::Signal(HERE, 10), Order::Signal(HERE, 12)]);
    job.signal(at(2), 2);
    assert_eq!(orders(&mut job), [Order::AllowRestarts(None), Order::Signal(HERE, 2)]);
    job.signal(at(2), 15);
    assert_eq!(orders(&mut job), [Order::Signal(HERE, 9)]);
    ends(&mut job, HERE, 0, Termination::Signalled(9));
    assert_eq!(outcome(job), (130, "interrupted by SIGINT".to_owned()));
}

#[test]
fn before_the_ranks_start_signals_reach_only_the_launcher() {
    let mut job = job(Settings::default(), &[1, 1]);
    orders(&mut job);
    job.signal(at(1), 10);
    assert_eq!(orders(&mut job), []);
    job.signal(at(1), 20);
    assert_eq!(orders(&mut job), [Order::Pause]);
    job.resumed(Duration::from_secs(5));
    assert_eq!((orders(&mut job), job.deadline()), (vec![], at(65)));
    job.signal(at(1), 1);
    assert_eq!(outcome(job), (129, "interrupted by SIGHUP".to_owned()));
}

#[test]
fn output_that_is_lost_ends_the_job_or_its_success() {
    let full = || Unwritten::Refused { error: false, why: "it is full".to_owned() };
    let lost = |keep_going: bool, why: Unwritten| {
        let mut job = running(Settings { keep_going, ..Settings::default() }, &[1]);
        job.output_unwritten(at(2), why);
        assert_eq!(job.is_running(), keep_going);
        ends(&mut job, HERE, 0, Termination::Exited(0));
        orders(&mut job);
        job.outcome(None)
    };
    let closed = [false, true].map(|keep_going| lost(keep_going, Unwritten::Closed));
    assert_eq!(
        closed.each_ref().map(|outcome| (outcome.code, outcome.unread)),
        [(141, true), (0, true)]
    );
    for outcome in [false, true].map(|keep_going| lost(keep_going, full())) {
        let why = "output of the ranks is lost: writing to standard output: it is full";
        assert_eq!((outcome.code, outcome.unread), (1, false));
        assert_eq!([outcome.why.as_deref(), outcome.output_lost.as_deref()], [Some(why); 2]);
    }
    // That it is lost may be known only in the end, and whatever failed before comes first.
    let mut job = running(Settings { keep_going: true, ..Settings::default() }, &[1]);
    ends(&mut job, HERE, 0, Termination::Exited(7));
    let outcome = job.outcome(Some(full()));
    assert_eq!((outcome.code, outcome.output_lost.is_some()), (7, true));
}

#[test]
fn a_daemon_that_does_not_come_up_ends_the_job() {
    let mut early = job(Settings::default(), &[0, 1, 1]);
    early.daemon_not_started(at(1), A, B, "exit status: 1");
    let why = "b: no daemon was started there (by the one on a): exit status: 1";
    assert_eq!(outcome(early), (1, why.to_owned()));
    let mut ended = job(Settings::default(), &[0, 1, 1]);
    ended.daemon_arrived(A);
    ended.daemon_not_started(at(1), HERE, A, "signal: 9");
    assert_eq!(outcome(ended), (1, "a: the daemon there has ended: signal: 9".to_owned()));
    // Of those that are late, the ones that others have to start are not named.
    let mut late = job(Settings { fan_out: 1, ..Settings::default() }, &[0, 1, 1, 1]);
    late.daemon_arrived(A);
    late.time(at(60));
    let why = "b: no daemon came up within 60s (2 are missing in all)";
    assert_eq!(outcome(late), (1, why.to_owned()));
    let mut silent = job(Settings::default(), &[1]);
    silent.survey_began(at(9));
    silent.time(at(68));
    assert_eq!(silent.deadline(), at(69));
    silent.time(at(69));
    let why = "the nodes have not said what they have within 60s";
    assert_eq!(outcome(silent), (1, why.to_owned()));
    let mut unready = job(Settings::default(), &[0, 1]);
    unready.daemon_arrived(A);
    unready.surveyed();
    unready.time(at(60));
    assert_eq!(outcome(unready), (1, "a: not ready within 60s".to_owned()));
    let mut refused = job(Settings::default(), &[0, 1]);
    refused.daemon_arrived(A);
    refused.prepared(at(1), A, Err("no room".to_owned()));
    assert_eq!(outcome(refused), (1, "a: no room".to_owned()));
}

#[test]
fn a_host_that_is_lost_before_the_ranks_start_ends_the_job() {
    let lost = |mut job: Controller, ended_above, file: Option<&str>| {
        assert!(job.loss_heard(B, "cut") && !job.loss_heard(B, "again"));
        let (why, file) = ("cut".to_owned(), file.map(Into::into));
        job.node_lost(at(2), Loss { node: B, why, ended_above, file, not_replaced: None });
        outcome(job)
    };
    let gathering = || job(Settings::default(), &[0, 1, 1]);
    let why = |text: &str| (1, text.to_owned());
    assert_eq!(lost(gathering(), None, None), why("b: the daemon there is lost: cut"));
    let above = why("a: the daemon there is lost: it has ended");
    assert_eq!(lost(gathering(), Some(A), None), above);
    let staging = ready(Settings::default(), true, &[0, 1, 1]);
    let file = why("b: /mesh: the daemon there is lost: cut");
    assert_eq!(lost(staging, None, Some("/mesh")), file);
}

#[test]
fn a_spare_takes_the_place_of_a_host_that_is_lost() {
    let settings = Settings { spares: 1, restart_failed: true, restarts: 3, ..Settings::default() };
    let mut job = running(settings, &[1, 2, 0]);
    ends(&mut job, A, 1, Termination::Exited(0));
    assert!(job.loss_heard(A, "cut"));
    job.replaced(A, B);
    job.restarted(2, 1);
    let why = "cut".to_owned();
    let loss = Loss { node: A, why, ended_above: None, file: None, not_replaced: None };
    job.node_lost(at(3), loss);
    assert_eq!((orders(&mut job), job.is_running()), (vec![], true));
    // The spare that is needed is a host as any other.
    ends(&mut job, HERE, 0, Termination::Exited(0));
    job.rank_ended(at(6), B, 2, 1, Termination::Exited(0));
    assert_eq!(orders(&mut job), [Order::Release(B), Order::Finish]);
    let outcome = job.outcome(None);
    let hosts = |rank: u32| outcome.ranks[&rank].0.clone();
    assert_eq!((outcome.code, hosts(1), hosts(2)), (0, "a".to_owned(), "b".to_owned()));
    assert_eq!(outcome.replaced, [("a".to_owned(), "cut".to_owned(), "b".to_owned())]);
}

#[test]
fn a_spare_that_is_lost_is_one_less_and_without_any_the_host_is() {
    let settings = Settings { spares: 1, restart_failed: true, restarts: 3, ..Settings::default() };
    let mut job = running(settings, &[0, 1, 0]);
    loses(&mut job, B, None);
    let line = "the spare host b is lost: cut".to_owned();
    assert_eq!((orders(&mut job), job.is_running()), (vec![Order::Say(line)], true));
    loses(&mut job, A, Some("node 1 is not replaced: no spare node is left"));
    let why = "a is lost (cut), and with it rank 0; node 1 is not replaced: no spare node is left";
    assert_eq!(outcome(job), (1, why.to_owned()));
}

#[test]
fn ranks_that_never_connect_are_named_with_their_hosts() {
    let mut job = running(Settings::default(), &[1, 1]);
    let mut missing = Missing::default();
    missing.add(Proc::new(JobId(0), 1));
    missing.more = 2;
    job.never_connected(at(60), &missing);
    ends(&mut job, HERE, 0, Termination::Exited(0));
    ends(&mut job, A, 1, Termination::Signalled(15));
    let why = "rank 1 on a and 2 more never connected, though others have";
    assert_eq!(outcome(job), (1, why.to_owned()));
}
