//! Starts a few processes of an example on this machine, and tells each who it is.
//!
//! A launcher that sets the three variables can take its place.

#![allow(dead_code)]

use petasos_fabric::Address;
use petasos_portals::{Config, Engine, Interface, ProcessMap};
use std::{
    env,
    error::Error,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// How long somebody is waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One process of a job.
pub(crate) struct Job {
    pub(crate) interface: Interface,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    _engine: Engine,
}

const RANK: &str = "PETASOS_RANK";
const SIZE: &str = "PETASOS_SIZE";
const NAME: &str = "PETASOS_JOB";
const READY: &str = "ready";

/// Runs `main` in as many processes as the first argument says, four by default.
pub(crate) fn run(main: impl FnOnce(Job) -> Result<()>) -> Result<()> {
    let number = |name| env::var(name).ok().and_then(|text: String| text.parse::<u32>().ok());
    if let (Some(rank), Some(size)) = (number(RANK), number(SIZE)) {
        return main(Job::join(&env::var(NAME)?, rank, size)?);
    }
    let size: u32 = env::args().nth(1).map_or(Ok(4), |text| text.parse())?;
    let name = format!("portals-{}", std::process::id());
    let start = |rank: u32| {
        let mut command = Command::new(env::current_exe()?);
        command.env(NAME, &name).env(RANK, rank.to_string()).env(SIZE, size.to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let mut started = (0..size).map(start).collect::<std::io::Result<Vec<_>>>()?;
    let mut outputs: Vec<_> = started
        .iter_mut()
        .filter_map(|process| Some(BufReader::new(process.stdout.take()?)))
        .collect();
    // All are ready before any begins: until a process has its entries, what is sent to it is dropped.
    let mut line = String::new();
    for output in &mut outputs {
        line.clear();
        output.read_line(&mut line)?;
    }
    if line.trim() == READY {
        for process in &mut started {
            if let Some(mut input) = process.stdin.take() {
                // Who has ended already is found below.
                let _ = writeln!(input, "go");
            }
        }
    }
    let mut failed = 0;
    for (mut process, mut output) in started.into_iter().zip(outputs) {
        std::io::copy(&mut output, &mut std::io::stdout())?;
        failed += u32::from(!process.wait()?.success());
    }
    if failed > 0 {
        return Err(format!("{failed} of {size} processes failed").into());
    }
    println!("{size} processes: all is well");
    Ok(())
}

impl Job {
    fn join(name: &str, rank: u32, size: u32) -> Result<Job> {
        let address = |rank| Address::parse(&format!("shm://{name}-{rank}"));
        let map = (0..size).map(address).collect::<std::result::Result<Vec<_>, _>>()?;
        let endpoint = petasos_shm::Shm::open(&map[rank as usize])?;
        let map = Arc::new(ProcessMap::ranks(map));
        let interface = Interface::open(Box::new(endpoint), map, Config::default())?;
        // The others are answered whatever this process does.
        let engine = Engine::start(&interface)?;
        Ok(Job { interface, rank, size, _engine: engine })
    }

    /// This process can be reached from now on; comes back when all can.
    pub(crate) fn ready(&self) -> Result<()> {
        println!("{READY}");
        std::io::stdout().flush()?;
        std::io::stdin().lock().read_line(&mut String::new())?;
        Ok(())
    }
}
