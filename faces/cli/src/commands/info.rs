//! `petasos info`: what there is here, what it can do, and what stands in the way of the rest.

use crate::{cli, exit::Outcome, output};
use petasos::{
    OpenError, OpenOptions, Transport,
    fabric::{
        Address, Attended, AttendedConfig, Capabilities, Credential, Endpoint, Enforcement, Support,
    },
};
use serde::Serialize;

#[derive(Serialize)]
struct Report {
    version: &'static str,
    machine: Machine,
    transports: Vec<Found>,
    /// Of those that the environment lists, with the reason.
    not_loaded: Vec<String>,
}

#[derive(Serialize)]
struct Machine {
    kernel: String,
    architecture: &'static str,
    /// Cores that this process may use.
    cores: usize,
    page_bytes: usize,
    memory_bytes: u64,
    locked_memory_limit_bytes: Option<u64>,
    open_files_limit: Option<u64>,
}

#[derive(Serialize)]
struct Found {
    scheme: &'static str,
    title: &'static str,
    available: bool,
    /// Why it is not.
    why_not: Option<String>,
    /// With every peer.
    capabilities: Option<Shown>,
    /// Of a transport that combines others: with the peers that it reaches by each.
    routes: Vec<Route>,
    /// What else is to be known.
    notes: Vec<String>,
}

#[derive(Serialize)]
struct Route {
    scheme: String,
    capabilities: Shown,
}

#[derive(Serialize)]
struct Shown {
    remote_access: &'static str,
    atomics: &'static str,
    tagged_messages: &'static str,
    put_with_event: &'static str,
    flush: &'static str,
    keys_to_parts: &'static str,
    quotas_of_peers: bool,
    read_in_place: &'static str,
    passive_target: bool,
    attended: bool,
    third_party_keys: bool,
    ordered_access: bool,
    fences: bool,
    processor_atomics: bool,
    rights_checked_by: &'static str,
    credentials: &'static str,
    max_message_bytes: usize,
    max_inject_bytes: usize,
    max_transfer_bytes: u64,
    max_regions: usize,
    max_keys: usize,
    max_operations: usize,
    max_peers: usize,
}

pub(crate) fn run(options: &cli::Info) -> Outcome {
    if let Some(peer) = &options.peer {
        return super::route::run(peer, options);
    }
    let report = Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: machine(),
        transports: petasos::transports().iter().map(|one| look(one, options.attended)).collect(),
        not_loaded: petasos::not_loaded().iter().map(ToString::to_string).collect(),
    };
    if options.json.json { output::print_json(&report) } else { show(&report) }
}

fn machine() -> Machine {
    let limit = |resource| rustix::process::getrlimit(resource).current;
    let system = rustix::system::uname();
    Machine {
        kernel: format!("{} {}", words(system.sysname()), words(system.release())),
        architecture: std::env::consts::ARCH,
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        page_bytes: rustix::param::page_size(),
        memory_bytes: {
            let info = rustix::system::sysinfo();
            (info.totalram as u64).saturating_mul(u64::from(info.mem_unit))
        },
        locked_memory_limit_bytes: limit(rustix::process::Resource::Memlock),
        open_files_limit: limit(rustix::process::Resource::Nofile),
    }
}

fn words(text: &std::ffi::CStr) -> String {
    text.to_string_lossy().into_owned()
}

fn look(transport: &Transport, attended: bool) -> Found {
    let (scheme, title) = (transport.scheme, transport.title);
    let none = |why: String| Found {
        scheme,
        title,
        available: false,
        why_not: Some(why),
        capabilities: None,
        routes: Vec::new(),
        notes: Vec::new(),
    };
    if let Some(missing) = transport.missing() {
        return none(missing.to_owned());
    }
    match open(transport, attended) {
        // What its library says of each network may show the way.
        Err(error) => Found { notes: transport.probe(), ..none(error.to_string()) },
        Ok((endpoint, routes)) => {
            let capabilities = endpoint.capabilities();
            let mut notes = transport.probe();
            if scheme == "shm" {
                notes.extend(forced());
            }
            // What differs from network to network stands with each.
            match transport.file() {
                Some(file) => {
                    notes.push(format!("loaded from {}", file.display()));
                    notes.push(LOADED.to_owned());
                }
                None if matches!(scheme, "ofi" | "ucx") => {}
                None => notes.push(exposure(capabilities).to_owned()),
            }
            let capabilities = Some(shown(capabilities));
            Found { scheme, title, available: true, why_not: None, capabilities, routes, notes }
        }
    }
}

/// An endpoint of a transport, and what it can do by each of its routes, if it has several.
fn open(
    transport: &Transport,
    attended: bool,
) -> Result<(Box<dyn Endpoint>, Vec<Route>), OpenError> {
    let mut options = OpenOptions::default();
    options.attended = attended.then(AttendedConfig::default);
    if transport.scheme != "auto" {
        return Ok((petasos::open(transport.any, &options)?, Vec::new()));
    }
    let endpoint = petasos::open_auto(&Address::parse(transport.any)?, &options)?;
    let route = |(scheme, can): (&str, &Capabilities)| Route {
        scheme: scheme.to_owned(),
        capabilities: shown(can),
    };
    let routes = endpoint.routes().map(route).collect();
    Ok(match options.attended {
        Some(config) => (Box::new(Attended::new(Box::new(endpoint), config)?), routes),
        None => (Box::new(endpoint), routes),
    })
}

fn shown(capabilities: &Capabilities) -> Shown {
    let support = |support: Support| match support {
        Support::Native => "native",
        Support::Emulated => "emulated",
        _ => "no",
    };
    let limits = &capabilities.limits;
    Shown {
        remote_access: support(capabilities.remote_access),
        atomics: support(capabilities.atomics),
        tagged_messages: support(capabilities.tagged),
        put_with_event: support(capabilities.put_with_event),
        flush: support(capabilities.flush),
        keys_to_parts: support(capabilities.part_keys),
        quotas_of_peers: capabilities.peer_quotas,
        read_in_place: support(capabilities.map),
        passive_target: capabilities.passive_target,
        attended: capabilities.attended,
        third_party_keys: capabilities.third_party,
        ordered_access: capabilities.ordered_access,
        fences: capabilities.fences,
        processor_atomics: capabilities.processor_atomics,
        rights_checked_by: match capabilities.enforcement {
            Enforcement::Owner => "the owner",
            Enforcement::Device => "the device",
            Enforcement::Initiator => "the initiator",
            _ => "unknown",
        },
        credentials: match capabilities.credential {
            Credential::None => "none",
            Credential::PeerCredentials => "the peer's user, by the kernel",
            Credential::SharedSecret => "a shared secret",
            _ => "unknown",
        },
        max_message_bytes: limits.max_message,
        max_inject_bytes: limits.max_inject,
        max_transfer_bytes: limits.max_transfer,
        max_regions: limits.max_regions,
        max_keys: limits.max_keys,
        max_operations: limits.max_operations,
        max_peers: limits.max_peers,
    }
}

/// Which processes could reach an endpoint, and read its data.
fn exposure(capabilities: &Capabilities) -> &'static str {
    match (capabilities.scheme, capabilities.credential, capabilities.enforcement) {
        ("self", ..) => "exposure: none beyond the process",
        (_, Credential::PeerCredentials, Enforcement::Initiator) => {
            "exposure: the kernel identifies the peer's user, and other users are refused; processes of \
             one user are trusted to respect the rights of keys, and could read each other's memory \
             anyway"
        }
        (_, Credential::PeerCredentials, _) => {
            "exposure: the kernel identifies the peer's user, and other users are refused; the owner \
             checks every access to its memory"
        }
        (_, Credential::SharedSecret, _) => {
            "exposure: every process that has the secret can call; data is encrypted where either side \
             asks for tcp://HOST:PORT?encrypt, and can be read on the network otherwise"
        }
        _ => {
            "exposure: without --secret, any user of this machine can call a server that listens \
             on loopback; beyond loopback a secret is required; with one, data is encrypted \
             where either side asks for tcp://HOST:PORT?encrypt"
        }
    }
}

/// The same of a transport that was loaded.
const LOADED: &str = "exposure: every process that reaches its endpoints can call a server there; with --secret, \
     those that have the secret; data is not encrypted, unless the transport does it";

/// Settings of the environment that force a slower path.
fn forced() -> Vec<String> {
    match std::env::var_os("PETASOS_SHM_NO_CMA").is_some_and(|v| !v.is_empty() && v != "0") {
        true => {
            vec!["PETASOS_SHM_NO_CMA is set: the owner serves access to ordinary memory".into()]
        }
        false => Vec::new(),
    }
}

/// What differs from route to route: each value, and the routes that have it. `None` if it does
/// not.
fn by_route(routes: &[Route], show: &dyn Fn(&Shown) -> String) -> Option<String> {
    let mut values: Vec<(String, Vec<&str>)> = Vec::new();
    for route in routes {
        let value = show(&route.capabilities);
        match values.iter_mut().find(|(known, _)| *known == value) {
            Some((_, schemes)) => schemes.push(&route.scheme),
            None => values.push((value, vec![&route.scheme])),
        }
    }
    let one = |(value, schemes): &(String, Vec<&str>)| format!("{value} ({})", schemes.join(", "));
    (values.len() > 1).then(|| values.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn show(report: &Report) -> Outcome {
    let machine = &report.machine;
    let limit = |limit: Option<u64>, show: fn(u64) -> String| limit.map_or("none".into(), show);
    let mut text = format!(
        "petasos {}\n{} on {}; {}, {} of memory, pages of {}; locked memory limit {}, open files \
         limit {}\n",
        report.version,
        machine.kernel,
        machine.architecture,
        output::count(machine.cores as u64, "core", "cores"),
        output::size(machine.memory_bytes),
        output::size(machine.page_bytes as u64),
        limit(machine.locked_memory_limit_bytes, output::size),
        limit(machine.open_files_limit, |number| number.to_string()),
    );
    let mut table = output::table(&["transport", "what", "here"]);
    for found in &report.transports {
        let here = found.why_not.as_deref().unwrap_or("yes");
        table.add_row([found.scheme, found.title, here]);
    }
    text += &format!("{table}\n");
    let available: Vec<_> = report
        .transports
        .iter()
        .filter_map(|found| Some((found, found.capabilities.as_ref()?)))
        .collect();
    let mut columns = vec!["can"];
    columns.extend(available.iter().map(|(found, _)| found.scheme));
    let mut table = output::table(&columns);
    let mut row = |name: &str, show: &dyn Fn(&Shown) -> String| {
        let mut cells = vec![name.to_owned()];
        cells.extend(available.iter().map(|(found, shown)| match by_route(&found.routes, show) {
            Some(differ) => differ,
            None => show(shown),
        }));
        table.add_row(cells);
    };
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    row("put and get", &|c| c.remote_access.to_owned());
    row("atomics", &|c| c.atomics.to_owned());
    row("tagged messages", &|c| c.tagged_messages.to_owned());
    row("put with event", &|c| c.put_with_event.to_owned());
    row("flush", &|c| c.flush.to_owned());
    row("keys to parts of regions", &|c| c.keys_to_parts.to_owned());
    row("quotas of peers", &|c| yes(c.quotas_of_peers));
    row("memory read in place", &|c| c.read_in_place.to_owned());
    row("access while the target sleeps", &|c| yes(c.passive_target));
    row("driven by a thread meanwhile", &|c| yes(c.attended));
    row("keys that may be passed on", &|c| yes(c.third_party_keys));
    row("ordered access", &|c| yes(c.ordered_access));
    row("fences", &|c| yes(c.fences));
    row("atomics coherent with the processor", &|c| yes(c.processor_atomics));
    row("rights checked by", &|c| c.rights_checked_by.to_owned());
    row("credentials", &|c| c.credentials.to_owned());
    row("longest message", &|c| output::size(c.max_message_bytes as u64));
    row("largest transfer", &|c| output::size(c.max_transfer_bytes));
    row("regions", &|c| c.max_regions.to_string());
    row("keys", &|c| c.max_keys.to_string());
    row("operations under way", &|c| c.max_operations.to_string());
    row("peers", &|c| c.max_peers.to_string());
    text += &table.to_string();
    for found in &report.transports {
        for note in &found.notes {
            text += &format!("\n{}: {note}", found.scheme);
        }
    }
    for failure in &report.not_loaded {
        text += &format!("\nnot loaded: {failure}");
    }
    output::print(&text)
}
