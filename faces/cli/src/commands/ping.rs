//! `petasos ping`: is it there, and how far away?

use crate::{
    cli, client,
    exit::{Code, Failure, Outcome},
    interrupt, output,
    service::BenchClient,
    waiting::Waiting,
};
use hdrhistogram::Histogram;
use petasos::CallOptions;
use serde::Serialize;
use std::time::{Duration, Instant};

/// The longest message.
const LONGEST: u64 = 64 << 20;

#[derive(Serialize)]
struct Summary<'a> {
    url: &'a str,
    sent: u64,
    answered: u64,
    bytes: u64,
    min_ns: u64,
    median_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

pub(crate) fn run(options: &cli::Ping) -> Outcome {
    let url = &options.url;
    if url.scheme() == "self" {
        let text = format!("{url}: self:// reaches no other process");
        return Err(Failure::new(Code::Usage, text).advise("petasos ping shm://NAME"));
    }
    if options.size > LONGEST {
        let text = format!("--size {}: at most {} are sent", options.size, output::size(LONGEST));
        return Err(Failure::new(Code::Usage, text));
    }
    interrupt::be_polite();
    let secret = options.secret.as_deref();
    let engine = client::engine(url, secret, Waiting::Adaptive, options.timeout)?;
    let bench = BenchClient::new(&engine, url)
        .with(CallOptions::default().timeout(options.timeout + Duration::from_millis(500)));
    let mut times = Histogram::<u64>::new_with_bounds(1, 600_000_000_000, 3)
        .map_err(Failure::system("a histogram"))?;
    let (mut sent, mut failed) = (0, None);
    while options.count == 0 || sent < options.count {
        let message: Vec<u8> = (0..options.size).map(|at| (at ^ sent) as u8).collect();
        sent += 1;
        let start = Instant::now();
        let answer = engine.block_on(bench.echo(message.clone()));
        let took = start.elapsed();
        match answer {
            Ok(answer) if answer == message => {}
            Ok(_) => {
                let text = format!("{url}: what came back is not what was sent");
                failed = Some(Failure::new(Code::Mismatch, text));
                break;
            }
            Err(error) => {
                failed = Some(Failure::from(error));
                break;
            }
        }
        // The first one connects: it says something else.
        if sent > 1 || options.count == 1 {
            times.saturating_record(took.as_nanos() as u64);
        }
        let note = if sent == 1 { " (with the connection)" } else { "" };
        if !options.json.json {
            let (size, took) = (output::size(options.size), output::time(took.as_nanos() as f64));
            output::print(&format!("{size} to {url} and back: number {sent}, {took}{note}"))?;
        }
        if sent == options.count || interrupt::wait(Some(options.interval)) {
            break;
        }
    }
    let answered = sent - u64::from(failed.is_some());
    report(options, &times, sent, answered)?;
    failed.map_or(Ok(()), Err)
}

fn report(options: &cli::Ping, times: &Histogram<u64>, sent: u64, answered: u64) -> Outcome {
    if answered == 0 {
        return Ok(());
    }
    let summary = Summary {
        url: options.url.as_str(),
        sent,
        answered,
        bytes: options.size,
        min_ns: times.min(),
        median_ns: times.value_at_quantile(0.5),
        p99_ns: times.value_at_quantile(0.99),
        max_ns: times.max(),
    };
    if options.json.json {
        return output::print_json(&summary);
    }
    if times.is_empty() {
        return Ok(());
    }
    let time = |ns: u64| output::time(ns as f64);
    output::print(&format!(
        "{answered} of {sent} answered; min {}, median {}, p99 {}, max {}",
        time(summary.min_ns),
        time(summary.median_ns),
        time(summary.p99_ns),
        time(summary.max_ns),
    ))
}
