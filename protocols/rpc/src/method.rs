//! Methods: their names, ids and signatures.

use petasos_wire::{Wire, hash_name, shape_join};
use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

/// A method as both sides know it: its id on the wire, and the hash of its signature by which
/// they notice that they were built from different interfaces.
///
/// `#[service]` makes the methods of an interface. Those of plug-ins and bindings can come into
/// being when the program runs, with bytes in and out, or with types:
///
/// ```
/// use petasos_rpc::{CallOptions, Engine, EngineConfig, Method, bytes, serve};
///
/// # let endpoint = Box::new(petasos_self::Local::open(&"self://*".parse()?)?);
/// # let engine = Engine::new(endpoint, EngineConfig::default());
/// # let plug_in = String::from("mirror");
/// let reverse = Method::named(&format!("{plug_in}::reverse"));
/// engine.register(reverse, 0, bytes(|call| async move { Ok(call.iter().rev().copied().collect()) }));
///
/// // The types go into the signature, which is compared with each call.
/// let sum = Method::named(&format!("{plug_in}::sum")).of::<Vec<u64>, u64>();
/// engine.register(sum, 0, serve(|_, of: Vec<u64>| async move { of.iter().sum::<u64>() }));
///
/// let (target, options) = (engine.target(engine.address()), CallOptions::default());
/// assert_eq!(engine.block_on(target.call_bytes(reverse, &options, b"abc"))?, b"cba");
/// assert_eq!(engine.block_on(target.call::<_, u64>(sum, &options, &vec![1u64, 2, 3]))?, 6);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Method {
    /// `Service::method`, for errors and statistics.
    pub name: &'static str,
    /// Hash of the name.
    pub id: u64,
    /// Hash of the types of arguments and result; 0 where bytes go in and out.
    pub signature: u64,
}

impl Method {
    /// A method of typed arguments and result, given by their shapes.
    #[must_use]
    pub const fn typed(name: &'static str, arguments: u64, result: u64) -> Method {
        Method { name, id: hash_name(name), signature: shape_join(arguments, result) }
    }

    /// A method whose arguments and result are bytes.
    #[must_use]
    pub const fn raw(name: &'static str) -> Method {
        Method { name, id: hash_name(name), signature: 0 }
    }

    /// A method whose arguments and result are bytes, and whose name is known only at run time.
    ///
    /// The text of each name is kept as long as the program runs, once, and [`Method::NAMES`] bytes
    /// of names in all. A method that is named after that works as others do; errors and statistics
    /// call it `(unnamed)`.
    #[must_use]
    pub fn named(name: &str) -> Method {
        Method { name: kept(name).unwrap_or("(unnamed)"), id: hash_name(name), signature: 0 }
    }

    /// Bytes of names that are kept for [`Method::named`]: 1 MiB.
    pub const NAMES: usize = 1 << 20;

    /// The same method with arguments `A`, a tuple if there are several, and result `R`.
    #[must_use]
    pub const fn of<A: Wire, R: Wire>(self) -> Method {
        Method { signature: shape_join(A::SHAPE, R::SHAPE), ..self }
    }
}

/// The name, kept as long as the program runs, if there is room for it.
fn kept(name: &str) -> Option<&'static str> {
    static NAMES: Mutex<Option<Names>> = Mutex::new(None);
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    names.get_or_insert_default().keep(name, Method::NAMES)
}

#[derive(Default)]
struct Names {
    known: HashSet<&'static str>,
    bytes: usize,
}

impl Names {
    fn keep(&mut self, name: &str, most: usize) -> Option<&'static str> {
        if let Some(known) = self.known.get(name) {
            return Some(known);
        }
        let bytes = self.bytes.checked_add(name.len()).filter(|bytes| *bytes <= most)?;
        // Each name once, and no more than that in all.
        let name: &'static str = name.to_owned().leak();
        self.known.insert(name);
        self.bytes = bytes;
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_once_and_within_bounds() {
        let mut names = Names::default();
        let first = names.keep("Store::get", 15).unwrap();
        let again = names.keep(&String::from("Store::get"), 15).unwrap();
        assert!(std::ptr::eq(first, again) && names.bytes == 10);
        assert_eq!((names.keep("Store::put", 15), names.keep("five!", 15)), (None, Some("five!")));
        assert_eq!(names.keep("Store::get", 15), Some("Store::get"));
    }

    #[test]
    fn a_method_is_its_name_whenever_that_is_known() {
        assert_eq!(Method::named(&["Store", "get"].join("::")), Method::raw("Store::get"));
        let typed = Method::typed("Store::get", <(String,)>::SHAPE, u64::SHAPE);
        assert_eq!(Method::named("Store::get").of::<(String,), u64>(), typed);
    }
}
