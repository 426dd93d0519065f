//! `petasos broker`: lends the fast paths of a host to containers.

use crate::{
    cli::{
        self,
        broker::{Command, Serve, Status},
    },
    exit::{Code, Failure, Outcome},
    interrupt,
    output::{self, parse_size},
};
use petasos_broker::{Ask, Broker, Config, ConfigError, OpenError, ask};
use serde_json::{Value, json};
use std::{
    panic::{self, AssertUnwindSafe},
    path::Path,
    process, thread,
};

pub(crate) fn run(options: &cli::Broker) -> Outcome {
    match &options.command {
        None => serve(&options.serve),
        Some(Command::Serve(options)) => serve(options),
        Some(Command::Status(options)) => status(options),
        Some(Command::Reload(options)) => reload(options),
    }
}

fn serve(options: &Serve) -> Outcome {
    interrupt::be_polite();
    let config = config(options).map_err(|error| Failure::new(Code::Usage, error))?;
    if config.tenants.is_empty() {
        return Err(Failure::new(Code::Usage, "there is no tenant to serve")
            .advise("--config FILE, or --tenant NAME=SOCKET"));
    }
    let tenants: Vec<_> =
        config.tenants.iter().map(|tenant| (tenant.name.clone(), tenant.socket.clone())).collect();
    let mut broker = Broker::open(config, None).map_err(refused)?;
    if options.config.is_some() {
        // With the same options: what they forbid is not allowed by that the file is read again.
        let options = options.clone();
        broker.read_by(move || self::config(&options));
    }
    let stop = broker.stop();
    let serving = thread::Builder::new().name("broker".to_owned()).spawn(move || {
        // Without it, no tenant would be served, and the administrator would not know why.
        if panic::catch_unwind(AssertUnwindSafe(|| broker.run())).is_err() {
            process::exit(Code::Failed as i32);
        }
    });
    let serving = serving.map_err(Failure::system("starting a thread"))?;
    for (name, socket) in tenants {
        match options.json.json {
            true => output::print_json_line(&json!({ "tenant": name, "socket": socket }))?,
            false => output::print(&format!("tenant {name} at {}", socket.display()))?,
        }
    }
    interrupt::wait(None);
    stop.stop();
    serving.join().map_err(|_| Failure::new(Code::Failed, "the broker's thread has failed"))
}

fn refused(error: OpenError) -> Failure {
    match error {
        OpenError::Config(error) => Failure::new(Code::Usage, error),
        error => Failure::new(Code::Failed, error),
    }
}

/// The file, and what the flags add.
fn config(options: &Serve) -> Result<Config, ConfigError> {
    let wrong =
        |what: &str, text: &str| ConfigError::Wrong(format!("`{text}`: write it as {what}"));
    let mut config = match &options.config {
        Some(file) => Config::read(file)?,
        None => Config::new(petasos_broker::CONTROL),
    };
    if let Some(control) = &options.control {
        config.control.clone_from(control);
    }
    if let Some(spin) = options.spin {
        config.spin_us = spin.as_micros() as u64;
    }
    for text in &options.tenant {
        let (name, socket) = text.split_once('=').ok_or_else(|| wrong("NAME=SOCKET", text))?;
        config.add_tenant(name, socket);
    }
    for text in &options.allow {
        let (from, to) = text.split_once('=').ok_or_else(|| wrong("FROM=TO", text))?;
        config.allow(from, to)?;
    }
    for text in &options.limit {
        let parts = text.split_once('=').and_then(|(what, value)| {
            let (tenant, limit) = what.rsplit_once('.')?;
            Some((tenant, limit, parse_size(value).ok()?))
        });
        let (tenant, limit, value) = parts.ok_or_else(|| wrong("TENANT.LIMIT=VALUE", text))?;
        config.set_limit(tenant, limit, value)?;
    }
    config.check()?;
    Ok(config)
}

fn answer(control: &Path, what: Ask) -> Outcome<Value> {
    let answer = ask(control, what).map_err(|error| {
        let text = format!("no broker at {}: {error}", control.display());
        Failure::new(Code::Unreachable, text).advise("petasos broker --config FILE")
    })?;
    serde_json::from_str(&answer).map_err(Failure::system("understanding the broker"))
}

fn reload(options: &Status) -> Outcome {
    let answer = answer(&options.control, Ask::Reload)?;
    match answer["error"].as_str() {
        Some(error) => Err(Failure::new(Code::Failed, error)),
        None if options.json.json => output::print_json(&json!({ "reloaded": options.control })),
        None => output::print("the broker has read its file again"),
    }
}

fn status(options: &Status) -> Outcome {
    let answer = answer(&options.control, Ask::Status)?;
    if options.json.json {
        return output::print_json(&answer);
    }
    let list = |what: &str| answer[what].as_array().cloned().unwrap_or_default();
    let number = |value: &Value| value.as_u64().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut tenants =
        output::table(&["tenant", ">endpoints", ">sent", ">received", ">in place", ">refused"]);
    for tenant in list("tenants") {
        tenants.add_row([
            text(&tenant["name"]),
            tenant["endpoints"].as_array().map_or(0, Vec::len).to_string(),
            output::size(number(&tenant["sent"]["bytes"])),
            output::size(number(&tenant["received"]["bytes"])),
            output::size(number(&tenant["sent"]["bytes_in_place"])),
            number(&tenant["refused"]).to_string(),
        ]);
    }
    let mut parts = vec![tenants.to_string()];
    let connections = list("connections");
    if !connections.is_empty() {
        let mut table = output::table(&["from", "to", ">messages", ">bytes", "by"]);
        for connection in connections {
            table.add_row([
                text(&connection["from"]),
                text(&connection["to"]),
                number(&connection["carried"]["messages"]).to_string(),
                output::size(number(&connection["carried"]["bytes"])),
                text(&connection["rule"]),
            ]);
        }
        parts.push(table.to_string());
    }
    for entry in list("log").iter().filter(|entry| entry["what"] != "connected") {
        parts.push(format!(
            "{} {} to {}: {} ({} times)",
            text(&entry["what"]),
            text(&entry["from"]),
            text(&entry["to"]),
            text(&entry["why"]),
            number(&entry["times"])
        ));
    }
    output::print(&parts.join("\n"))
}
