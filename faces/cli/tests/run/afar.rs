//! On three hosts: what single hosts are tested for elsewhere, where daemons have to tell each
//! other.

use crate::{
    common::Place,
    hosts::{START, on_a, three},
    lives, pmix, text,
};
use petasos_testing::Hosts;
use std::path::Path;

/// What a program says with these numbers of ranks on the hosts, and its exit code.
fn run(place: &Place, hosts: &Hosts, slots: [u32; 3], words: &[&str]) -> (Option<i32>, String) {
    let count = slots.iter().sum::<u32>().to_string();
    let list = three(hosts, slots);
    listed(place, hosts, &[&["-n", &count, "--hosts", &list], words].concat())
}

/// The same of a job with these options. It hangs no longer than a time.
fn listed(place: &Place, hosts: &Hosts, words: &[&str]) -> (Option<i32>, String) {
    let options = ["run", "--timeout", "60s", START[0], START[1]];
    let output = on_a(hosts, &place.command(&[&options[..], words].concat())).output().unwrap();
    (output.status.code(), text(&output))
}

fn path(program: &Path) -> &str {
    program.to_str().unwrap()
}

#[test]
fn programs_of_the_pmix_library_begin_again_and_wait_for_keys() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let Some(program) = lives::lives(&place) else { return };
    for what in ["cycles", "refused"] {
        let (code, said) = run(&place, &hosts, [1, 1, 1], &[path(&program), what]);
        assert!(code == Some(0) && said.matches("is well").count() == 3, "{what}: {said}");
    }
    // Rank 2, which asks for a key of whichever rank, is beside the one that puts it, and rank 1 is
    // not.
    let list = format!("localhost:2,{}:1", hosts.name('b'));
    let words = ["-n", "3", "--map", "by-node", "--hosts", &list, path(&program), "late"];
    let (code, said) = listed(&place, &hosts, &words);
    assert!(code == Some(0) && said.matches("is well").count() == 3, "{said}");
    let (code, said) = run(&place, &hosts, [1, 1, 1], &[path(&program), "leave"]);
    assert!(code == Some(1) && said.contains("rank 1 on ") && said.contains(lives::LEFT), "{said}");
    place.assert_clean();
}

#[test]
fn what_is_found_in_part_or_refused_or_large_is_so_between_hosts() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let Some(program) = pmix::program(&place) else { return };
    for (what, slots) in [("strictly", [1, 1, 1]), ("insistent", [0, 1, 1])] {
        let (code, said) = run(&place, &hosts, slots, &[path(&program), what]);
        let count = slots.iter().sum::<u32>() as usize;
        assert!(code == Some(0) && said.matches("is well").count() == count, "{what}: {said}");
    }
    // Neither rank is where the launcher is.
    let words = ["--keep-going", path(&program), "large"];
    let (code, said) = run(&place, &hosts, [0, 1, 1], &words);
    assert!(code == Some(1) && said.matches("is well").count() == 2, "{said}");
    for why in pmix::TOO_LARGE {
        assert_eq!(said.matches(why).count(), 1, "{why}: {said}");
    }
    place.assert_clean();
}

/// Of three hosts one has more ranks than processors.
#[test]
fn ranks_know_whether_those_of_their_own_host_share_processors() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let most = std::thread::available_parallelism().unwrap().get();
    let many = u32::try_from(most + 1).unwrap();
    let slots = [1, many, 1];
    let script = format!("{}; echo \"$said on=$PETASOS_NODE_NAME\"", lives::SHARING);
    let (code, said) = run(&place, &hosts, slots, &["sh", "-c", &script]);
    assert_eq!(code, Some(0), "{said}");
    let lines = |line: &str| said.lines().filter(|said| said.starts_with(line)).count();
    let crowded = format!("idle=1 session= on={}", hosts.name('b'));
    assert_eq!((lines(&crowded), lines("idle= ")), (most + 1, 2), "{said}");
    let Some(program) = lives::lives(&place) else { return };
    let (code, said) = run(&place, &hosts, slots, &[path(&program), "crowded"]);
    let count = |word| said.matches(word).count();
    assert_eq!((code, count("is crowded"), count("is alone")), (Some(0), most + 1, 2), "{said}");
    place.assert_clean();
}

#[test]
fn variables_directories_and_more_ranks_than_slots_reach_other_hosts() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    let list = three(&hosts, [1, 1, 1]);
    // As it is where ssh starts the daemon: nothing of this environment comes along by itself.
    let start = "ip netns exec {host} env -u DISPLAY -u NAME_OF_NO_MEANING";
    let script = "echo $(basename $PWD) d=$DISPLAY n=$NAME_OF_NO_MEANING on $PETASOS_NODE_NAME";
    let run = |options: &[&str]| {
        let common = ["run", "--hosts", &list, "--remote-start", start];
        let words = [&common[..], options, &["sh", "-c", script]].concat();
        let mut command = place.command(&words);
        command.env("DISPLAY", ":7").env("NAME_OF_NO_MEANING", "x");
        let output = on_a(&hosts, &command).output().unwrap();
        (output.status.code(), text(&output))
    };
    let lines = |said: &str, host: char, line: &str| {
        let line = format!("{line} on {}", hosts.name(host));
        said.lines().filter(|said| **said == line).count()
    };
    let (code, said) = run(&["-n", "3"]);
    assert_eq!(code, Some(0), "{said}");
    let here = place.directory.path().file_name().unwrap().to_str().unwrap();
    let line = format!("{here} d= n=x");
    assert_eq!((lines(&said, 'b', &line), lines(&said, 'c', &line)), (1, 1), "{said}");
    let (code, said) = run(&["-n", "3", "-x", "DISPLAY", "--wdir", "elsewhere"]);
    assert_eq!(code, Some(0), "{said}");
    let line = "elsewhere d=:7 n=x";
    assert_eq!((lines(&said, 'b', line), lines(&said, 'c', line)), (1, 1), "{said}");
    let (code, said) = run(&["-n", "5"]);
    assert!(code == Some(2) && said.contains("5 ranks are more"), "{said}");
    let (code, said) = run(&["-n", "5", "--oversubscribe"]);
    let line = format!("{here} d= n=x");
    let far = lines(&said, 'b', &line) + lines(&said, 'c', &line);
    assert!(code == Some(0) && far >= 3 && said.matches(" on ").count() == 5, "{said}");
    place.assert_clean();
}
