//! The macros of Petasos: use them through the `petasos` crate.

#![forbid(unsafe_code)]

mod paths;
mod wire;

use proc_macro::TokenStream;

/// Makes a structure or an enum travel: implements `petasos::wire::Wire`.
///
/// Fields are encoded in order; an enum as the 32-bit number of the variant, and its fields. In
/// XDR that is a structure, and a discriminated union.
///
/// * `#[wire(tag = 7)]` on a variant: its number, and those after it count on from there. (A Rust
///   discriminant, as in `Variant = 7`, is not looked at.)
/// * `#[wire(recursive)]` on a field whose type contains the type itself: the field then enters the
///   hash of the structure by its name only.
/// * `#[wire(crate = "path")]` on the type: where to find the crate `petasos-wire`, if neither it
///   nor `petasos` is a dependency in `Cargo.toml`, as when another crate re-exports it.
#[proc_macro_derive(Wire, attributes(wire))]
pub fn derive_wire(input: TokenStream) -> TokenStream {
    let input = syn::parse_macro_input!(input as syn::DeriveInput);
    wire::derive(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
