//! What all commands have in common, for every command of the tree that `--help` shows: exit codes,
//! `--json`, errors as JSON, the log; and how they behave beside others: tables, hang-ups, metrics.

mod common;

use common::{Place, Ran, Serving, signal, until, wait};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    time::Duration,
};

/// All commands without commands of their own, as the help has them.
fn commands(place: &Place) -> Vec<Vec<String>> {
    let (mut found, mut open) = (Vec::new(), vec![Vec::<String>::new()]);
    while let Some(path) = open.pop() {
        let words: Vec<&str> = path.iter().map(String::as_str).collect();
        // A program of its own, with tests of its own, which need not be there.
        if words == ["bench"] {
            continue;
        }
        let help = place.run(&[&words[..], &["--help"]].concat()).assert(0).out;
        let of = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let below: Vec<String> = of
            .take_while(|line| !line.is_empty())
            .filter_map(|line| line.strip_prefix("  ")?.split(' ').next())
            .filter(|word| !word.is_empty() && *word != "help")
            .map(str::to_owned)
            .collect();
        if below.is_empty() {
            found.push(path.clone());
        }
        open.extend(below.into_iter().map(|word| [path.clone(), vec![word]].concat()));
    }
    found.sort();
    found
}

/// What each command cannot do, whatever the machine: the arguments, the exit code, its word, and a
/// word of the message.
const FAILURES: [(&str, &str, i32, &str, &str); 33] = [
    ("broker reload", "--control missing", 3, "unreachable", "missing"),
    ("broker serve", "--config missing", 2, "usage", "missing"),
    ("broker serve", "--tenant a=a.sock --allow a=b", 2, "usage", "names no tenant"),
    ("broker status", "--control missing", 3, "unreachable", "missing"),
    ("completions", "tcsh", 2, "usage", "tcsh"),
    ("events", "--job nobody", 3, "unreachable", "no such job"),
    ("forward cat", "NOBODY/a", 3, "unreachable", "cannot reach"),
    ("forward get", "NOBODY/a . --retry 10s", 3, "unreachable", "cannot reach"),
    ("forward ls", "NOBODY", 3, "unreachable", "cannot reach"),
    ("forward mkdir", "NOBODY/a", 3, "unreachable", "cannot reach"),
    ("forward mount", "NOBODY missing", 1, "failed", "missing"),
    ("forward mv", "NOBODY/a NOBODY/b", 3, "unreachable", "cannot reach"),
    ("forward put", "file NOBODY --retry 10s", 3, "unreachable", "cannot reach"),
    // Also where nothing is tried again.
    ("forward put", "file NOBODY --retry 0s", 3, "unreachable", "cannot reach"),
    ("forward put", "file tcp://127.0.0.1:1 --retry 0s", 3, "unreachable", "cannot reach"),
    ("forward rm", "NOBODY/a", 3, "unreachable", "cannot reach"),
    ("forward serve", "missing", 2, "usage", "missing"),
    ("forward serve", ". --listen tcp://127.0.0.1:0", 5, "refused", "without a secret"),
    ("forward stat", "NOBODY/a", 3, "unreachable", "cannot reach"),
    ("forward status", "NOBODY", 3, "unreachable", "cannot reach"),
    ("forward sync", "tree NOBODY --retry 10s", 3, "unreachable", "cannot reach"),
    ("info", "NOBODY -t 200ms", 3, "unreachable", "cannot reach"),
    ("limits", "--much", 2, "usage", "--much"),
    ("notify", "7 --job nobody", 3, "unreachable", "no such job"),
    ("ping", "NOBODY -t 200ms", 3, "unreachable", "cannot reach"),
    ("ping", "tcp://127.0.0.1", 2, "usage", "no port"),
    ("provider", "--print-path --print-variables", 2, "usage", "cannot be used with"),
    ("ps", "--all", 2, "usage", "--all"),
    ("query", "pmix.job.size --job nobody", 3, "unreachable", "no such job"),
    ("quickstart", "missing", 2, "usage", "missing"),
    ("run", "--hostfile missing true", 1, "failed", "missing"),
    ("serve", "--listen shm://no/name", 2, "usage", "shm://no/name"),
    ("tune", "--transport nothing", 2, "usage", "`nothing` is no transport"),
];

/// The only line of JSON on standard error.
#[track_caller]
fn error_of(ran: &Ran) -> Value {
    let lines: Vec<Value> =
        ran.err.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let is_error = |line: &Value| line.get("notice").is_none();
    let lines: Vec<Value> = lines.into_iter().filter(is_error).collect();
    assert_eq!(lines.len(), 1, "{ran:?}");
    lines[0]["error"].clone()
}

#[track_caller]
fn check(ran: &Ran, code: i32, kind: &str, message: &str) {
    assert_eq!(ran.code, Some(code), "{ran:?}");
    let error = error_of(ran);
    assert_eq!((&error["code"], &error["kind"]), (&code.into(), &kind.into()), "{ran:?}");
    assert!(error["message"].as_str().unwrap().contains(message), "`{message}`: {ran:?}");
    assert!(error["hint"].is_null() || !error["hint"].as_str().unwrap().is_empty(), "{ran:?}");
    assert!(!ran.err.contains("is lost"), "{ran:?}");
}

#[test]
fn every_command_takes_json_and_says_errors_so() {
    let place = Place::new();
    fs::write(place.path("file"), "").unwrap();
    fs::create_dir(place.path("tree")).unwrap();
    let nobody = format!("shm://nobody-{}", std::process::id());
    let mut tried = BTreeSet::new();
    // All at a time: most of them look for a server for three seconds.
    let begun = FAILURES.map(|(command, arguments, ..)| {
        let arguments = arguments.replace("NOBODY", &nobody);
        let words = command.split(' ').chain(["--json"]).chain(arguments.split(' '));
        let mut command = place.command(&words.collect::<Vec<_>>());
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    });
    for ((command, _, code, kind, message), child) in FAILURES.into_iter().zip(begun) {
        let ran = Ran::of(&child.wait_with_output().unwrap());
        check(&ran, code, kind, message);
        assert!(ran.out.is_empty(), "{ran:?}");
        tried.insert(command.to_owned());
    }
    for command in commands(&place) {
        assert!(tried.contains(&command.join(" ")), "{command:?} is tried nowhere");
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let help = place.run(&[&words[..], &["--help"]].concat()).assert(0).out;
        for option in ["--json", "--log <FILTER>", "-v, --verbose"] {
            assert!(help.contains(option), "{command:?} has no {option}: {help}");
        }
        // Not understood. What follows `run` may be a program of any name.
        let wrong = if words == ["run"] { "--ranks=--no-such-option" } else { "--no-such-option" };
        let asked = [&words[..], &["--json", wrong]].concat();
        check(&place.run(&asked), 2, "usage", "--no-such-option");
        // For people it is text.
        let ran = place.run(&[&words[..], &[wrong]].concat()).assert(2);
        assert!(ran.err.starts_with("error: ") && !ran.err.contains('{'), "{ran:?}");
    }
    check(&place.run(&["--json"]), 2, "usage", "command");
    check(&place.run(&["--json", "fly"]), 2, "usage", "fly");
    check(&place.run(&["ps", "--json", "--log", "a=b=c"]), 2, "usage", "--log");
    place.assert_clean();
}

/// Commands that change something say so to programs, a line each.
#[test]
fn changes_are_said_as_json() {
    let place = Place::new();
    fs::create_dir(place.path("export")).unwrap();
    let mut server = Server::start(&place, &["forward", "serve", "export"], 1);
    let url = server.said[0]["listening"].as_str().unwrap().to_owned();
    let at = |path: &str| format!("{url}/{path}");
    let run = |words: &[&str]| {
        let ran = place.run(&[&["forward", "--json"], words].concat()).assert(0);
        assert_eq!(ran.out.lines().count(), 1, "{ran:?}");
        ran.json()
    };
    assert_eq!(run(&["mkdir", &at("a")])["made"]["path"], "a");
    assert_eq!(run(&["mv", &at("a"), &at("b")])["to"]["path"], "b");
    assert_eq!(run(&["rm", "-r", &at("b")])["removed"]["path"], "b");
    // Several errors are a line each.
    let ran = place.run(&["forward", "rm", "--json", &at("x"), &at("y")]).assert(1);
    assert_eq!(ran.err.lines().count(), 2, "{ran:?}");
    assert!(ran.err.lines().all(|line| line.starts_with(r#"{"error":{"code":1,"#)), "{ran:?}");
    assert_eq!(server.end("INT"), Some(0));
}

/// A server that says where it is as JSON.
struct Server {
    child: Child,
    said: Vec<Value>,
}

impl Server {
    fn start(place: &Place, words: &[&str], lines: usize) -> Server {
        Server::of(&mut place.command(&[words, &["--json"]].concat()), lines)
    }

    fn of(command: &mut Command, lines: usize) -> Server {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines().take(lines);
        let said = out.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
        Server { child, said }
    }

    fn end(&mut self, name: &str) -> Option<i32> {
        signal(self.child.id(), name);
        wait(&mut self.child, Duration::from_secs(20)).code()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `nohup` has a command ignore that its terminal is gone.
#[test]
fn nohup() {
    let place = Place::new();
    fs::create_dir(place.path("export")).unwrap();
    let under = |wrapper: &[&str], words: &[&str]| {
        let whole = place.command(words);
        let mut command = Command::new(wrapper[0]);
        command.args(&wrapper[1..]).arg(whole.get_program()).args(whole.get_args());
        for (name, value) in whole.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(place.directory.path()).stdin(Stdio::null());
        command
    };
    if Command::new("nohup").arg("--version").output().is_err() {
        return petasos_testing::skip("nohup is not installed");
    }
    for words in [&["serve", "--listen", "shm://*"][..], &["forward", "serve", "export"]] {
        let mut command = under(&["nohup"], &[words, &["--json"]].concat());
        let mut server = Server::of(&mut command, 1);
        signal(server.child.id(), "HUP");
        let url = server.said[0]["listening"].as_str().unwrap().to_owned();
        // It answers after that, and ends when it is asked to.
        let ask =
            if words[0] == "serve" { &["ping", "-c", "1"][..] } else { &["forward", "status"] };
        place.run(&[ask, &[&url]].concat()).assert(0);
        assert_eq!(server.end("TERM"), Some(0), "{words:?}");
    }
    // Without nohup a hang-up ends it, as it should.
    // Also where these tests themselves run under nohup.
    let listening = ["serve", "--listen", "shm://*", "--json"];
    let mut whole = under(&["env", "--default-signal=HUP"], &listening);
    let mut server = Server::of(&mut whole, 1);
    assert_eq!(server.end("HUP"), Some(0));
    place.assert_clean();
}

/// Terminals that say nothing of their width, or are narrower than any table.
#[test]
fn tables_on_terminals_of_any_width() {
    let place = Place::new();
    if Command::new("script").arg("--version").output().is_err() {
        return petasos_testing::skip("script is not installed (util-linux)");
    }
    let petasos = env!("CARGO_BIN_EXE_petasos");
    let plain = place.run(&["info"]).assert(0).out;
    for columns in ["0", "1", "20", "80", "300"] {
        let whole = place.command(&[]);
        let mut command = Command::new("script");
        for (name, value) in whole.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env_remove("COLUMNS").env("TERM", "dumb").stdin(Stdio::null());
        let line = format!("stty columns {columns} && {petasos} info");
        let ran = Ran::of(&command.args(["-qec", &line, "/dev/null"]).output().unwrap()).assert(0);
        // Words are whole: each of those that a pipe gets is there.
        let words: BTreeSet<&str> = ran.out.split_whitespace().collect();
        let missing: Vec<_> = ["transport", "coherent", "processor", "libfabric", "credentials"]
            .into_iter()
            .filter(|word| plain.contains(word) && !words.contains(word))
            .collect();
        assert!(missing.is_empty(), "{columns} columns: {missing:?} in\n{}", ran.out);
        if ["0", "300"].contains(&columns) {
            let row = |text: &str| text.lines().any(|l| l.contains("shared memory of this node"));
            assert!(row(&ran.out), "{columns} columns:\n{}", ran.out);
        }
    }
}

#[test]
fn logs() {
    let place = Place::new();
    let url = format!("shm://nobody-{}-log", std::process::id());
    let ping = |words: &[&str], environment: &[(&str, &str)]| {
        let all = [&["ping", &url, "-t", "100ms"], words].concat();
        place.run_with(&all, environment).assert(3).err
    };
    let quiet = ping(&[], &[("RUST_LOG", "")]);
    assert_eq!(quiet.lines().count(), 2, "{quiet}");
    for (words, environment) in [
        (&["-vv"][..], &[("RUST_LOG", "")][..]),
        (&["--log", "debug"], &[("RUST_LOG", "off")]),
        (&[], &[("RUST_LOG", "petasos=debug")]),
    ] {
        let text = ping(words, environment);
        assert!(text.contains("DEBUG") && text.contains("an endpoint was opened"), "{text}");
    }
    // Servers log to standard error, what they say of themselves goes elsewhere.
    fs::create_dir(place.path("export")).unwrap();
    let (serve, forward) =
        (&["serve", "--listen", "shm://*"][..], &["forward", "serve", "export"][..]);
    for (words, how, level) in [
        (serve, &["-v"][..], "INFO"),
        (forward, &["-v"], "INFO"),
        (forward, &["--log", "petasos=debug"], "DEBUG"),
    ] {
        let mut server = Server::start(&place, &[words, how].concat(), 1);
        let err = server.child.stderr.take().unwrap();
        assert_eq!(server.end("INT"), Some(0));
        let text = std::io::read_to_string(err).unwrap();
        assert!(text.contains(level) && text.contains("listening"), "{words:?}: {text}");
        assert!(text.contains("SIGINT"), "{words:?}: {text}");
    }
}

/// What is said beside results is JSON as well, a line each.
#[test]
fn notices_are_lines_of_json() {
    let place = Place::new();
    fs::create_dir(place.path("export")).unwrap();
    for words in [
        &["serve", "--listen", "shm://*"][..],
        &["forward", "serve", "export", "--listen", "shm://*"],
    ] {
        let mut server = Server::start(&place, words, 1);
        let err = server.child.stderr.take().unwrap();
        assert_eq!(server.end("INT"), Some(0));
        let text = std::io::read_to_string(err).unwrap();
        let line = |line: &str| serde_json::from_str::<Value>(line);
        let lines: Result<Vec<Value>, _> = text.lines().map(line).collect();
        let lines = lines.unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"));
        assert!(!lines.is_empty() && lines.iter().all(|line| line["notice"].is_string()), "{text}");
    }
}

/// What cannot be written is lost, and that is no success: of any command that has something to
/// say.
#[test]
fn output_that_cannot_be_written_is_no_success() {
    let place = Place::new();
    fs::create_dir(place.path("export")).unwrap();
    fs::create_dir(place.path("tree")).unwrap();
    for file in ["export/a", "export/b", "file", "tree/a", "tree/libpetasos-fi.so"] {
        fs::write(place.path(file), "some bytes").unwrap();
    }
    let server = Server::start(&place, &["forward", "serve", "export"], 1);
    let answering = Server::start(&place, &["serve", "--listen", "shm://*"], 1);
    let at = |server: &Server| server.said[0]["listening"].as_str().unwrap().to_owned();
    let (url, serving) = (at(&server), at(&answering));
    let _broker =
        Server::start(&place, &["broker", "--tenant", "a=a.sock", "--control", "control"], 1);
    let mut job = place.command(&["run", "sh", "-c", "echo ready; exec sleep 600"]);
    let mut job = Server { child: job.stdout(Stdio::piped()).spawn().unwrap(), said: Vec::new() };
    let ready = BufReader::new(job.child.stdout.take().unwrap()).lines().next();
    assert_eq!(ready.unwrap().unwrap(), "ready");
    let mut tried = BTreeSet::new();
    for line in [
        "--help",
        "--version",
        "run --help",
        "completions bash",
        "info",
        "ping SERVING -c 1",
        "serve --listen shm://*",
        "provider",
        "ps",
        "query pmix.job.size",
        "run echo lost",
        "run --dry-run true",
        "forward serve export",
        "broker --tenant b=b.sock --control another",
        "broker serve --tenant b=b.sock --control another",
        "broker status --control control",
        "forward ls URL",
        "forward stat URL/a",
        "forward cat URL/a",
        "forward status URL",
        "forward put file URL",
        "forward get URL/a copy",
        "forward sync tree URL/tree",
        // These say nothing but to programs.
        "notify 7 --json",
        "forward mkdir URL/d --json",
        "forward mv URL/a URL/c --json",
        "forward rm URL/b --json",
    ] {
        let line = line.replace("URL", &url).replace("SERVING", &serving);
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = place.command(&words);
        command.env("PETASOS_PROVIDER", place.path("tree"));
        command.stdout(fs::File::options().write(true).open("/dev/full").unwrap());
        let ran = Ran::of(&command.output().unwrap());
        assert_eq!(ran.code, Some(1), "{line}: {ran:?}");
        let why = "writing to standard output: No space left on device";
        assert!(ran.err.contains(why), "{line}: {ran:?}");
        tried.extend((1..=2).map(|count| words[..count.min(words.len())].join(" ")));
    }
    // What waits for something, measures for long, or says nothing.
    let others = ["broker reload", "events", "quickstart", "limits", "tune", "forward mount"];
    for command in commands(&place).iter().map(|words| words.join(" ")) {
        let is = tried.contains(&command) || others.contains(&&*command);
        assert!(is, "{command} is tried nowhere");
    }
    let mut events = place.command(&["events", "--count", "1"]);
    events.stdout(fs::File::options().write(true).open("/dev/full").unwrap());
    let mut events = events.stderr(Stdio::null()).spawn().unwrap();
    let ended = until("its end", || {
        place.run(&["notify", "7"]).assert(0);
        events.try_wait().unwrap()
    });
    assert_eq!(ended.code(), Some(1));
    assert_eq!(job.end("TERM"), Some(143));
}

/// Where standard error cannot be written, all else goes on.
#[test]
fn a_full_standard_error_ends_nothing() {
    let place = Place::new();
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let url = format!("shm://full-{}", std::process::id());
    let export = format!("shm://full-export-{}", std::process::id());
    fs::create_dir(place.path("export")).unwrap();
    fs::write(place.path("file"), "a").unwrap();
    for words in [
        &["serve", "--listen", &url, "-vvv"][..],
        &["forward", "serve", "export", "--listen", &export],
    ] {
        let mut command = place.command(words);
        let mut child = command.stdout(Stdio::piped()).stderr(full()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.next().unwrap().unwrap().contains("shm://full"));
        match words[0] {
            "serve" => drop(place.run(&["ping", &url, "-c", "1"]).assert(0)),
            // One of two is missing, which is said where it cannot be.
            _ => {
                let there = format!("{export}/");
                let mut put = place.command(&["forward", "put", "missing", "file", &there]);
                let status = put.stderr(full()).stdout(Stdio::null()).status().unwrap();
                assert_eq!(status.code(), Some(1));
                assert!(place.path("export/file").exists());
            }
        }
        signal(child.id(), "INT");
        assert_eq!(wait(&mut child, Duration::from_secs(20)).code(), Some(0), "{words:?}");
    }
}

/// One request, and the whole answer.
fn get(url: &str) -> String {
    let place = url.strip_prefix("http://").unwrap();
    let (host, path) = place.split_once('/').unwrap();
    let mut socket = TcpStream::connect(host).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(socket, "GET /{path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
    let mut text = String::new();
    socket.read_to_string(&mut text).unwrap();
    text
}

/// A sample, by its name and, where it has one, a label.
fn sample(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.starts_with(name) && !line.starts_with('#'));
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn metrics() {
    let place = Place::new();
    fs::create_dir(place.path("export")).unwrap();
    fs::write(place.path("file"), [7; 1000]).unwrap();
    let listen = ["serve", "--listen", "shm://*", "--metrics", "0"];
    let mut server = Server::start(&place, &listen, 2);
    let url = server.said[0]["listening"].as_str().unwrap().to_owned();
    let metrics = server.said[1]["metrics"].as_str().unwrap().to_owned();
    assert!(metrics.starts_with("http://127.0.0.1:"), "{metrics}");
    place.run(&["ping", &url, "-c", "7", "-i", "0"]).assert(0);
    // A text is given again for a moment.
    let text = until("7 calls", || {
        let text = get(&metrics);
        (sample(&text, "petasos_calls_served_total{") >= 7.0).then_some(text)
    });
    assert!(text.contains("text/plain; version=0.0.4"), "{text}");
    assert_eq!(sample(&text, "petasos_calls_failed_total{"), 0.0);
    assert!(sample(&text, "process_resident_memory_bytes") > 1e6, "{text}");
    // One that has the port already.
    let port = metrics.rsplit(':').next().unwrap().split('/').next().unwrap();
    let taken = ["serve", "--listen", "shm://*", "--metrics", port];
    place.run(&taken).assert(1).says("--metrics").says("another port");
    assert_eq!(server.end("INT"), Some(0));

    let serve = ["forward", "serve", "export", "--metrics", "127.0.0.1:0"];
    let mut server = Server::start(&place, &serve, 2);
    let url = server.said[0]["listening"].as_str().unwrap().to_owned();
    let metrics = server.said[1]["metrics"].as_str().unwrap().to_owned();
    place.run(&["forward", "put", "file", &format!("{url}/secret-name")]).assert(0);
    let text = until("1000 bytes", || {
        let text = get(&metrics);
        (sample(&text, "petasos_forward_written_bytes_total") >= 1000.0).then_some(text)
    });
    assert!(sample(&text, "petasos_forward_calls_total") > 1.0, "{text}");
    assert!(!text.contains("secret-name"), "{text}");
    assert_eq!(server.end("INT"), Some(0));
    // None where none is asked for.
    let mut server = Serving::start(&place, &["--listen", "shm://*"], 1);
    assert_eq!(server.interrupt(), Some(0));
    place.run(&["serve", "--metrics", "nowhere"]).assert(2).says("HOST:PORT");
    place.assert_clean();
}

#[test]
fn what_is_wrong_with_an_address_is_said() {
    let place = Place::new();
    // A part of a name that is longer than any: no name server is asked, which might answer
    // anything, or nothing.
    let name = format!("{}.invalid", "x".repeat(64));
    let (tcp, auto) = (format!("tcp://{name}:4040"), format!("auto://{name}:4040"));
    let missing = format!("`{name}` is not found");
    for (url, code, why) in [
        ("tcp://127.0.0.1", 2, "no port"),
        ("tcp://somewhere", 2, "no port"),
        (&*tcp, 3, &*missing),
        (&*auto, 3, &*missing),
        ("tcp://127.0.0.1:1", 3, "cannot reach tcp://127.0.0.1:1: Connection refused"),
        ("tcp://192.0.2.1:4040", 5, "tcp://192.0.2.1:4040 is on another machine"),
    ] {
        for words in [&["ping", url, "-t", "200ms"][..], &["info", url, "-t", "200ms"]] {
            let ran = place.run(words).assert(code).says(why);
            assert!(code == 5 || !ran.err.contains("secret"), "{ran:?}");
        }
        let ran = place.run(&["forward", "ls", url, "--timeout", "200ms"]).assert(code).says(why);
        assert!(!ran.err.contains("0.0.0.0"), "{ran:?}");
    }
    // A network that the library has not, and one that does not exist.
    for network in common::present(&["ofi+verbs", "ucx+rc"]) {
        let ran = place.run(&["ping", &format!("{network}://127.0.0.1:9"), "-t", "200ms"]);
        if ran.code != Some(3) {
            // Where there is such a network, no server answers.
            ran.assert(6).says("petasos info");
        }
    }
    for network in common::present(&["ofi+nothing", "ucx+nothing"]) {
        let ran = place.run(&["ping", &format!("{network}://127.0.0.1:9"), "-t", "200ms"]);
        ran.assert(2).says("means nothing");
    }
}

#[test]
fn a_port_without_rights() {
    let first: u32 = fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start")
        .map_or(1024, |text| text.trim().parse().unwrap());
    if first <= 80 {
        return petasos_testing::skip("every user may listen at every port here");
    }
    let place = Place::new();
    let copy = place.path("petasos");
    if petasos_testing::is_root() {
        // As another user, which reaches neither this test's directory nor, perhaps, the program.
        // Not by this process: what another test of it starts meanwhile would have the copy open to
        // be written.
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_petasos")).arg(&copy).status();
        assert!(copied.unwrap().success());
        for path in [place.directory.path().to_owned(), place.path("tmp"), copy.clone()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
    }
    let run = |words: &[&str]| {
        let mut command = place.command(&[words, &["--json"]].concat());
        if petasos_testing::is_root() {
            let envs = command.get_envs();
            let envs: Vec<_> =
                envs.filter_map(|(n, v)| Some((n.to_owned(), v?.to_owned()))).collect();
            let mut other = Command::new(&copy);
            other.args(command.get_args()).envs(envs).uid(65534).gid(65534);
            other.current_dir(place.directory.path()).stdin(Stdio::null());
            command = other;
        }
        Ran::of(&command.output().unwrap())
    };
    check(&run(&["serve", "--listen", "tcp://127.0.0.1:80"]), 5, "refused", "listen at port 80");
    fs::create_dir(place.path("export")).unwrap();
    for words in [&["serve", "--listen", "shm://*"][..], &["forward", "serve", "export"]] {
        let ran = run(&[words, &["--metrics", "80"]].concat());
        check(&ran, 5, "refused", "--metrics 127.0.0.1:80");
        let hint = error_of(&ran)["hint"].as_str().unwrap().to_owned();
        assert!(hint.contains("1024 or more"), "{hint}");
    }
}

/// What a newcomer needs to know stands in the README, and is what the manifests say.
#[test]
fn the_readme_says_what_is_needed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |name: &str| fs::read_to_string(root.join(name)).unwrap();
    let wanted = env!("CARGO_PKG_RUST_VERSION");
    assert!(!wanted.is_empty(), "the manifest names no Rust");
    let outside = ["tools/fuzz", "tools/guide", "faces/python"].map(|member| root.join(member));
    for workspace in outside.iter().chain([&root]) {
        let manifest = workspace.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        let said = text.contains(&format!("rust-version = \"{wanted}\""));
        assert!(said, "{}", manifest.display());
    }
    let roles = ["core", "transports", "protocols", "services", "faces", "tools"];
    let members = roles.iter().flat_map(|role| fs::read_dir(root.join(role)).unwrap());
    for member in members.map(|entry| entry.unwrap().path()).filter(|path| !outside.contains(path))
    {
        let manifest = member.join("Cargo.toml");
        let text = fs::read_to_string(&manifest).unwrap();
        assert!(text.contains("rust-version.workspace = true"), "{}", manifest.display());
    }
    let readme = read("README.md");
    // Before and behind the first command, and the tests' own.
    let mut parts = readme.splitn(3, "```sh\n");
    let [start, tests] = [parts.next().unwrap(), parts.next().unwrap()];
    for word in [&format!("Rust {wanted}"), "rustup", "minutes", "GiB"] {
        assert!(start.contains(word), "`{word}` is not before the first command");
    }
    for word in ["half an hour", "GiB"] {
        assert!(tests.contains(word), "`{word}` is not before the tests' command");
    }
}
