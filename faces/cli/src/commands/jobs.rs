//! `petasos ps`, `events`, `query`, `notify`: looking into running jobs.

use crate::{
    cli::{Events, Json, Notify, Query, Which},
    exit::{Code, Failure, Outcome, as_json},
    interrupt, output,
};
use petasos_pmix::{
    Group, Info, Job, JobError, Reply, Value,
    chain::Registration,
    event::{Event, NON_DEFAULT, Range},
    running, status,
};
use serde::Serialize;
use serde_json::json;
use std::{
    path::PathBuf,
    sync::mpsc::{RecvTimeoutError, channel},
    time::Duration,
};

fn failure(error: JobError) -> Failure {
    let code = match &error {
        JobError::Refused(_) => Code::Failed,
        _ => Code::Unreachable,
    };
    Failure::new(code, error)
}

fn name_of(path: &std::path::Path) -> String {
    path.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The job that is meant.
fn find(which: &Which) -> Outcome<Job> {
    let mut found: Vec<PathBuf> = running();
    if let Some(name) = &which.job {
        found.retain(|path| name_of(path) == *name);
    }
    match &found[..] {
        [] => Err(Failure::new(Code::Unreachable, "no such job runs from this host")
            .advise("petasos ps shows those that do")),
        [path] => Job::attach(path).map_err(failure),
        several => {
            let names: Vec<String> = several.iter().map(|path| name_of(path)).collect();
            let text = format!("several jobs run: {}", names.join(", "));
            Err(Failure::new(Code::Usage, text).advise("name one with --job"))
        }
    }
}

/// A running job.
#[derive(Debug, Serialize)]
struct Shown {
    job: String,
    command: String,
    ranks: Vec<ShownRank>,
    /// Hosts that are kept for when others are lost.
    spares: Vec<String>,
}

#[derive(Debug, Serialize)]
struct ShownRank {
    rank: u64,
    host: String,
    pid: u64,
    state: String,
    /// How often it was started again.
    restarts: u64,
}

fn look(path: PathBuf) -> Result<Shown, JobError> {
    let job = Job::attach(path)?;
    let info = job.query(&["petasos.processes", "petasos.nodes"])?;
    let command = job.map().value(petasos_pmix::Proc::JOB, "petasos.command");
    let mut ranks = Vec::new();
    let of = |key: &str| info.iter().find(|(name, _)| name == key).map(|(_, value)| value);
    if let Some(Value::List(lines)) = of("petasos.processes") {
        for line in lines {
            let Value::List(line) = line else { continue };
            if let [_, rank, node, pid, state, restarts] = &line[..] {
                let node = petasos_pmix::Node(node.as_u64().unwrap_or_default() as u32);
                ranks.push(ShownRank {
                    rank: rank.as_u64().unwrap_or_default(),
                    host: job.map().node(node).map_or_else(String::new, |node| node.name.clone()),
                    pid: pid.as_u64().unwrap_or_default(),
                    state: state.to_string(),
                    restarts: restarts.as_u64().unwrap_or_default(),
                });
            }
        }
    }
    ranks.sort_by_key(|rank| rank.rank);
    let command = command.map_or_else(String::new, |value| value.to_string());
    let mut spares = Vec::new();
    if let Some(Value::List(lines)) = of("petasos.nodes") {
        for line in lines {
            if let Value::List(line) = line
                && let [_, Value::Text(host), _, Value::Text(state)] = &line[..]
                && state == "spare"
            {
                spares.push(host.clone());
            }
        }
    }
    Ok(Shown { job: job.map().spec().name.clone(), command, ranks, spares })
}

pub(crate) fn ps(options: &Json) -> Outcome {
    // A job may end while it is looked at.
    let jobs: Vec<Shown> = running().into_iter().filter_map(|path| look(path).ok()).collect();
    if options.json {
        return output::print_json(&jobs);
    }
    let mut table =
        output::table(&["job", "rank", "host", "process", "state", "restarts", "command"]);
    for job in &jobs {
        let command = output::plain(&job.command);
        for rank in &job.ranks {
            table.add_row([
                job.job.clone(),
                rank.rank.to_string(),
                output::plain(&rank.host),
                rank.pid.to_string(),
                rank.state.clone(),
                rank.restarts.to_string(),
                command.clone(),
            ]);
        }
        for host in &job.spares {
            let [none, state] = ["", "spare"].map(str::to_owned);
            let row = [job.job.clone(), none.clone(), host.clone(), none.clone(), state, none];
            table.add_row(row.into_iter().chain([command.clone()]));
        }
    }
    output::print(&if jobs.is_empty() { "no job runs".to_owned() } else { table.to_string() })
}

fn json_of(value: &Value) -> serde_json::Value {
    match value {
        Value::Bool(value) => (*value).into(),
        Value::Int(value) => (*value).into(),
        Value::Uint(value) => (*value).into(),
        Value::Real(value) => (*value).into(),
        Value::Text(value) => value.clone().into(),
        Value::Bytes(value) => value.clone().into(),
        Value::List(values) => values.iter().map(json_of).collect(),
        Value::Record(named) => json_of_info(named),
        Value::Typed { .. } => match value.as_u64() {
            Some(number) => number.into(),
            None => value.to_string().into(),
        },
    }
}

fn json_of_info(info: &Info) -> serde_json::Value {
    info.iter().map(|(key, value)| (key.clone(), json_of(value))).collect()
}

/// A value as lines of a table: what has names within gets a line for each of them, and so does
/// what is in a list of such things.
fn lines_of(key: &str, value: &Value, lines: &mut Vec<[String; 2]>) {
    let is_record = |value: &Value| matches!(value, Value::Record(_));
    match value {
        Value::Record(named) => {
            named.iter().for_each(|(name, value)| lines_of(&format!("{key}.{name}"), value, lines));
        }
        Value::List(values) if values.iter().any(is_record) => {
            for (nth, value) in values.iter().enumerate() {
                lines_of(&format!("{key}.{nth}"), value, lines);
            }
        }
        value => lines.push([output::plain(key), output::plain(&value.to_string())]),
    }
}

pub(crate) fn query(options: &Query) -> Outcome {
    let job = find(&options.which)?;
    let keys: Vec<&str> = options.keys.iter().map(String::as_str).collect();
    let info = job.query(&keys).map_err(failure)?;
    if options.json.json {
        return output::print_json(&json_of_info(&info));
    }
    let mut table = output::table(&["key", "value"]);
    for (key, value) in &info {
        let mut lines = Vec::new();
        match value {
            Value::List(values) if !matches!(values.first(), Some(Value::Record(_))) => {
                let shown = |value: &Value| output::plain(&value.to_string());
                lines.extend(values.iter().map(|value| [output::plain(key), shown(value)]));
            }
            value => lines_of(key, value, &mut lines),
        }
        lines.into_iter().for_each(|line| {
            table.add_row(line);
        });
    }
    output::print(&table.to_string())
}

fn show(event: &Event, json: bool) -> Outcome {
    if json {
        let value = serde_json::json!({
            "code": event.code,
            "source": event.source.to_string(),
            "node": event.node.0,
            "info": json_of_info(&event.info),
        });
        return output::print(&value.to_string());
    }
    let info = event.info.iter().map(|(key, value)| format!(" {key}={value}"));
    let info: String = info.collect();
    let line = format!("{} from {}:{info}", event.code, event.source);
    output::print(&output::plain(&line))
}

pub(crate) fn events(options: &Events) -> Outcome {
    let job = find(&options.which)?;
    interrupt::be_polite();
    let (sender, receiver) = channel();
    let with = Registration { codes: options.code.clone(), ..Registration::default() };
    let tell = move |event: &Event, _: &[_]| {
        let _ = sender.send(event.clone());
        Reply::seen()
    };
    job.on_event(with, tell).map_err(failure)?;
    let mut shown = 0;
    while options.count.is_none_or(|count| shown < count) {
        match receiver.recv_timeout(Duration::from_millis(100)) {
            Ok(event) => {
                show(&event, options.json.json)?;
                shown += 1;
            }
            Err(RecvTimeoutError::Timeout) if interrupt::wait(Some(Duration::ZERO)) => break,
            // The job has ended.
            Err(RecvTimeoutError::Timeout) if job.query(&["pmix.job.size"]).is_err() => break,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    Ok(())
}

pub(crate) fn notify(options: &Notify) -> Outcome {
    if options.code == status::SUCCESS {
        return Err(Failure::new(Code::Usage, "0 is the code of success, and no event's"));
    }
    let info: Outcome<Info> = options
        .info
        .iter()
        .map(|word| {
            let word = word.as_str();
            let wrong =
                |what| Failure::new(Code::Usage, format!("`{}` {what}", output::plain(word)));
            let (name, text) = word.split_once('=').ok_or_else(|| wrong("is not NAME=TEXT"))?;
            if name.is_empty() || name.chars().any(char::is_control) {
                return Err(wrong("has no name that can be shown: write NAME=TEXT"));
            }
            Ok((name.to_owned(), Value::from(text)))
        })
        .collect();
    let job = find(&options.which)?;
    if let Some(rank) = options.ranks.iter().find(|rank| **rank >= job.size()) {
        return Err(Failure::new(Code::Usage, format!("the job has no rank {rank}")));
    }
    let ranks = options.ranks.iter().map(|rank| job.proc_of(*rank));
    let range = match options.ranks.is_empty() {
        true => Range::Session,
        false => Range::Custom(Group::of(ranks)),
    };
    let mut info = info?;
    if options.by_code {
        info.push((NON_DEFAULT.to_owned(), true.into()));
    }
    job.notify(options.code, range, info).map_err(failure)?;
    if as_json() { output::print_json_line(&json!({ "notified": options.code })) } else { Ok(()) }
}
