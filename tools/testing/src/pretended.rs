//! Shared libraries that stand in for others.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// A shared library of this source in C; removed when dropped.
#[derive(Debug)]
pub struct Pretended(PathBuf);

impl Pretended {
    /// Compiles it. `None`, with a message, where there is no compiler.
    ///
    /// # Panics
    /// If it does not compile.
    #[must_use]
    pub fn of(source: &str) -> Option<Pretended> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let nth = MADE.fetch_add(1, Ordering::Relaxed);
        let file = format!("petasos-library-{}-{nth}.so", std::process::id());
        let library = Pretended(std::env::temp_dir().join(file));
        let compiler = Command::new("cc")
            .args(["-x", "c", "-w", "-shared", "-fPIC", "-", "-o"])
            .arg(&library.0)
            .stdin(Stdio::piped())
            .spawn();
        let Ok(mut compiler) = compiler else {
            crate::skip("there is no C compiler to make a library with");
            return None;
        };
        let mut input = compiler.stdin.take().expect("piped");
        input.write_all(source.as_bytes()).expect("it reads");
        drop(input);
        assert!(compiler.wait().expect("it ends").success(), "the library compiles");
        Some(library)
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Pretended {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
