//! `petasos serve`: somebody to ping.

use crate::{
    cli,
    exit::{Failure, Outcome},
    interrupt,
    listen::Listening,
    output,
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
    let secret = options.secret.as_deref();
    // Without files there is nothing here but answers: who calls takes time of the processor.
    let open_to_all = options.open || !options.files;
    let listening = Listening { urls: &options.listen, secret, open: open_to_all };
    let urls = listening.urls()?;
    // Removed at the end, after the engines.
    let scratch = options.files.then(Scratch::new).transpose()?;
    let mut engines = Vec::new();
    for (at, url) in urls.iter().enumerate() {
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
    let addresses: Vec<_> = engines.iter().map(|e| e.handle().address().clone()).collect();
    let may =
        if options.files { "call this server, and fill its directory" } else { "call this server" };
    eprintln!("petasos: {}", listening.who(&addresses, may));
    if !options.json.json && engines.iter().any(|e| e.handle().address().scheme() == "tcp") {
        eprintln!("petasos: try `petasos ping URL`; Ctrl-C ends the server");
    }
    interrupt::wait(None);
    Ok(())
}
