//! Every limit can be measured, and what comes out makes sense. Speed is not judged here.

use std::time::{Duration, Instant};

use super::*;

fn quick() -> Plan {
    Plan { time: Duration::from_millis(40), batches: 20, ..Plan::default() }
}

fn check_round_trip(result: &RoundTrip) {
    assert!(result.median > 0.0, "{result:?}");
    assert!(0.0 < result.p50 && result.p50 <= result.p99, "{result:?}");
    assert!(result.p99 <= result.p99_9, "{result:?}");
    assert!(result.samples > 0 && result.batches > 0 && result.batch > 0, "{result:?}");
    assert!(!result.how.contains('\n'), "{result:?}");
}

#[test]
fn round_trips() {
    for (name, measure) in ROUND_TRIPS {
        let result = measure(&quick()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(result.name, name);
        check_round_trip(&result);
    }
}

#[test]
fn calls_of_many_clients() {
    let alone = Cores { client: Some(0), server: Some(0) };
    for (plan, clients) in [(quick(), 1), (quick(), 5), (Plan { cores: alone, ..quick() }, 3)] {
        for measure in [calls_of_many, tcp_calls_of_many] {
            let rate = measure(&plan, &plan.cores.of_clients(), clients);
            let rate = rate.unwrap_or_else(|error| panic!("{clients} clients: {error}"));
            assert!(rate.is_finite() && rate > 0.0, "{clients} clients: {rate}");
        }
    }
}

#[test]
fn tcp_messages_of_any_size() {
    for waiting in [Waiting::Spinning, Waiting::Sleeping] {
        for bytes in [1, 1024, 1 << 20] {
            check_round_trip(&tcp::tcp_echo(&quick(), waiting, bytes).unwrap());
        }
        assert!(matches!(tcp::tcp_echo(&quick(), waiting, 0), Err(LimitError::EmptySize)));
    }
}

#[test]
fn round_trips_on_one_core() {
    let core = Cores::pick().client;
    let plan = Plan { cores: Cores { client: core, server: core }, ..quick() };
    assert!(core.is_none() || plan.cores.alone());
    for (name, measure) in ROUND_TRIPS {
        let begin = Instant::now();
        let result = measure(&plan).unwrap_or_else(|error| panic!("{name}: {error}"));
        check_round_trip(&result);
        assert!(core.is_none() || result.how.contains("yield"), "{result:?}");
        assert!(begin.elapsed() < Duration::from_secs(10), "{name}");
    }
}

#[test]
fn bulk_by_size() {
    // Odd sizes, and back to a small one: nothing of the larger may be left on the way.
    let sizes = [1, 4096, 3_000_001, 64];
    for (name, measure) in BULKS {
        let begin = Instant::now();
        let result = measure(&quick(), &sizes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(begin.elapsed() < Duration::from_secs(10), "{name}");
        assert_eq!(result.name, name);
        assert_eq!(result.points.iter().map(|point| point.bytes).collect::<Vec<_>>(), sizes);
        for point in &result.points {
            assert!(0.0 < point.median && point.median <= point.best, "{result:?}");
            assert!(point.samples > 0, "{result:?}");
        }
        assert!(matches!(measure(&quick(), &[1, 0]), Err(LimitError::EmptySize)));
        assert!(measure(&quick(), &[]).unwrap().points.is_empty());
    }
}

#[test]
fn results_are_json() {
    let result = cache_line_round_trip(&quick()).unwrap();
    let json = serde_json::to_value(&result).unwrap();
    assert_eq!(json["name"], "cache_line");
    assert_eq!(json["unit"], "ns");
    assert!(json["p99_9"].as_f64().unwrap() > 0.0);
}

#[test]
fn the_callers_cores_stay_as_they_were() {
    let before = rustix::thread::sched_getaffinity(None).unwrap();
    memcpy(&quick(), &[4096]).unwrap();
    futex_round_trip(&quick()).unwrap();
    assert_eq!(rustix::thread::sched_getaffinity(None).unwrap(), before);
}
