//! A service in Rust that programs in Python call, and a client that calls theirs, by the dynamic
//! layer: methods by name, bytes in and out. What the bytes are is for both sides to agree on: the
//! Python package uses MessagePack, an array of the arguments and one value as the result.
//!
//! `store serve URL` serves; `store call ADDRESS` calls the same service of a Python program.

use petasos::{
    BulkHandle, CallError, CallOptions, Engine, EngineConfig, Failure, Incoming, Method,
    OpenOptions, Target, bytes, open,
    wire::{Encoding, from_bytes, hash_name, to_vec},
};
use serde::{Deserialize, Serialize};
use std::{
    cell::RefCell,
    collections::BTreeMap,
    error::Error,
    io::{Read, stdin},
    rc::Rc,
};

/// The signature is the hash of the annotations; a side without one has 0, and nothing is compared.
fn method(name: &str, signature: &str) -> Method {
    Method { signature: hash_name(signature), ..Method::named(name) }
}

fn put() -> Method {
    method("Store::put", "(str,bytes)->None")
}

fn get() -> Method {
    method("Store::get", "(str)->bytes")
}

/// Lent memory is an extension of MessagePack, of type 2.
const LENT: i8 = 2;

/// A dataclass of Python is a map of its fields.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
struct Summary {
    count: u64,
    total: f64,
}

fn pack(value: &impl Serialize) -> Vec<u8> {
    rmp_serde::to_vec_named(value).expect("these types have bytes")
}

fn arguments<'a, A: Deserialize<'a>>(bytes: &'a [u8]) -> Result<A, Failure> {
    rmp_serde::from_slice(bytes).map_err(|error| Failure::BadArguments(error.to_string()))
}

fn serve(engine: &Engine) {
    let data: Rc<RefCell<BTreeMap<String, Vec<u8>>>> = Rc::default();
    let values = Rc::clone(&data);
    engine.register(
        put(),
        0,
        bytes(move |call: Incoming| {
            let values = Rc::clone(&values);
            async move {
                let (key, value): (String, serde_bytes::ByteBuf) = arguments(&call)?;
                values.borrow_mut().insert(key, value.into_vec());
                Ok(pack(&()))
            }
        }),
    );
    let values = Rc::clone(&data);
    engine.register(
        get(),
        0,
        bytes(move |call: Incoming| {
            let values = Rc::clone(&values);
            async move {
                let (key,): (String,) = arguments(&call)?;
                let values = values.borrow();
                let missing = || Failure::Failed(format!("no such key: {key}"));
                Ok(pack(&serde_bytes::Bytes::new(values.get(&key).ok_or_else(missing)?)))
            }
        }),
    );
    // Without a signature.
    engine.register(
        Method::named("Store::summary"),
        0,
        bytes(|call: Incoming| async move {
            let (numbers,): (Vec<f64>,) = arguments(&call)?;
            Ok(pack(&Summary { count: numbers.len() as u64, total: numbers.iter().sum() }))
        }),
    );
    // The caller's memory, which this side pulls.
    engine.register(
        Method::named("Store::sum_bytes"),
        0,
        bytes(|call: Incoming| async move {
            let (rmp_serde_ext,): (Extension,) = arguments(&call)?;
            let handle: BulkHandle = from_bytes(Encoding::Native, &rmp_serde_ext.0.1)?;
            let remote = call.context().engine().open(&handle)?;
            let data = remote.pull(0, remote.len()).await?;
            Ok(pack(&data.to_vec().iter().map(|byte| u64::from(*byte)).sum::<u64>()))
        }),
    );
}

/// An extension, as serde's encoder for MessagePack has it.
#[derive(Deserialize, Serialize)]
#[serde(rename = "_ExtStruct")]
struct Extension((i8, serde_bytes::ByteBuf));

/// Calls a method. If this side has a signature and the other has none, or the other way round, it
/// is called again without.
fn call(
    engine: &Engine,
    target: &Target,
    method: Method,
    arguments: &impl Serialize,
) -> Result<Vec<u8>, CallError> {
    let (options, bytes) = (CallOptions::default(), pack(arguments));
    match engine.block_on(target.call_bytes(method, &options, &bytes)) {
        Err(CallError::SignatureMismatch { ours, theirs, .. }) if ours == 0 || theirs == 0 => {
            let method = Method { signature: theirs, ..method };
            engine.block_on(target.call_bytes(method, &options, &bytes))
        }
        answer => answer,
    }
}

fn use_store(engine: &Engine, address: &str) -> Result<(), Box<dyn Error>> {
    let target = engine.lookup(address)?;
    let value = serde_bytes::Bytes::new(b"of Rust");
    call(engine, &target, put(), &("key", value))?;
    let got = call(engine, &target, get(), &("key",))?;
    assert_eq!(rmp_serde::from_slice::<serde_bytes::ByteBuf>(&got)?, &b"of Rust"[..]);
    let missing = call(engine, &target, get(), &("none",)).unwrap_err();
    assert!(missing.to_string().contains("python KeyError: 'none'"), "{missing}");
    let other = call(engine, &target, method("Store::get", "(int)->bytes"), &(1,)).unwrap_err();
    assert!(matches!(other, CallError::SignatureMismatch { .. }), "{other}");

    let summary = call(engine, &target, Method::named("Store::summary"), &(vec![1.5, 2.5],))?;
    let expected = Summary { count: 2, total: 4.0 };
    assert_eq!(rmp_serde::from_slice::<Summary>(&summary)?, expected);

    let lent = engine.bulk(vec![1; 1 << 20], petasos::Access::READ)?;
    let handle = to_vec(Encoding::Native, &lent.handle());
    let extension = Extension((LENT, handle.into()));
    let sum = call(engine, &target, Method::named("Store::sum_bytes"), &(extension,))?;
    assert_eq!(rmp_serde::from_slice::<u64>(&sum)?, 1 << 20);
    engine.block_on(lent.close())?;
    println!("all as expected");
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments[..] {
        [what, url] if what == "serve" => {
            let engine = Engine::new(open(url, &OpenOptions::default())?, EngineConfig::default());
            serve(&engine);
            println!("{}", engine.address());
            // Until the standard input ends.
            let (sender, ended) = std::sync::mpsc::channel::<()>();
            std::thread::spawn(move || {
                let _ = stdin().read_to_end(&mut Vec::new());
                drop(sender);
            });
            while let Err(std::sync::mpsc::TryRecvError::Empty) = ended.try_recv() {
                engine.block_on(engine.sleep(std::time::Duration::from_millis(10)));
            }
            Ok(())
        }
        [what, address] if what == "call" => {
            let scheme = address.split("://").next().unwrap_or("shm");
            let own = if scheme == "tcp" { "tcp://127.0.0.1:0" } else { "shm://*" };
            let engine = Engine::new(open(own, &OpenOptions::default())?, EngineConfig::default());
            use_store(&engine, address)
        }
        _ => Err("usage: store serve URL | store call ADDRESS".into()),
    }
}
