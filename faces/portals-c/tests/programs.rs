//! Programs of C, which know the headers alone, with the library: see `tests/c`.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::OnceLock,
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
    let library = test.with_file_name("libportals.so");
    assert!(library.exists(), "{} was built with the test", library.display());
    library
}

/// Compiles a program of one file, linked to the library.
fn compile(folder: &Path, name: &str, options: &[&str], into: &str) {
    let mut command = compiler("cc");
    command.args(["-std=gnu11", "-O1", "-g", "-pthread"]).args(options).arg("-o");
    command.arg(folder.join(into)).arg(source(&format!("tests/c/{name}.c")));
    command.arg("-L").arg(folder).args(["-lportals"]);
    command.arg(format!("-Wl,-rpath,{}", folder.display()));
    assert!(command.status().expect("a C compiler").success(), "{name} compiles");
}

fn made() -> &'static Made {
    static MADE: OnceLock<Made> = OnceLock::new();
    MADE.get_or_init(|| {
        let all = tempfile::tempdir().expect("a directory");
        let folder = all.path().to_owned();
        symlink(library(), folder.join("libportals.so.4")).expect("a link");
        symlink("libportals.so.4", folder.join("libportals.so")).expect("a link");
        for name in ["layout", "single", "pair"] {
            compile(&folder, name, &[], name);
        }
        // For TCP: read by this user alone.
        let secret = folder.join("secret");
        fs::write(&secret, "a secret for tests that is long enough").expect("a file");
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).expect("its own file");
        Made { folder, _all: all }
    })
}

fn succeeded(output: &Output, what: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    let good = output.status.success() && output.stdout.ends_with(b"ok\n");
    assert!(good, "{what}: {} {said}", output.status);
}

/// Where processes meet.
#[derive(Clone, Copy, Debug)]
enum Over {
    Shm,
    Tcp,
    Auto,
}

fn run(program: &str, what: &str, over: Over) {
    let made = made();
    let mut command = Command::new(made.folder.join(program));
    command.arg(what);
    if !matches!(over, Over::Shm) {
        command.env("PETASOS_PORTALS_SECRET_FILE", made.folder.join("secret"));
        command.env("PETASOS_PORTALS_HOST", "127.0.0.1");
        let transport = if matches!(over, Over::Tcp) { "tcp" } else { "auto" };
        command.env("PETASOS_PORTALS_TRANSPORT", transport);
    }
    succeeded(&command.output().expect("it runs"), &format!("{program} {what} over {over:?}"));
}

/// Two processes, over each transport.
fn pair(what: &str) {
    for over in [Over::Shm, Over::Tcp, Over::Auto] {
        run("pair", what, over);
    }
}

/// The pieces of C in the guide are programs.
#[test]
fn the_guide() {
    let text = fs::read_to_string(source("../../docs/portals-c.md")).expect("the guide");
    let pieces: Vec<&str> = text.split("\n```c\n").skip(1).collect();
    assert!(!pieces.is_empty());
    let folder = &made().folder;
    for (nth, piece) in pieces.iter().enumerate() {
        let file = folder.join(format!("guide{nth}.c"));
        fs::write(&file, piece.split("\n```").next().expect("a piece")).expect("a file");
        let mut command = compiler("cc");
        command.arg(&file).arg("-o").arg(file.with_extension("program"));
        command.arg("-L").arg(folder).arg("-lportals");
        assert!(command.status().expect("a C compiler").success(), "piece {nth} compiles");
    }
}

/// The header is C99 and C++ as well, and its sizes and offsets are those of the specification.
#[test]
fn headers() {
    for (name, options) in [
        ("cc", ["-std=c99", "-xc"]),
        ("cc", ["-std=c17", "-xc"]),
        ("c++", ["-std=c++11", "-xc++"]),
        ("c++", ["-std=c++20", "-xc++"]),
    ] {
        for header in ["portals4.h", "portals4_job.h"] {
            let mut command = compiler(name);
            command.args(options).args(["-pedantic", "-fsyntax-only"]);
            command.arg(source("include").join(header));
            assert!(command.status().expect("a compiler").success(), "{header} with {options:?}");
        }
    }
    let status = Command::new(made().folder.join("layout")).status().expect("it runs");
    assert!(status.success());
    // The guide's program.
    let guide = fs::read_to_string(source("../../docs/portals-c.md")).expect("the guide");
    let (_, program) = guide.split_once("```c\n").expect("a program");
    let program = program.split("```").next().expect("its end");
    let file = made().folder.join("guide.c");
    fs::write(&file, program).expect("a file");
    let status = compiler("cc").args(["-std=c99", "-fsyntax-only"]).arg(file).status();
    assert!(status.expect("a C compiler").success());
}

/// What the headers declare is what the library has.
#[test]
fn all_functions_are_there() {
    let mut declared: Vec<String> = Vec::new();
    for header in ["portals4.h", "portals4_job.h"] {
        let text = fs::read_to_string(source("include").join(header)).expect("a header");
        for line in text.lines() {
            let start = line.strip_prefix("int ").or_else(|| line.strip_prefix("void "));
            let Some(start) = start.filter(|start| start.starts_with("Ptl")) else { continue };
            declared.push(start.split('(').next().expect("a name").to_owned());
        }
    }
    assert!(declared.len() > 50, "{declared:?}");
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

/// What a process that is alone can do, and what is refused; garbage of all kinds.
#[test]
fn one_process() {
    run("single", "", Over::Shm);
    run("single", "", Over::Auto);
}

#[test]
fn moves() {
    for what in ["moves", "moves-physical", "moves-list", "moves-physical-list"] {
        pair(what);
    }
}

#[test]
fn atomics_and_triggered_operations() {
    pair("counts");
}

#[test]
fn unexpected_messages_and_searches() {
    pair("unexpected");
}

#[test]
fn flow_control() {
    pair("flow");
}

#[test]
fn limits() {
    pair("limits");
}

#[test]
fn what_is_wrong_with_the_environment_is_said() {
    for (name, value, said) in [
        ("PETASOS_PORTALS_HOST", "10.1.2.3", "takes a secret"),
        ("PETASOS_PORTALS_HOST", "somewhere", "no IPv4 address"),
        ("PETASOS_PORTALS_TRANSPORT", "tcp", "takes a secret"),
        ("PETASOS_PORTALS_TRANSPORT", "pigeons", "auto or tcp"),
        ("PETASOS_PORTALS_PORT", "80", "from 1024 on"),
        ("PETASOS_PORTALS_PORT", "65000", "from 1024 on"),
        ("PETASOS_PORTALS_SECRET_FILE", "/nowhere", "PETASOS_PORTALS_SECRET_FILE: "),
    ] {
        let mut command = Command::new(made().folder.join("pair"));
        let output = command.arg("moves").env(name, value).output().expect("it runs");
        let all = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && all.contains(said), "{name}={value}: {all}");
        assert!(all.contains("is 5 and not 0"), "PTL_FAIL: {all}");
    }
}

/// A shortage of descriptors is no shortage of process numbers.
#[test]
fn no_descriptors_are_left() {
    // Enough for the line between its two processes, and one more.
    let mut command = Command::new("sh");
    command.args(["-c", "exec 3<&- 4<&-; ulimit -n 5; exec \"$0\" moves"]);
    let output = command.arg(made().folder.join("pair")).output().expect("it runs");
    let all = String::from_utf8_lossy(&output.stderr);
    assert!(all.contains("portals: Too many open files"), "{all}");
    assert!(all.contains("is 5 and not 0"), "PTL_FAIL: {all}");
}

#[test]
fn process_numbers() {
    pair("numbers");
}

#[test]
fn what_was_sent_last_arrives() {
    pair("last");
}

#[test]
fn threads() {
    for _ in 0..3 {
        pair("threads");
    }
}

#[test]
fn abort() {
    pair("aborted");
}

#[test]
fn a_peer_that_is_killed() {
    pair("killed");
}

#[test]
fn a_peer_that_is_stopped() {
    pair("stopped");
}

/// Installed, with what CMake and pkg-config ask for.
fn installed() -> (tempfile::TempDir, PathBuf) {
    let all = tempfile::tempdir().expect("a directory");
    let prefix = all.path().join("prefix");
    let script = source("../../scripts/install-portals");
    let mut command = Command::new(script);
    command.arg("--prefix").arg(&prefix).arg("--library").arg(library());
    assert!(command.status().expect("the script").success());
    (all, prefix)
}

#[test]
fn a_project_of_pkg_config() {
    let (all, prefix) = installed();
    let pkg_config = |what: &str| {
        let mut command = Command::new("pkg-config");
        command.args([what, "portals4 >= 4.3"]);
        command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        command.output()
    };
    let (Ok(includes), Ok(libraries)) = (pkg_config("--cflags"), pkg_config("--libs")) else {
        return petasos_testing::skip("pkg-config (package pkg-config) is not here");
    };
    let words = |output: Output| {
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).expect("words");
        text.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let program = all.path().join("layout");
    let mut command = Command::new("cc");
    command.arg(source("tests/c/layout.c")).arg("-o").arg(&program);
    command.args(words(includes)).args(words(libraries));
    assert!(command.status().expect("a C compiler").success());
    let run = Command::new(program).env("LD_LIBRARY_PATH", prefix.join("lib")).status();
    assert!(run.expect("it runs").success());
}

#[test]
fn a_project_of_cmake() {
    if Command::new("cmake").arg("--version").output().is_err() {
        return petasos_testing::skip("cmake (package cmake) is not here");
    }
    let (all, prefix) = installed();
    let project = format!(
        "cmake_minimum_required(VERSION 3.16)\n\
         project(example LANGUAGES C)\n\
         find_package(Portals4 4.3 REQUIRED)\n\
         add_executable(layout {})\n\
         target_link_libraries(layout PRIVATE Portals4::portals)\n",
        source("tests/c/layout.c").display()
    );
    fs::write(all.path().join("CMakeLists.txt"), project).expect("a file");
    let build = all.path().join("build");
    let mut command = Command::new("cmake");
    command.arg("-S").arg(all.path()).arg("-B").arg(&build);
    command.arg(format!("-DCMAKE_PREFIX_PATH={}", prefix.display()));
    succeeds(&mut command);
    succeeds(Command::new("cmake").arg("--build").arg(&build));
    assert!(Command::new(build.join("layout")).status().expect("it runs").success());
}

fn succeeds(command: &mut Command) {
    let output = command.output().expect("it runs");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

/// Memory of the program's, as AddressSanitizer sees it.
#[test]
fn with_the_address_sanitizer() {
    let folder = &made().folder;
    let mut probe = compiler("cc");
    probe.args(["-fsanitize=address", "-o"]).arg(folder.join("probe"));
    probe.arg(source("tests/c/layout.c")).arg("-L").arg(folder).arg("-lportals");
    if !probe.status().is_ok_and(|status| status.success()) {
        return petasos_testing::skip("AddressSanitizer (libasan of the C compiler) is not here");
    }
    for name in ["single", "pair"] {
        compile(folder, name, &["-fsanitize=address"], &format!("{name}-asan"));
    }
    run("single-asan", "", Over::Shm);
    for what in ["moves", "counts", "unexpected", "threads", "killed"] {
        run("pair-asan", what, Over::Shm);
    }
}

/// What valgrind says of it: nothing.
#[test]
fn with_valgrind() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return petasos_testing::skip("valgrind (package valgrind) is not here");
    }
    let folder = &made().folder;
    for what in ["moves", "counts", "unexpected"] {
        let mut command = Command::new("valgrind");
        command.args(["--quiet", "--error-exitcode=99", "--trace-children=yes"]);
        let output = command.arg(folder.join("pair")).arg(what).output().expect("it runs");
        succeeded(&output, what);
    }
}
