//! The smallest service: a trait, its implementation, a call.
//!
//! ```text
//! cargo run --example hello                         # both ends in one program
//! cargo run --example hello serve shm://greeter     # or in two: this one serves,
//! cargo run --example hello call shm://greeter Ada  # and this one calls
//! ```

use petasos::{Engine, EngineConfig, EngineThread, OpenOptions, open, service};
use std::error::Error;

#[service]
trait Greeter {
    async fn greet(&self, name: String) -> String;
}

struct Polite;

impl Greeter for Polite {
    async fn greet(&self, name: String) -> String {
        format!("Good morning, {name}.")
    }
}

fn serve(url: &str) -> Result<EngineThread, Box<dyn Error>> {
    let endpoint = open(url, &OpenOptions::default())?;
    Ok(EngineThread::start(endpoint, EngineConfig::default(), |engine| {
        Polite.serve(engine, 0).expect("nothing else is served");
    })?)
}

fn call(url: &str, name: &str) -> Result<String, Box<dyn Error>> {
    let scheme = url.split_once("://").map_or("shm", |(scheme, _)| scheme);
    let endpoint = open(&format!("{scheme}://*"), &OpenOptions::default())?;
    let engine = Engine::new(endpoint, EngineConfig::default());
    let greeter = GreeterClient::new(&engine, &url.parse()?);
    Ok(engine.block_on(greeter.greet(name.to_owned()))?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            let server = serve("shm://*")?;
            println!("{}", call(server.handle().address().as_str(), "Ada")?);
        }
        ["serve", url] => {
            let server = serve(url)?;
            println!("serving at {}; end with Ctrl-C", server.handle().address());
            loop {
                std::thread::park();
            }
        }
        ["call", url, name] => println!("{}", call(url, name)?),
        _ => return Err("usage: hello [serve URL | call URL NAME]".into()),
    }
    Ok(())
}
