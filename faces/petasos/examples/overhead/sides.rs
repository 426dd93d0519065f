//! The two processes, and what they tell each other before they measure.

use petasos_testing::median;
use std::{
    error::Error,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::Instant,
};

use crate::{BLOCK, BLOCKS, DEEP, RUNS};

pub(crate) type Anything<T> = Result<T, Box<dyn Error>>;

/// Which of the two processes this is.
pub(crate) enum Side {
    /// The one that measures, with the ways to the other one; `None` when that was let go.
    First(Option<ChildStdin>, BufReader<ChildStdout>),
    /// The one that answers.
    Other,
}

impl Side {
    pub(crate) fn is_first(&self) -> bool {
        matches!(self, Side::First(..))
    }

    /// Tells the other side a line, and gives the line that it says.
    pub(crate) fn exchange(&mut self, line: &str) -> Anything<String> {
        let mut heard = String::new();
        match self {
            Side::First(to, from) => {
                writeln!(to.as_mut().ok_or("it was let go")?, "{line}")?;
                from.read_line(&mut heard)?;
            }
            Side::Other => {
                println!("{line}");
                std::io::stdin().lock().read_line(&mut heard)?;
            }
        }
        Ok(heard.trim().to_owned())
    }

    /// Waits until the first side is through: it closes its end, by ending or by [`Side::release`].
    pub(crate) fn until_released(&self) -> Anything<()> {
        let mut line = String::new();
        while std::io::stdin().lock().read_line(&mut line)? > 0 {}
        Ok(())
    }

    /// Lets the other side go.
    pub(crate) fn release(&mut self) {
        if let Side::First(to, _) = self {
            *to = None;
        }
    }
}

/// Starts the same program as the other side: gives it, and the side that measures with it.
pub(crate) fn other(scheme: &str, role: &str) -> Anything<(Child, Side)> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([scheme, "0", role]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let from = BufReader::new(child.stdout.take().ok_or("no way out")?);
    let first = Side::First(child.stdin.take(), from);
    Ok((child, first))
}

/// Keeps this process on a core. With one core only, the two take turns, and the figures mean
/// little.
pub(crate) fn pin(core: usize) {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    let _ = rustix::thread::sched_setaffinity(None, &cores);
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn unhex(text: &str) -> Anything<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(text.get(at..at + 2).unwrap_or(""), 16);
    Ok((0..text.len()).step_by(2).map(byte).collect::<Result<_, _>>()?)
}

/// Gigabytes in a second, of several runs: `more` begins transfers as far as there is room, and
/// says how many ended.
pub(crate) fn rate(mut more: impl FnMut(u32) -> u32) -> f64 {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        let begin = Instant::now();
        let (mut begun, mut ended) = (0, 0);
        while ended < BLOCKS {
            let room = (BLOCKS - begun).min(DEEP - (begun - ended));
            begun += room;
            ended += more(room);
        }
        runs.push(f64::from(BLOCKS) * BLOCK as f64 / begin.elapsed().as_nanos() as f64);
    }
    median(runs)
}
