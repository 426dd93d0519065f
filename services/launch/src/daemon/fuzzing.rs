//! What daemons say to each other, for the fuzz targets.

use super::{
    control::Program,
    staging::Coming,
    tree::{Planned, Starter},
};
use crate::launch::{Settings, Speaks};
use petasos_pmix::{Node, Termination};
use std::time::Duration;

pub(crate) use super::control::{Bootstrap, Control, Setup};

pub(crate) fn bootstrap() -> Bootstrap {
    Bootstrap {
        version: "1.2.3".to_owned(),
        secret: [1; 32],
        node: Node(1),
        nodes: 2,
        ranks: 3,
        alone: false,
        head: vec!["127.0.0.1:4040".to_owned()],
        settings: Settings {
            timeout: Some(Duration::from_secs(600)),
            log: Some("petasos=debug".to_owned()),
            ..Settings::default()
        },
        starter: Starter {
            command: vec!["ssh".to_owned()],
            program: "/usr/bin/petasos".to_owned(),
        },
        below: vec![Planned { node: Node(17), host: "b".to_owned(), ranks: 2 }],
    }
}

fn said() -> Vec<(String, Vec<u8>)> {
    vec![("sockets".to_owned(), b"tcp://10.0.0.1:9000".to_vec())]
}

/// One of each kind, but for what engines say.
pub(crate) fn controls() -> Vec<Control> {
    let setup = Setup {
        job: petasos_pmix::fuzzing::job().spec().clone(),
        program: Program {
            arguments: vec!["program".to_owned(), "argument".to_owned()],
            directory: "/".to_owned(),
            environment: vec![("NAME".to_owned(), "value".to_owned())],
            bind: true,
            speaks: Speaks::Auto,
        },
        daemons: vec![(Node(1), "10.0.0.1:4040".to_owned())],
        blobs: said(),
        spares: 1,
        coming: Some(Coming {
            mover: "copies".to_owned(),
            directory: Some("/scratch".to_owned()),
            program: None,
        }),
    };
    vec![
        Control::Hello { host: "10.0.0.1".to_owned(), port: 4040, offers: said() },
        Control::NotStarted { node: Node(1), why: "why".to_owned() },
        Control::Others(vec![(Node(1), "10.0.0.1:4040".to_owned())]),
        Control::Setup(Box::new(setup)),
        Control::Prepared(Ok(b"tcp://10.0.0.1:4041".to_vec())),
        Control::Prepared(Err("why".to_owned())),
        Control::Start,
        Control::Output { rank: 1, error: true, bytes: b"a line\n".to_vec() },
        Control::OutputTaken(7),
        Control::Input(b"input".to_vec()),
        Control::InputTaken(5),
        Control::Ended { rank: 1, restarts: 2, finalized: false, why: Termination::Exited(3) },
        Control::Signal(15),
        Control::Bye,
    ]
}
