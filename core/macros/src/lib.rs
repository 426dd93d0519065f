//! The macros of Petasos: use them through the `petasos` crate.

#![forbid(unsafe_code)]

mod paths;
mod service;
mod wire;

use proc_macro::TokenStream;

/// Implements `petasos::wire::Wire` for a structure or an enum, so that it can be an argument or a
/// result.
///
/// Fields are encoded in order; an enum as the 32-bit number of the variant, and its fields. In
/// XDR that is a structure, and a discriminated union.
///
/// * `#[wire(tag = 7)]` on a variant: its number, and those after it count on from there. (A Rust
///   discriminant, as in `Variant = 7`, is ignored.)
/// * `#[wire(recursive)]` on a field whose type contains the type itself: the field then enters the
///   hash of the structure by its name only.
/// * `#[wire(crate = "path")]` on the type: where to find the crate `petasos-wire`, if neither it
///   nor `petasos` is a dependency in `Cargo.toml`, as when another crate re-exports it.
#[proc_macro_derive(Wire, attributes(wire))]
pub fn derive_wire(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    wire::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Makes a service interface of a trait: the trait to implement, a client, and the ids of the
/// methods.
///
/// ```
/// use petasos_rpc::{Context, fabric::Region, service};
///
/// #[service]
/// pub trait Store {
///     /// Arguments travel by value; the result is any type that travels.
///     async fn get(&self, key: String) -> Option<Vec<u8>>;
///     /// A parameter of type `Context` is not transmitted: the target describes the call in it.
///     async fn whoami(&self, context: Context) -> String;
///     /// The caller gets no answer.
///     #[one_way]
///     async fn log(&self, line: String);
///     /// Large data: the caller lends memory, the target gets what is in it.
///     async fn write(&self, key: String, #[bulk(pull)] data: Region) -> u64;
///     /// Large data in the other direction: the target fills `into`, the caller's memory gets it.
///     async fn read(&self, key: String, #[bulk(push)] into: Region) -> u64;
/// }
/// ```
///
/// From the trait `Store` come
///
/// * the trait, to be implemented with `async fn`s; `store.serve(&engine, provider)` registers an
///   implementation;
/// * `StoreClient`, with a method for each: a call that is under way when the method has returned,
///   and whose future gives `Result<T, CallError>`. Dropping the future cancels the call. Memory
///   for `#[bulk(pull)]` is anything that is `Into<Slice>`: a `Region`, a `Vec<u8>`. Memory for
///   `#[bulk(push)]` is borrowed, a `&Region` or a `&Slice`, as the caller reads the data there
///   afterwards:
///
/// ```
/// # use petasos_rpc::{CallError, fabric::Region, service};
/// # #[service]
/// # trait Store {
/// #     async fn read(&self, key: String, #[bulk(push)] into: Region) -> u64;
/// # }
/// async fn first_kilobyte(store: &StoreClient, key: &str) -> Result<Vec<u8>, CallError> {
///     let into = Region::zeroed(1000);
///     let len = store.read(key.to_owned(), &into).await?;
///     Ok(into.to_vec()[..len.min(1000) as usize].to_vec())
/// }
/// ```
///
/// ```compile_fail,E0277
/// # use petasos_rpc::{CallError, fabric::Region, service};
/// # #[service]
/// # trait Store {
/// #     async fn read(&self, key: String, #[bulk(push)] into: Region) -> u64;
/// # }
/// async fn lost(store: &StoreClient) -> Result<u64, CallError> {
///     store.read("a".into(), vec![0; 1000]).await
/// }
/// ```
///
/// ```compile_fail,E0277
/// # use petasos_rpc::{CallError, fabric::Region, service};
/// # #[service]
/// # trait Store {
/// #     async fn read(&self, key: String, #[bulk(push)] into: Region) -> u64;
/// # }
/// async fn lost(store: &StoreClient) -> Result<u64, CallError> {
///     store.read("a".into(), Region::zeroed(1000)).await
/// }
/// ```
///
/// ```compile_fail,E0716
/// # use petasos_rpc::{CallError, fabric::Region, service};
/// # #[service]
/// # trait Store {
/// #     async fn read(&self, key: String, #[bulk(push)] into: Region) -> u64;
/// # }
/// async fn lost(store: &StoreClient) -> Result<u64, CallError> {
///     let call = store.read("a".into(), &Region::zeroed(1000));
///     call.await
/// }
/// ```
///
/// The compiler accepts one such mistake: memory that is made and awaited in one expression,
/// `store.read("a".into(), &Region::zeroed(1000)).await`, lives as long as the call, and the data
/// is lost with it. A result that borrowed the memory would not prevent that if it is used in the
/// same expression. Give the memory a name.
///
/// Data that was pulled is given back to the caller as soon as the method has to wait.
/// For full control over transfers, take a `BulkHandle` as an ordinary argument, and open it.
///
/// `#[service(name = "NAME")]` sets the name on the wire (else the trait's), `#[service(crate =
/// "path")]` the crate where the generated code finds Petasos.
#[proc_macro_attribute]
pub fn service(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let item = syn::parse_macro_input!(item as syn::ItemTrait);
    service::expand(arguments.into(), item).unwrap_or_else(syn::Error::into_compile_error).into()
}
