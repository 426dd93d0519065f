//! Buckets of object stores, in place of a directory: those of this machine.

use crate::exit::{Code, Failure, Outcome};
use petasos_forward::storage::Storage;
use std::sync::Arc;

#[cfg(feature = "object-store")]
pub(super) fn bucket(url: &str) -> Outcome<Arc<dyn Storage>> {
    use object_store::{ObjectStore, local::LocalFileSystem, memory::InMemory};
    use petasos_forward::storage::Objects;

    let store: Arc<dyn ObjectStore> = match url.split_once("://") {
        Some(("memory", _)) => Arc::new(InMemory::new()),
        Some(("file", path)) => {
            let store = LocalFileSystem::new_with_prefix(path);
            Arc::new(store.map_err(|error| {
                Failure::new(Code::Usage, format!("{url}: {error}"))
                    .advise("name a directory that exists: file:///PATH")
            })?)
        }
        _ => {
            let text = format!("{url}: this store is not built in");
            return Err(Failure::new(Code::Unavailable, text).advise("file:///PATH or memory:///"));
        }
    };
    let objects = Objects::new(store, url.to_owned());
    Ok(Arc::new(objects.map_err(Failure::system("a directory for what is not complete"))?))
}

#[cfg(not(feature = "object-store"))]
pub(super) fn bucket(url: &str) -> Outcome<Arc<dyn Storage>> {
    let text = format!("{url}: object stores are not built in");
    let advice =
        "build with them: cargo build --release --bin petasos --features petasos-cli/object-store";
    Err(Failure::new(Code::Unavailable, text).advise(advice))
}
