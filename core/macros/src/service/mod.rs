//! `#[service]`: a trait becomes an interface, its client, and its server.

mod emit;
mod parse;

use proc_macro2::TokenStream;
use syn::{ItemTrait, Path, Result};

pub(crate) fn expand(arguments: TokenStream, item: ItemTrait) -> Result<TokenStream> {
    let service = parse::service(arguments, item)?;
    Ok(emit::service(&service))
}

/// The interface, as the trait says.
struct Service {
    item: ItemTrait,
    /// Its name on the wire.
    name: String,
    krate: Path,
    methods: Vec<Method>,
}

/// One method.
struct Method {
    function: syn::TraitItemFn,
    one_way: bool,
    output: syn::Type,
    parameters: Vec<Parameter>,
}

/// One parameter after `&self`.
struct Parameter {
    name: syn::Ident,
    ty: syn::Type,
    role: Role,
}

/// How a parameter is passed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// It is encoded as an argument.
    Argument,
    /// The target supplies it: a `Context`.
    Context,
    /// The target gets the data of memory that the caller lends.
    Pull,
    /// The target fills memory that is then written to what the caller lends.
    Push,
}
