//! Traces cross processes. A program of its own: what is enabled is remembered for all threads.

#[path = "it/common.rs"]
mod common;

use common::{engine, run};
use petasos_rpc::{CallOptions, Context, Method, serve};
use petasos_wire::Wire;
use std::sync::{Arc, Mutex};

const DOUBLE: Method = Method::typed("Double::double", u64::SHAPE, u64::SHAPE);

/// A subscriber that records the names and fields of spans and events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, target: &str, record: impl FnOnce(&mut dyn tracing::field::Visit)) {
        struct Fields(String);
        impl tracing::field::Visit for Fields {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!(" {field}={value:?}");
            }
        }
        let mut fields = Fields(target.to_owned());
        record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().starts_with("petasos::")
    }
    fn new_span(&self, span: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        self.note(span.metadata().target(), |visit| span.record(visit));
        tracing::span::Id::from_u64(1)
    }
    fn event(&self, event: &tracing::Event<'_>) {
        self.note(event.metadata().target(), |visit| event.record(visit));
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[test]
fn traces_cross_to_the_target() {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || {
        let (client, server) = (engine(), engine());
        server.register(DOUBLE, 0, serve(|_: Context, n: u64| async move { 2 * n }));
        run(
            &[&client, &server],
            client.target(server.address()).call::<_, u64>(DOUBLE, &CallOptions::default(), &1u64),
        )
        .unwrap();
    });
    let log = log.0.lock().unwrap();
    let of = |target: &str| log.iter().find(|line| line.starts_with(target)).cloned();
    let (made, served) = (of("petasos::call").unwrap(), of("petasos::serve").unwrap());
    let id = |line: &str, name: &str| {
        let from = line.find(name).unwrap() + name.len();
        line[from..].split(' ').next().unwrap().to_owned()
    };
    assert_eq!(id(&made, " trace="), id(&served, " trace="), "{made} | {served}");
    assert_eq!(id(&made, " span="), id(&served, " parent="), "{made} | {served}");
}
