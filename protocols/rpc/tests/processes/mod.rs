//! What tests among several processes have in common: a process is told by its environment.

use petasos_fabric::Endpoint;

pub(crate) const SCHEMES: [&str; 2] = ["shm", "tcp"];

pub(crate) fn open(scheme: &str) -> Box<dyn Endpoint> {
    match scheme {
        "shm" => Box::new(petasos_shm::Shm::open(&"shm://*".parse().unwrap()).unwrap()),
        _ => {
            let at = "tcp://127.0.0.1:0".parse().unwrap();
            let config = petasos_tcp::Config::default();
            Box::new(petasos_tcp::TcpEndpoint::open(&at, config).unwrap())
        }
    }
}

pub(crate) fn env(name: &str) -> String {
    std::env::var(name).unwrap()
}
