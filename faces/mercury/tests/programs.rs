//! Programs of C, which know the headers alone, with the library: see `tests/c`.

use petasos::OpenOptions;
use petasos_fabric::{Address, Clock, Level, Operation, Payload, Region, Token};
use std::{
    env, fs,
    io::Read,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

/// The folder of the programs, with the library as it is installed.
struct Made {
    folder: PathBuf,
    _all: tempfile::TempDir,
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A compiler with our headers.
fn compiler(name: &str) -> Command {
    let mut command = Command::new(name);
    command.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(source("include"));
    command
}

fn library() -> PathBuf {
    let test = env::current_exe().expect("a test binary has a path");
    let library = test.with_file_name("libmercury.so");
    assert!(library.exists(), "{} was built with the test", library.display());
    library
}

/// Compiles a program, linked to the library.
fn compile(folder: &Path, files: &[&str], into: &str) {
    let mut command = compiler("cc");
    command.args(["-std=gnu11", "-O1", "-g", "-pthread", "-o"]).arg(folder.join(into));
    command.args(files.iter().map(|file| source(&format!("tests/c/{file}.c"))));
    command.arg("-L").arg(folder).args(["-lmercury"]);
    command.arg(format!("-Wl,-rpath,{}", folder.display()));
    assert!(command.status().expect("a C compiler").success(), "{into} compiles");
}

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let all = tempfile::tempdir().expect("a directory");
        let folder = all.path().to_owned();
        symlink(library(), folder.join("libmercury.so.2")).expect("a link");
        symlink("libmercury.so.2", folder.join("libmercury.so")).expect("a link");
        compile(&folder, &["layout"], "layout");
        compile(&folder, &["single"], "single");
        compile(&folder, &["pair", "server"], "pair");
        Made { folder, _all: all }
    })
}

fn succeeded(output: &Output, what: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    let good = output.status.success() && output.stdout.ends_with(b"ok\n");
    assert!(good, "{what}: {} {said}", output.status);
}

fn run(program: &str, arguments: &[&str]) {
    let mut command = Command::new(made().folder.join(program));
    // Refusals are what the programs look for.
    command.args(arguments).env("HG_LOG_LEVEL", "none");
    succeeded(&command.output().expect("it runs"), &format!("{program} {arguments:?}"));
}

fn pair(what: &str) {
    for transport in ["na+sm", "ofi+tcp://127.0.0.1", "auto://*"] {
        run("pair", &[what, transport]);
    }
}

/// The program in the guide prints what it computes.
#[test]
fn the_guide() {
    let text = fs::read_to_string(source("../../docs/mercury.md")).expect("the guide");
    let program = text.split_once("\n```c\n").and_then(|(_, rest)| rest.split_once("\n```"));
    let folder = &made().folder;
    let file = folder.join("guide.c");
    fs::write(&file, program.expect("a program").0).expect("a file");
    let mut command = compiler("cc");
    command.arg(&file).arg("-o").arg(folder.join("guide")).arg("-L").arg(folder);
    command.arg("-lmercury").arg(format!("-Wl,-rpath,{}", folder.display()));
    assert!(command.status().expect("a C compiler").success(), "it compiles");
    let output = Command::new(folder.join("guide")).output().expect("it runs");
    assert!(output.status.success() && output.stdout == b"42\n", "{output:?}");
}

/// A program that asks pkg-config finds all of it.
#[test]
fn it_is_installed() {
    let folder = made().folder.join("installed");
    let script = source("../../scripts/install-mercury");
    let mut command = Command::new(script);
    command.arg("--prefix").arg(&folder).arg("--library").arg(library());
    assert!(command.output().expect("the script").status.success());
    let mut command = Command::new("sh");
    command.env("PKG_CONFIG_PATH", folder.join("lib/pkgconfig")).current_dir(&folder);
    let flags = "$(pkg-config --cflags --libs mercury)";
    let file = made().folder.join("small.c");
    let text = "#include <mercury.h>\nint main(void) { return HG_Version_get(0, 0, 0); }\n";
    fs::write(&file, text).expect("a file");
    let compile = format!("cc {} -o small {flags} && LD_LIBRARY_PATH=lib ./small", file.display());
    let output = command.arg("-c").arg(compile).output().expect("a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    for name in ["libmercury.so.2", "libmercury_util.so.4", "libna.so.6"] {
        assert!(folder.join("lib").join(name).exists(), "{name}");
    }
}

/// Each header stands alone, as C and as C++.
#[test]
fn headers() {
    let folder = fs::read_dir(source("include")).expect("the headers");
    let names: Vec<_> = folder.map(|entry| entry.expect("a file").file_name()).collect();
    let lines = names.iter().map(|name| format!("#include <{}>\n", name.display()));
    let all = made().folder.join("all.c");
    fs::write(&all, lines.collect::<String>()).expect("a file");
    for (name, options) in [
        ("cc", ["-std=c99", "-xc"]),
        ("cc", ["-std=c17", "-xc"]),
        ("c++", ["-std=c++11", "-xc++"]),
        ("c++", ["-std=c++20", "-xc++"]),
    ] {
        let mut command = compiler(name);
        // Threads and clocks are POSIX's.
        command.args(options).args(["-D_GNU_SOURCE", "-pedantic", "-fsyntax-only"]).arg(&all);
        assert!(command.status().expect("a compiler").success(), "{options:?}");
    }
    for header in names {
        let mut command = compiler("cc");
        command.args(["-std=gnu99", "-xc", "-fsyntax-only"]).arg(source("include").join(&header));
        assert!(command.status().expect("a compiler").success(), "{} alone", header.display());
    }
    run("layout", &[]);
}

/// What the headers declare is what the library has.
#[test]
fn all_functions_are_there() {
    let mut declared: Vec<String> = Vec::new();
    for entry in fs::read_dir(source("include")).expect("the headers") {
        let text = fs::read_to_string(entry.expect("a file").path()).expect("a header");
        for piece in text.split("_PUBLIC ").skip(1) {
            let Some((before, _)) = piece.split_once('(') else { continue };
            let Some(name) = before.split([' ', '*', '\n']).next_back() else { continue };
            if !name.is_empty() && !before.contains('#') {
                declared.push(name.to_owned());
            }
        }
    }
    assert!(declared.len() > 130, "{declared:?}");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output();
    let text = String::from_utf8(output.expect("nm").stdout).expect("names");
    let has: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next_back()).collect();
    for name in &declared {
        assert!(has.contains(&name.as_str()), "{name}");
    }
    for name in has {
        assert!(declared.iter().any(|known| known == name), "{name} is in no header");
    }
}

/// The core layer, contexts, settings, garbage, and what is refused.
#[test]
fn one_process() {
    run("single", &[]);
}

/// The same, with a log that cannot be written.
#[test]
fn a_log_that_is_full() {
    let full = fs::File::options().write(true).open("/dev/full").expect("a device of Linux");
    let mut command = Command::new(made().folder.join("single"));
    command.env("HG_LOG_LEVEL", "debug").stderr(full).stdout(Stdio::piped());
    let program = command.spawn().expect("it runs");
    succeeded(&program.wait_with_output().expect("it ends"), "single");
}

/// Calls, addresses, long input, bulk data, a third process, one-way calls, cancellation with a
/// server that is stopped, and several threads.
#[test]
fn two_processes() {
    pair("all");
}

/// Sends what no client sends: all kinds of headers, lengths that are none, and ends in between.
fn hostile(server: &Address) {
    let scheme = if server.as_str().starts_with("shm") { "shm://*" } else { "tcp://127.0.0.1:0" };
    let mut here = petasos::open(scheme, &OpenOptions::default()).expect("an endpoint");
    let peer = here.resolve(server, Duration::from_secs(5)).expect("the server");
    let (clock, mut events, mut state) = (Clock::start(), Vec::new(), 1u64);
    let mut random = || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        state >> 33
    };
    let id = |name: &str| {
        name.bytes().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(byte.into()))
    };
    let names = ["null", "sum", "echo", "no such call"].map(id);
    let body = Region::from_vec(vec![0xff; 100_000]);
    for nth in 0..3000u64 {
        let len = [0, 1, 23, 24, 28, 36, 100, 4096, 4097, 9000][random() as usize % 10];
        let mut message: Vec<u8> = (0..len).map(|_| (random() % 4) as u8).collect();
        if len >= 24 {
            // A version, a kind, flags, a context; a name, and a call of few.
            message[..8].copy_from_slice(&[0xb1, (random() % 4) as u8, 0, 0, 0, 0, 0, 0]);
            message[2] = (random() % 2) as u8;
            message[3] = (random() % 8).saturating_sub(6) as u8;
            let id = u64::from(names[random() as usize % names.len()]);
            let id = if message[1] == 0 { id } else { 0 };
            message[8..16].copy_from_slice(&id.to_le_bytes());
            message[16..24].copy_from_slice(&(random() % 8).to_le_bytes());
        }
        let (token, level) = (Token(nth), Level::Reusable);
        let is_long = random() % 4 == 0 && len <= here.capabilities().limits.max_header;
        let operation = if is_long {
            let body = body.slice(0, random() as usize % body.len()).expect("a part");
            Operation::SendLong { token, peer, header: message.into(), body }
        } else {
            Operation::Send { token, peer, payload: Payload::Bytes(message.into()), level }
        };
        // It is refused here if it is too long for any transport.
        drop(here.try_submit(operation));
        here.progress(clock.now(), 64, &mut events);
        if random() % 8 == 0 {
            here.cancel(token);
        }
        events.clear();
    }
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until {
        here.progress(clock.now(), 64, &mut events);
        events.clear();
    }
}

/// A server that hostile peers have visited serves others as before, and ends as it should.
#[test]
fn a_client_that_is_hostile() {
    for transport in ["na+sm", "ofi+tcp://127.0.0.1"] {
        let mut server = Command::new(made().folder.join("pair"));
        server.args(["serve", transport]).env("HG_LOG_LEVEL", "none").stdout(Stdio::piped());
        let mut server = server.spawn().expect("it runs");
        let mut name = [0; 512];
        let out = server.stdout.as_mut().expect("a pipe");
        out.read_exact(&mut name).expect("its name");
        let end = name.iter().position(|byte| *byte == 0).expect("a string");
        let name = str::from_utf8(&name[..end]).expect("text");
        let address = Address::parse(name).expect("an address");
        hostile(&address);
        run("pair", &["visit", transport, name]);
        assert!(server.wait().expect("it ends").success(), "{transport}");
    }
}

#[test]
fn a_server_that_is_killed() {
    pair("killed");
}

#[test]
fn a_client_that_is_stopped() {
    pair("stopped");
}
