//! A trait as an interface: client, server, errors, bulk arguments.

use crate::common::{engine, run, settle, turn_for};
use petasos_fabric::Region;
use petasos_rpc::{CallError, CallOptions, Context, Wire, service};
use std::{cell::RefCell, collections::HashMap, time::Duration};

#[derive(Wire, Clone, Debug, PartialEq)]
struct Entry {
    key: String,
    size: u64,
}

/// A store of named data.
#[service]
trait Store {
    /// The entries whose key begins so.
    async fn list(&self, prefix: String) -> Vec<Entry>;
    /// Fails with words of its own.
    async fn remove(&self, key: String) -> Result<u64, String>;
    async fn whoami(&self, context: Context, question: u8) -> (String, u16, u8);
    #[one_way]
    async fn touch(&self, key: String);
    async fn write(&self, key: String, #[bulk(pull)] data: Region) -> u64;
    async fn read(&self, key: String, #[bulk(push)] into: Region) -> Option<u64>;
}

#[derive(Default)]
struct Memory(RefCell<HashMap<String, Vec<u8>>>);

impl Store for Memory {
    async fn list(&self, prefix: String) -> Vec<Entry> {
        let data = self.0.borrow();
        let mut found: Vec<_> = data
            .iter()
            .filter(|(key, _)| key.starts_with(&prefix))
            .map(|(key, value)| Entry { key: key.clone(), size: value.len() as u64 })
            .collect();
        found.sort_by(|a, b| a.key.cmp(&b.key));
        found
    }

    async fn remove(&self, key: String) -> Result<u64, String> {
        let removed = self.0.borrow_mut().remove(&key);
        removed.map(|value| value.len() as u64).ok_or_else(|| format!("no {key}"))
    }

    async fn whoami(&self, context: Context, question: u8) -> (String, u16, u8) {
        (context.peer().to_string(), context.provider(), question)
    }

    async fn touch(&self, key: String) {
        self.0.borrow_mut().entry(key).or_default();
    }

    async fn write(&self, key: String, data: Region) -> u64 {
        let len = data.len() as u64;
        self.0.borrow_mut().insert(key, data.to_vec());
        len
    }

    async fn read(&self, key: String, into: Region) -> Option<u64> {
        let data = self.0.borrow();
        let value = data.get(&key)?;
        let len = value.len().min(into.len());
        into.write(0, &value[..len]);
        Some(len as u64)
    }
}

#[test]
fn a_service_from_a_trait() {
    let (there, here) = (engine(), engine());
    Memory::default().serve(&there, 0).unwrap();
    Memory::default().serve(&there, 7).unwrap();
    let taken = Memory::default().serve(&there, 7).unwrap_err();
    assert_eq!((taken.method, taken.provider), ("Store::list", 7));
    let store = StoreClient::new(&here, there.address());
    let both = [&there, &here];

    store.touch("b".into()).unwrap();
    turn_for(&both, Duration::from_millis(5));
    let data: Vec<u8> = (0..100_000u32).map(|at| at as u8).collect();
    for size in [0, 17, 100_000] {
        let written = run(&both, store.write("a".into(), data[..size].to_vec())).unwrap();
        assert_eq!(written, size as u64);
    }
    let expected = [("a", 100_000), ("b", 0)].map(|(key, size)| Entry { key: key.into(), size });
    assert_eq!(run(&both, store.list(String::new())).unwrap(), expected);

    let into = Region::zeroed(60_000);
    assert_eq!(run(&both, store.read("a".into(), &into)).unwrap(), Some(60_000));
    assert!(into.into_exclusive().expect("it is ours again")[..] == data[..60_000]);

    assert_eq!(run(&both, store.remove("a".into())).unwrap(), Ok(100_000));
    assert_eq!(run(&both, store.remove("a".into())).unwrap(), Err("no a".to_owned()));

    let seventh = store.with(CallOptions::default().provider(7));
    let caller = run(&both, seventh.whoami(9)).unwrap();
    assert_eq!(caller, (here.address().to_string(), 7, 9));
    assert!(run(&both, seventh.list("b".into())).unwrap().is_empty());
    let eighth = store.with(CallOptions::default().provider(8));
    let error = run(&both, eighth.list("b".into())).unwrap_err();
    assert!(matches!(error, CallError::NoSuchProvider { .. }));
    settle(&both);
}

#[test]
fn another_version_of_the_interface_is_noticed() {
    mod newer {
        #[petasos_rpc::service(name = "Store")]
        pub(crate) trait Store {
            async fn list(&self, prefix: String, limit: u32) -> Vec<super::Entry>;
        }
    }
    let (there, here) = (engine(), engine());
    Memory::default().serve(&there, 0).unwrap();
    let store = newer::StoreClient::new(&here, there.address());
    let error = run(&[&there, &here], store.list(String::new(), 1)).unwrap_err();
    assert!(matches!(error, CallError::SignatureMismatch { .. }), "{error}");
}
