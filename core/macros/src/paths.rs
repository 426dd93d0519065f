//! Where generated code finds what it calls, in the crate that it is generated for.

use proc_macro_crate::{Error as Missing, FoundCrate, crate_name};
use proc_macro2::{Ident, Span};
use syn::{Error, Path, Result, parse_quote};

/// The path of `petasos-wire`: the crate itself, or the module of the face crate, whichever the
/// user depends on, under whatever name.
pub(crate) fn wire(used_at: Span) -> Result<Path> {
    if let Ok(name) = dependency("petasos-wire", used_at) {
        return Ok(parse_quote!(::#name));
    }
    match dependency("petasos", used_at) {
        Ok(name) => Ok(parse_quote!(::#name::wire)),
        Err(Missing::CrateNotFound { .. }) => {
            let why = "neither `petasos` nor `petasos-wire` is a dependency of this crate: \
                       add one of them, or say where it is with #[wire(crate = \"path\")]";
            Err(Error::new(used_at, why))
        }
        // No manifest that can be read: not built by cargo.
        Err(_) => Ok(parse_quote!(::petasos_wire)),
    }
}

fn dependency(package: &str, used_at: Span) -> std::result::Result<Ident, Missing> {
    let name = match crate_name(package)? {
        FoundCrate::Name(name) => name,
        // In its own tests and examples.
        FoundCrate::Itself => package.replace('-', "_"),
    };
    Ok(Ident::new(&name, used_at))
}

/// The path of the face crate, or of `petasos-rpc`, which has the same names for what `#[service]`
/// needs.
pub(crate) fn rpc(used_at: Span) -> Result<Path> {
    for package in ["petasos", "petasos-rpc"] {
        match dependency(package, used_at) {
            Ok(name) => return Ok(parse_quote!(::#name)),
            Err(Missing::CrateNotFound { .. }) => {}
            // No manifest that can be read: not built by cargo.
            Err(_) => return Ok(parse_quote!(::petasos)),
        }
    }
    let why = "`petasos` is no dependency of this crate: add it, or say where it is with \
               #[service(crate = \"path\")]";
    Err(Error::new(used_at, why))
}
