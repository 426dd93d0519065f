//! `petasos bench peers`, with and without the other stacks.

use crate::common::Place;

#[cfg(not(feature = "peers"))]
#[test]
fn without_the_other_stacks_it_says_how_to_get_them() {
    let place = Place::new();
    let ran = place.run(&["bench", "null", "peers", "--quick"]).assert(2);
    ran.says("not built into this petasos-bench").says("--features peers");
    place.assert_clean();
}

#[cfg(feature = "peers")]
mod built_in {
    use super::*;
    use crate::common::{signal, until, wait};
    use serde_json::Value;
    use std::{
        fs,
        process::{Child, Stdio},
        time::{Duration, Instant},
    };

    #[test]
    fn a_quick_bench_of_all() {
        let place = Place::new();
        // Most of the time is that of starting the other stacks, which each round does.
        let brief = ["--quick", "--rounds", "1", "--time", "1ms", "--json"];
        let report = place.run(&[&["bench", "peers"], &brief[..]].concat()).assert(0).json();
        let lines = report["peers"]["standings"].as_array().unwrap();
        let of = |stack: &str, transport: &str| -> Vec<&Value> {
            lines.iter().filter(|l| l["stack"] == stack && l["transport"] == transport).collect()
        };
        for transport in ["shm", "tcp"] {
            // Echoes of two sizes, three rates and a large argument, spinning and asleep.
            for stack in ["petasos", "tarpc", "tonic", "Cap'n Proto RPC"] {
                let expected = if stack == "petasos" { 12 } else { 6 };
                assert_eq!(of(stack, transport).len(), expected, "{stack} over {transport}");
            }
            // Without calls, of two sizes, spinning.
            assert_eq!(of("petasos, message", transport).len(), 2, "over {transport}");
        }
        assert_eq!(of("iceoryx2", "shm").len(), 6);
        // A large argument is lent where it can be read in place, spinning and asleep.
        assert_eq!(of("petasos, loan", "shm").len(), 2);
        assert_eq!(of("petasos, loan", "tcp").len(), 0);
        for line in lines {
            for key in ["value", "of_machine", "of_petasos"] {
                assert!(line[key].as_f64().unwrap() > 0.0, "{line}");
            }
            assert_eq!(line["rounds"].as_array().unwrap().len(), 1, "{line}");
        }
        let skipped = report["peers"]["skipped"].as_array().unwrap();
        let missing = |s: &Value| s["why"].as_str().unwrap().contains("is not installed: ");
        assert!(skipped.iter().all(missing), "{skipped:?}");
        let named = report["peers"]["peers"].as_array().unwrap().len() + skipped.len();
        assert_eq!(named, 7, "{report}");
        place.assert_clean();
    }

    #[test]
    fn peers_of_one_transport() {
        let place = Place::new();
        // No programs here: they are skipped, with the package that has them.
        let brief = ["--quick", "--rounds", "1", "--time", "1ms", "--transport", "shm"];
        let mut command = place.command(&[&["bench", "peers"], &brief[..]].concat());
        let output = command.env("PATH", place.path("tmp")).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}");
        for word in ["iceoryx2", "tonic, unix socket", "apt-get install libfabric-bin", "ucx-utils"]
        {
            assert!(text.contains(word), "`{word}` is not in {text}");
        }
        assert!(!text.contains("tcp"), "{text}");
        place.assert_clean();
    }

    #[test]
    fn the_hidden_subcommand_is_not_for_people() {
        Place::new().run(&["peer-process"]).assert(2).says("petasos bench peers");
    }

    /// Processes below `pid`.
    fn below(pid: u32) -> Vec<u32> {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        let text: String = lists.collect::<Vec<_>>().join(" ");
        text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    fn begun(place: &Place) -> (Child, Vec<u32>) {
        let arguments = ["bench", "peers", "--quick", "--json"];
        let child = place.command(&arguments).stdout(Stdio::null()).spawn().unwrap();
        // The two servers of our own, and those of some peers.
        let servers = until("servers of peers", || {
            let below = below(child.id());
            (below.len() >= 4).then_some(below)
        });
        (child, servers)
    }

    fn assert_ended(servers: &[u32]) {
        until("the servers end", || {
            let runs = |pid: &&u32| {
                let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
                // There may be no process to reap them.
                !status.is_empty() && !status.contains(") Z ")
            };
            servers.iter().find(runs).is_none().then_some(())
        });
    }

    #[test]
    fn interrupted_or_killed_it_leaves_nothing() {
        for (name, code) in [("INT", Some(130)), ("KILL", None)] {
            let place = Place::new();
            let (mut child, servers) = begun(&place);
            signal(child.id(), name);
            let begin = Instant::now();
            assert_eq!(wait(&mut child, Duration::from_secs(10)).code(), code);
            assert_ended(&servers);
            assert!(begin.elapsed() < Duration::from_secs(10));
            place.assert_clean();
        }
    }
}
