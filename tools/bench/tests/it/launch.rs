//! `petasos bench launch`: what it measures, what it prints, and that it leaves nothing. Speed is
//! not asserted, and which launchers are installed is not known.

use crate::common::Place;
use serde_json::Value;
use std::{collections::BTreeSet, fs};

/// The lines of a table.
fn lines<'a>(results: &'a Value, table: &str) -> Vec<&'a Value> {
    let lines = results["lines"].as_array().unwrap_or_else(|| panic!("no lines in {results}"));
    lines.iter().filter(|line| line["table"] == table).collect()
}

/// The launchers that have a figure in a line.
fn launchers(line: &Value) -> BTreeSet<&str> {
    let standings = line["standings"].as_array().unwrap().iter();
    standings
        .map(|one| {
            assert!(one["value"].as_f64() > Some(0.0), "{line}");
            assert!(!one["rounds"].as_array().unwrap().is_empty(), "{line}");
            one["launcher"].as_str().unwrap()
        })
        .collect()
}

#[test]
fn everything_is_measured_for_all_launchers_that_are_installed() {
    let place = Place::new();
    let what =
        ["bench", "launch", "-n", "2", "--nodes", "5,20", "--rounds", "1", "--report", "page"];
    let results = place.run(&[&what[..], &["--json"]].concat()).assert(0).json();
    let within = lines(&results, "within");
    let keys: BTreeSet<&str> = within.iter().map(|line| line["key"].as_str().unwrap()).collect();
    let expected = [
        "init",
        "init_cpu",
        "private",
        "job_get",
        "first_get",
        "again_get",
        "put",
        "commit",
        "fence",
        "full_fence",
        "event",
        "hop",
    ];
    assert!(expected.iter().all(|key| keys.contains(key)), "{keys:?}");
    let skipped = results["skipped"].to_string();
    for line in within {
        assert!(launchers(line).contains("petasos"), "{line}");
        if !skipped.contains("libpmix: ") && !skipped.contains("OpenPMIx") {
            assert!(launchers(line).contains("open-pmix") && line["ahead"].is_number(), "{line}");
            assert!(launchers(line).contains("petasos-libpmix"), "{line}");
        }
    }
    let start = lines(&results, "start");
    assert!(launchers(start[0]).is_superset(&BTreeSet::from(["petasos", "bare"])), "{results}");
    for line in lines(&results, "wire-up") {
        let names = line["standings"].to_string();
        for modex in ["instant on", "direct exchange", "full exchange"] {
            assert!(names.contains(modex), "{line}");
        }
    }
    assert_eq!(lines(&results, "simulated").len(), 6, "three figures, of 5 and of 20 nodes");
    let written = fs::read_to_string(place.path("page/results.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), results);
    let page = fs::read_to_string(place.path("page/index.html")).unwrap();
    for title in ["Fences", "First gets", "Jobs that do nothing", "How it was measured"] {
        assert!(page.contains(&format!("<h2>{title}</h2>")), "{title}");
    }
    assert!(!page.contains("NaN") && !page.contains("inf\""), "coordinates are numbers");
    place.assert_clean();
}

#[test]
fn missing_launchers_are_named() {
    let place = Place::new();
    let what = ["bench", "launch", "within", "-n", "2", "--rounds", "1", "--json"];
    let results = place.run_with(&what, &[("PATH", "/nonexistent")]).assert(0).json();
    let skipped = results["skipped"].to_string();
    for package in ["openmpi-bin", "mpich", "gcc"] {
        assert!(skipped.contains(&format!("(package {package})")), "{skipped}");
    }
    for line in lines(&results, "within") {
        assert!(launchers(line).is_subset(&BTreeSet::from(["petasos", "bare"])), "{line}");
        assert!(line["ahead"].is_null(), "{line}");
    }
    place.assert_clean();
}

#[test]
fn larger_jobs_than_wanted_are_left_out() {
    let place = Place::new();
    let what =
        ["bench", "launch", "wire-up", "-n", "1,2,3", "--most", "2", "--rounds", "1", "--json"];
    let results = place.run_with(&what, &[("PATH", "/nonexistent")]).assert(0).json();
    let sizes: BTreeSet<_> =
        lines(&results, "wire-up").iter().filter_map(|line| line["size"].as_u64()).collect();
    assert_eq!(sizes, BTreeSet::from([1, 2]));
    place.run(&["bench", "launch", "-n", "0"]).assert(2).says("--ranks");
    place.run(&["bench", "launch", "startt"]).assert(2).says("start");
    place.assert_clean();
}
