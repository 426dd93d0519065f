//! `petasos serve`: somebody to ping.

use crate::{
    cli,
    exit::{Code, Failure, Outcome},
    interrupt, output,
    scratch::Scratch,
    server,
    server::Waiting,
    service::Stored,
};
use petasos::{EngineThread, OpenOptions};
use serde_json::json;

pub(crate) fn run(options: &cli::Serve) -> Outcome {
    interrupt::be_polite();
    let mut open = OpenOptions::default();
    open.secret_file.clone_from(&options.secret);
    let waiting = match options.wait {
        cli::Wait::Adaptive => Waiting::Adaptive,
        cli::Wait::Spin => Waiting::Spinning,
        cli::Wait::Sleep => Waiting::Sleeping,
    };
    let mut urls: Vec<String> = options.listen.iter().map(ToString::to_string).collect();
    if urls.is_empty() {
        let here = petasos::transports().iter();
        let between = here.filter(|t| t.by_default && t.scheme != "self");
        urls = between.map(|transport| transport.any.to_owned()).collect();
    }
    // Removed at the end, after the engines.
    let scratch = options.files.then(Scratch::new).transpose()?;
    let mut engines = Vec::new();
    for (at, url) in urls.iter().enumerate() {
        if url.starts_with("self://") {
            let text = format!("{url}: nobody outside this process could reach it");
            return Err(Failure::new(Code::Usage, text).advise("--listen shm://NAME"));
        }
        let endpoint = petasos::open(url, &open)?;
        let config = waiting.config();
        let store = match &scratch {
            Some(scratch) => {
                let place = scratch.directory(&format!("store-{at}"))?;
                Some(Stored::new(&place).map_err(|e| Failure::file("making", &place, &e))?)
            }
            None => None,
        };
        let engine = EngineThread::start(endpoint, config, |engine| {
            server::serve(engine, store);
        });
        engines.push(engine.map_err(Failure::system("starting a thread"))?);
    }
    for engine in &engines {
        let url = engine.handle().address();
        match options.json.json {
            true => output::print_json_line(&json!({ "listening": url.as_str() }))?,
            false => output::print(&format!("listening at {url}"))?,
        }
    }
    if !options.json.json && engines.iter().any(|e| e.handle().address().scheme() == "tcp") {
        eprintln!("petasos: try `petasos ping URL`; Ctrl-C ends the server");
    }
    interrupt::wait(None);
    Ok(())
}
