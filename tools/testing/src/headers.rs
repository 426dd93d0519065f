//! What C's headers say, where a layout is written down by hand.

use std::{
    io::Write,
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// The values of constant expressions of C, as `offsetof(struct fi_msg, addr)`, by the system's
/// compiler and these headers, as `ucp/api/ucp.h`.
///
/// # Panics
/// If there is no compiler, or it does not compile that.
#[must_use]
pub fn ask_the_headers<'a>(
    headers: &[&str],
    expressions: impl IntoIterator<Item = &'a str>,
) -> Vec<u64> {
    let mut source = String::new();
    for header in ["stdio.h", "stddef.h", "stdint.h"].iter().chain(headers) {
        source += &format!("#include <{header}>\n");
    }
    source += "int main(void) {\n";
    for expression in expressions {
        source += &format!("  printf(\"%llu\\n\", (unsigned long long)({expression}));\n");
    }
    source += "  return 0;\n}\n";
    static ASKED: AtomicU32 = AtomicU32::new(0);
    let nth = ASKED.fetch_add(1, Ordering::Relaxed);
    let program =
        std::env::temp_dir().join(format!("petasos-headers-{}-{nth}", std::process::id()));
    let mut compiler = Command::new("cc")
        .args(["-x", "c", "-w", "-", "-o"])
        .arg(&program)
        .stdin(Stdio::piped())
        .spawn()
        .expect("a C compiler, where headers are");
    compiler.stdin.take().expect("piped").write_all(source.as_bytes()).expect("it reads");
    assert!(compiler.wait().expect("it ends").success(), "the headers compile");
    let output = Command::new(&program).output().expect("it runs");
    let _ = std::fs::remove_file(&program);
    let lines = String::from_utf8(output.stdout).expect("numbers");
    lines.lines().map(|line| line.parse().expect("a number")).collect()
}
