//! Jobs at a terminal: programs that ask for it, Ctrl-Z, and the background.

use crate::{
    common::{Place, signal, until, wait},
    hosts::{START, three},
};
use petasos_testing::{Hosts, skip};
use std::{
    fs,
    io::{Read, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex},
    thread::JoinHandle,
    time::Duration,
};

/// Runs a command with a terminal of its own, of which this process has the other side by pipes.
const PTY: &str = "\
import os, pty, sys
status = pty.spawn(sys.argv[1:])
sys.exit(os.waitstatus_to_exitcode(status))
";

/// A command at a terminal; it loses that, and ends, when this is dropped.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    said: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    fn start(place: &Place, program: &str, arguments: &[&str]) -> Option<Terminal> {
        if Command::new("python3").arg("-V").output().is_err() {
            skip("python3 is not here");
            return None;
        }
        let mut command = Command::new("python3");
        command.args(["-c", PTY, program]).args(arguments).env("TMPDIR", place.path("tmp"));
        command.env_remove("XDG_RUNTIME_DIR").env("PS1", "$ ").env("TERM", "dumb");
        command.current_dir(place.directory.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (keys, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let said = Arc::new(Mutex::new(String::new()));
        let heard = said.clone();
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(len @ 1..) = from.read(&mut bytes) {
                heard.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..len]));
            }
        });
        Some(Terminal { child, keys, said, reader: Some(reader) })
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().clone()
    }

    fn says(&self, what: &str) {
        until(&format!("`{what}` in `{}`", self.said()), || {
            self.said().contains(what).then_some(())
        });
    }

    /// The numbers behind this word, each at the end of a line, when there are so many.
    fn numbers(&self, word: &str, count: usize) -> Vec<u32> {
        until("their numbers", || {
            let said = self.said();
            let numbers =
                said.lines().filter_map(|line| line.trim().split_once(word)?.1.parse().ok());
            Some(numbers.collect::<Vec<u32>>()).filter(|numbers| numbers.len() == count)
        })
    }

    /// Has the shell end by these words, when these processes have ended: as long as the launcher
    /// is there it may read what is meant for the shell.
    fn leaves(mut self, launchers: &[u32], words: &str) -> (Option<i32>, String) {
        for launcher in launchers {
            until("the end of the launcher", || field(*launcher, 0).is_none().then_some(()));
        }
        self.types(words);
        self.ends()
    }

    fn ends(mut self) -> (Option<i32>, String) {
        let status = wait(&mut self.child, Duration::from_secs(30));
        self.reader.take().unwrap().join().unwrap();
        (status.code(), self.said())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A field of what the system says of a process, of those behind its name; nothing of one that is
/// gone.
fn field(pid: u32, at: usize) -> Option<String> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    line.rsplit_once(") ")?.1.split(' ').nth(at).map(str::to_owned)
}

fn is_stopped(pid: u32) -> bool {
    field(pid, 0).expect("a process") == "T"
}

fn parent(pid: u32) -> u32 {
    field(pid, 1).unwrap().parse().unwrap()
}

#[test]
fn an_interactive_shell_reads_what_comes_and_does_not_wait_for_the_terminal() {
    let place = Place::new();
    let arguments = ["run", "bash", "--norc", "-i"];
    let program = env!("CARGO_BIN_EXE_petasos");
    let Some(mut terminal) = Terminal::start(&place, program, &arguments) else { return };
    terminal.types("echo a$((1+1))b\nexit 3\n");
    let (code, said) = terminal.ends();
    assert!(code == Some(3) && said.contains("a2b"), "{code:?}: {said}");
    place.assert_clean();
}

#[test]
fn ctrl_z_stops_the_whole_job_and_the_shell_has_it_go_on() {
    let place = Place::new();
    let Some(mut terminal) = Terminal::start(&place, "bash", &["--norc", "-i"]) else { return };
    // One process: a shell that is just starting another waits for it in the kernel, and does not
    // stop before that has.
    let script = "echo rank $$; exec sleep 600";
    let program = env!("CARGO_BIN_EXE_petasos");
    terminal.types(&format!("{program} run -n 2 sh -c '{script}'\n"));
    let ranks = terminal.numbers("rank ", 2);
    let launcher = parent(ranks[0]);
    terminal.types("\x1a");
    until("all to stop", || {
        (is_stopped(launcher) && ranks.iter().all(|rank| is_stopped(*rank))).then_some(())
    });
    terminal.types("fg\n");
    until("all to go on", || {
        (!is_stopped(launcher) && ranks.iter().all(|rank| !is_stopped(*rank))).then_some(())
    });
    // And once more.
    terminal.types("\x1a");
    until("all to stop", || ranks.iter().all(|rank| is_stopped(*rank)).then_some(()));
    terminal.types("fg\n");
    until("all to go on", || ranks.iter().all(|rank| !is_stopped(*rank)).then_some(()));
    terminal.types("\x03");
    terminal.says("interrupted by SIGINT");
    let (code, said) = terminal.leaves(&[launcher], "exit 0\n");
    assert_eq!(code, Some(0), "{said}");
    place.assert_clean();
}

#[test]
fn ctrl_z_stops_the_ranks_of_all_hosts() {
    let Some(hosts) = Hosts::several(3) else { return };
    let place = Place::new();
    let Some(mut terminal) = Terminal::start(&place, "bash", &["--norc", "-i"]) else { return };
    let (list, program) = (three(&hosts, [1, 1, 1]), env!("CARGO_BIN_EXE_petasos"));
    let start = format!("{} '{}'", START[0], START[1]);
    let run =
        format!("{program} run -n 3 --hosts {list} {start} sh -c 'echo rank $$; exec sleep 600'");
    terminal.types(&format!("ip netns exec {} {run}\n", hosts.name('a')));
    let ranks = terminal.numbers("rank ", 3);
    // The launcher is one of them.
    let daemons: Vec<u32> = ranks.iter().map(|rank| parent(*rank)).collect();
    for _ in 0..2 {
        terminal.types("\x1a");
        until("all to stop", || ranks.iter().all(|rank| is_stopped(*rank)).then_some(()));
        terminal.types("fg\n");
        until("all to go on", || ranks.iter().all(|rank| !is_stopped(*rank)).then_some(()));
    }
    terminal.types("\x03");
    terminal.says("interrupted by SIGINT");
    let (code, said) = terminal.leaves(&daemons, "exit 0\n");
    assert_eq!(code, Some(0), "{said}");
    place.assert_clean();
}

/// While a job is stopped its time does not pass.
#[test]
fn the_time_of_a_job_stands_still_while_it_is_stopped() {
    let place = Place::new();
    let Some(mut terminal) = Terminal::start(&place, "bash", &["--norc", "-i"]) else { return };
    let program = env!("CARGO_BIN_EXE_petasos");
    terminal.types(&format!(
        "{program} run --timeout 4s sh -c 'echo rank $$; read line; echo $line-ward; exit 3'\n"
    ));
    let [rank] = terminal.numbers("rank ", 1)[..] else { panic!() };
    let launcher = parent(rank);
    terminal.types("\x1a");
    until("all to stop", || (is_stopped(launcher) && is_stopped(rank)).then_some(()));
    // What is tested is that time passes.
    std::thread::sleep(Duration::from_millis(4200));
    terminal.types("fg\n");
    until("all to go on", || (!is_stopped(launcher) && !is_stopped(rank)).then_some(()));
    terminal.types("on\n");
    terminal.says("on-ward");
    let (code, said) = terminal.leaves(&[launcher], "exit $?\n");
    assert_eq!(code, Some(3), "{said}");
    place.assert_clean();
}

#[test]
fn in_the_background_a_job_leaves_what_is_typed_to_others() {
    let place = Place::new();
    let Some(mut terminal) = Terminal::start(&place, "bash", &["--norc", "-i"]) else { return };
    let program = env!("CARGO_BIN_EXE_petasos");
    terminal.types(&format!("{program} run sh -c 'echo rank $$; exec cat' &\n"));
    let [rank] = terminal.numbers("rank ", 1)[..] else { panic!() };
    let launcher = parent(rank);
    for n in 1..6 {
        terminal.types(&format!("echo c$(({n}+1))d\n"));
        terminal.says(&format!("c{}d", n + 1));
        assert!(!is_stopped(launcher), "{}", terminal.said());
    }
    // It still does what it is there for.
    signal(launcher, "USR1");
    terminal.types("fg\n");
    terminal.says("signal 10");
    terminal.types("exit 0\n");
    assert_eq!(terminal.ends().0, Some(0));
    place.assert_clean();
}
