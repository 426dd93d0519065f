//! A call goes around a ring of ranks. One of them is killed on the way, rank 0 asks for it to be
//! started again, and the call then goes around.
//!
//! ```text
//! cargo build --examples && petasos run -n 4 --keep-going target/debug/examples/ring_again
//! ```
//!
//! With `host` behind it the daemon of that rank's host is killed, and so all that is there: rank 0
//! asks for a spare host in its place, unless that is done without asking (`--restart-failed`).
//!
//! ```text
//! petasos run -n 4 --hosts localhost:1,b:3,c --spares 1 --keep-going target/debug/examples/ring_again host
//! ```

use petasos::{
    Context, EngineConfig, EngineThread, job, open_own,
    pmix::{Error, Job, JobError, Proc, Reply, chain::Registration, status},
    service,
};
use std::{
    os::unix::process::parent_id,
    process::{Command, id},
    thread::sleep,
    time::{Duration, Instant},
};

/// How long the ring may take to be whole again.
const PATIENCE: Duration = Duration::from_secs(60);
/// After so long it is tried again.
const MOMENT: Duration = Duration::from_millis(10);

#[service]
trait Ring {
    /// From this rank on to the last one: how often each was started again.
    async fn visit(&self, context: Context) -> Result<Vec<u32>, String>;
}

struct Rank(&'static Job);

impl Ring for Rank {
    async fn visit(&self, context: Context) -> Result<Vec<u32>, String> {
        let mut visited = vec![self.0.restarts()];
        let next = self.0.rank() + 1;
        if next < self.0.size() {
            let address = self.0.peer(next).map_err(|error| error.to_string())?;
            let next = RingClient::new(&context.engine(), &address);
            visited.extend(next.visit().await.map_err(|error| error.to_string())??);
        }
        Ok(visited)
    }
}

/// Waits for all ranks. A fence fails as long as one of them is gone, or its host is.
fn come_together(job: &Job) -> Result<(), JobError> {
    let until = Instant::now() + PATIENCE;
    loop {
        match job.fence() {
            Err(JobError::Refused(Error::FenceBroken { .. } | Error::NodeLost { .. }))
                if Instant::now() < until =>
            {
                sleep(MOMENT);
            }
            done => return done,
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let job = job()?;
    let engine = EngineThread::start(open_own(job)?, EngineConfig::default(), move |engine| {
        Rank(job).serve(engine, 0).expect("nothing else is served");
    })?;
    if job.rank() == 0 {
        let with = Registration { codes: vec![status::PROC_ABORTED], ..Registration::default() };
        job.on_event(with, move |event, _| {
            // A rank that died alone, or all of a host.
            let said = match event.source.rank {
                Proc::JOB => job.replace(event.node).map(|by| format!("{}: {by}", event.node)),
                rank => job.restart(rank).map(|times| format!("rank {rank}: restart {times}")),
            };
            match said {
                Ok(said) => println!("{said}"),
                Err(error) => eprintln!("{error}"),
            }
            Reply::seen()
        })?;
    }
    // The new process comes to where the others are by now.
    if job.restarts() == 0 {
        come_together(job)?;
        if job.rank() == 1 {
            let whole_host = std::env::args().nth(1).as_deref() == Some("host");
            let process = if whole_host { parent_id() } else { id() };
            Command::new("kill").args(["-KILL", &process.to_string()]).status()?;
        }
    }
    if job.rank() == 0 {
        let until = Instant::now() + PATIENCE;
        let visited = loop {
            let calls = engine.handle().run(move |engine| async move {
                let own = job.peer(0).map_err(|error| error.to_string())?;
                RingClient::new(&engine, &own).visit().await.map_err(|error| error.to_string())?
            });
            match calls.wait()? {
                // The one before it may have been on its way out.
                Ok(visited) if visited.iter().any(|times| *times > 0) => break visited,
                Err(why) if Instant::now() >= until => return Err(why.into()),
                _ => sleep(MOMENT),
            }
        };
        println!("around the ring, and restarted so often: {visited:?}");
    }
    come_together(job)?;
    job.finalize()?;
    Ok(())
}
