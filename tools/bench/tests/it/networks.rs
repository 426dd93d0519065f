//! The same over transports that not every machine has: only the URL changes.

use crate::common::{NETWORKS, Place, present};

/// Parts of `bench` that take seconds, with a figure that each has.
const PARTS: [(&str, &str); 6] = [
    ("null", "null call, spinning"),
    ("echo", "echo, 64 B"),
    ("clients", "clients, 4"),
    ("connect", "first call of a new peer"),
    ("engines", "two engines, blocking"),
    ("portals", "put, "),
];

/// Parts that take minutes over all networks: measured if `PETASOS_ALL_BENCHES` is set.
const LONG_PARTS: [(&str, &str); 3] =
    [("bulk", "pull, 1 MiB"), ("pipeline", "pull and work"), ("channels", "exclusive RDMA, bare")];

#[test]
fn benches() {
    let long = std::env::var_os("PETASOS_ALL_BENCHES").map_or(&[][..], |_| &LONG_PARTS[..]);
    let all: Vec<_> = PARTS.iter().chain(long).collect();
    for network in present(&NETWORKS) {
        let place = Place::new();
        let parts: Vec<_> = all.iter().map(|(part, _)| *part).collect();
        let brief = ["--transport", network, "--quick", "--rounds", "1", "--time", "1ms", "--json"];
        let ran = place.run(&[&["bench"], &parts[..], &brief[..]].concat());
        let report = ran.assert(0).json();
        let figures = report["figures"].as_array().unwrap();
        for (part, what) in &all {
            let named = |figure: &serde_json::Value| {
                figure["transport"] == network
                    && figure["what"].as_str().is_some_and(|name| name.contains(what))
                    && figure["value"].as_f64().is_some_and(|value| value > 0.0)
            };
            assert!(figures.iter().any(named), "{network}: no `{what}` of {part} in {report}");
        }
        place.assert_clean();
    }
}

#[test]
fn networks_that_do_not_exist() {
    let place = Place::new();
    for network in present(&["ofi+nothing", "ucx+nothing"]) {
        let ran = place.run(&["bench", "null", "--quick", "--transport", network]);
        assert_ne!(ran.code, Some(0));
        ran.says(network);
    }
    let wrong = ["bench", "null", "--quick", "--transport", "shm+x"];
    assert_ne!(place.run(&wrong).code, Some(0));
}
