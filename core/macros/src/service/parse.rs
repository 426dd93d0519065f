//! Parsing the trait.

use super::{Method, Parameter, Role, Service};
use crate::paths;
use proc_macro2::TokenStream;
use syn::{
    Attribute, Error, FnArg, ItemTrait, LitStr, Meta, Pat, Path, Result, ReturnType, TraitItem,
    TraitItemFn, Type, parse::Parser, parse_quote,
};

/// Arguments of one method: they travel as a tuple.
const MOST_ARGUMENTS: usize = 8;
/// Methods that every service or client has.
const TAKEN: [&str; 4] = ["serve", "new", "at", "with"];

pub(super) fn service(arguments: TokenStream, item: ItemTrait) -> Result<Service> {
    let mut name = item.ident.to_string();
    let mut krate = None;
    let options = syn::meta::parser(|meta| {
        if meta.path.is_ident("name") {
            name = meta.value()?.parse::<LitStr>()?.value();
        } else if meta.path.is_ident("crate") {
            krate = Some(meta.value()?.parse::<LitStr>()?.parse::<Path>()?);
        } else {
            return Err(meta.error("known are name = \"NAME\" and crate = \"path\""));
        }
        Ok(())
    });
    options.parse2(arguments)?;
    if !item.generics.params.is_empty() {
        let why = "a service cannot be generic: its methods have one signature on the wire";
        return Err(Error::new_spanned(&item.generics, why));
    }
    let krate = match krate {
        Some(krate) => krate,
        None => paths::rpc(item.ident.span())?,
    };
    let methods = item.items.iter().map(method).collect::<Result<Vec<_>>>()?;
    Ok(Service { item, name, krate, methods })
}

fn method(item: &TraitItem) -> Result<Method> {
    let TraitItem::Fn(function) = item else {
        return Err(Error::new_spanned(item, "a service has only methods"));
    };
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(Error::new_spanned(signature, "a service's methods are async"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(&signature.generics, "a method cannot be generic"));
    }
    if let Some(body) = &function.default {
        return Err(Error::new_spanned(body, "a service's methods have no default bodies"));
    }
    if TAKEN.contains(&signature.ident.to_string().as_str()) {
        let why = "this name is taken: every service has a method `serve`, every client `new`, `at` and `with`";
        return Err(Error::new_spanned(&signature.ident, why));
    }
    let mut inputs = signature.inputs.iter();
    match inputs.next() {
        Some(FnArg::Receiver(receiver))
            if receiver.reference.is_some() && receiver.mutability.is_none() => {}
        _ => return Err(Error::new_spanned(signature, "a method begins with &self")),
    }
    let parameters = inputs.map(parameter).collect::<Result<Vec<_>>>()?;
    let travel = parameters.iter().filter(|p| p.role != Role::Context).count();
    if travel > MOST_ARGUMENTS {
        let why = "a method has at most 8 arguments: put them into a structure";
        return Err(Error::new_spanned(&signature.inputs, why));
    }
    let output: Type = match &signature.output {
        ReturnType::Default => parse_quote!(()),
        ReturnType::Type(_, ty) => (**ty).clone(),
    };
    let one_way = function.attrs.iter().any(|a| a.path().is_ident("one_way"));
    if one_way {
        if !matches!(signature.output, ReturnType::Default) {
            let why = "a one-way call has no result";
            return Err(Error::new_spanned(&signature.output, why));
        }
        if parameters.iter().any(|p| matches!(p.role, Role::Pull | Role::Push)) {
            let why = "a one-way call lends no memory: there is no answer that gives it back";
            return Err(Error::new_spanned(&signature.inputs, why));
        }
    }
    Ok(Method { function: stripped(function), one_way, output, parameters })
}

fn parameter(input: &FnArg) -> Result<Parameter> {
    let FnArg::Typed(typed) = input else {
        return Err(Error::new_spanned(input, "&self comes first"));
    };
    let Pat::Ident(pattern) = &*typed.pat else {
        return Err(Error::new_spanned(&typed.pat, "a parameter is a plain name"));
    };
    let mut role = if is_context(&typed.ty) { Role::Context } else { Role::Argument };
    for attribute in typed.attrs.iter().filter(|a| a.path().is_ident("bulk")) {
        role = bulk_role(attribute)?;
    }
    if let Type::Reference(reference) = &*typed.ty {
        let why = "arguments travel by value: use String for &str, Vec<u8> for &[u8]";
        return Err(Error::new_spanned(reference, why));
    }
    Ok(Parameter { name: pattern.ident.clone(), ty: (*typed.ty).clone(), role })
}

fn bulk_role(attribute: &Attribute) -> Result<Role> {
    let direction = match &attribute.meta {
        Meta::List(list) => list.parse_args::<syn::Ident>()?.to_string(),
        _ => String::new(),
    };
    match direction.as_str() {
        "pull" => Ok(Role::Pull),
        "push" => Ok(Role::Push),
        _ => {
            let why = "#[bulk(pull)]: the target gets the data; #[bulk(push)]: it gives data";
            Err(Error::new_spanned(attribute, why))
        }
    }
}

fn is_context(ty: &Type) -> bool {
    matches!(ty, Type::Path(path)
        if path.path.segments.last().is_some_and(|last| last.ident == "Context"))
}

/// The function without the attributes that are ours.
fn stripped(function: &TraitItemFn) -> TraitItemFn {
    let mut function = function.clone();
    function.attrs.retain(|a| !a.path().is_ident("one_way"));
    for input in &mut function.sig.inputs {
        if let FnArg::Typed(typed) = input {
            typed.attrs.retain(|a| !a.path().is_ident("bulk"));
        }
    }
    function
}
