//! `petasos forward status`: what a server does, and for which clients.

use super::session;
use crate::{
    cli::forward,
    exit::Outcome,
    output::{self, count, size},
};
use comfy_table::Cell;
use petasos_forward::protocol::{Counters, Status};
use std::time::Duration;

pub(super) fn run(options: &forward::Status) -> Outcome {
    let address = &options.location.address;
    let status = session::with("status", address, &options.access, async |remote| {
        Ok(remote.status().await?)
    })?;
    match options.json.json {
        true => output::print_json(&status),
        false => output::print(&text(&status)),
    }
}

fn text(status: &Status) -> String {
    let Counters { calls, failed, read, written, gathered } = status.total;
    let read_only = if status.read_only { ", read-only" } else { "" };
    let [now, most, limit] = status.memory;
    let [early, most_early] = status.early;
    let mut text = format!(
        "exports {}{read_only}, for {}\n{}, {failed} of them failed; {} read, {} written, \
         {gathered} gathered\n{} of memory in use, {} at most, limit {}\n{} within calls that \
         wait, {} at most\n{}, {} in line; {} lost\n",
        status.export,
        age(status.uptime_ms),
        count(calls, "call", "calls"),
        size(read),
        size(written),
        size(now),
        size(most),
        size(limit),
        size(early),
        size(most_early),
        count(status.threads.into(), "thread", "threads"),
        status.queued,
        count(status.lost, "client", "clients"),
    );
    let columns = [
        "client", "at", ">age", ">files", ">locks", ">calls", ">done", ">failed", ">read",
        ">written",
    ];
    let mut table = output::table(&columns);
    for client in &status.sessions {
        let done = client.counters;
        table.add_row([
            Cell::new(&client.name),
            Cell::new(&client.peer),
            Cell::new(age(client.age_ms)),
            Cell::new(client.files),
            Cell::new(client.locks),
            Cell::new(client.calls),
            Cell::new(done.calls),
            Cell::new(done.failed),
            Cell::new(size(done.read)),
            Cell::new(size(done.written)),
        ]);
    }
    text.push_str(&table.to_string());
    text
}

fn age(ms: u64) -> String {
    let seconds = Duration::from_millis(ms).as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}
