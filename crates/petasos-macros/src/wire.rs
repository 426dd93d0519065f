//! `#[derive(Wire)]`.

use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Field, Fields, LitInt, LitStr, Path, Result, parse_quote};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let krate = crate_path(input)?;
    let body = match &input.data {
        Data::Struct(data) => of_struct(&krate, &data.fields)?,
        Data::Enum(data) => of_enum(&krate, data)?,
        Data::Union(_) => {
            let why = "a union does not say what is in it: use an enum";
            return Err(Error::new_spanned(&input.ident, why));
        }
    };
    let Body { shape, encode, decode } = body;
    let kind = if matches!(input.data, Data::Enum(_)) { "enum" } else { "struct" };
    let mut generics = input.generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(parse_quote!(#krate::Wire));
    }
    let (implementing, types, bounds) = generics.split_for_impl();
    let name = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl #implementing #krate::Wire for #name #types #bounds {
            const SHAPE: u64 = {
                let shape = #krate::hash_name(#kind);
                #shape
                shape
            };
            fn encode<__F: #krate::Format>(&self, out: &mut #krate::Encoder<'_, __F>) {
                #encode
            }
            fn decode<__F: #krate::Format>(
                from: &mut #krate::Decoder<'_, __F>,
            ) -> ::core::result::Result<Self, #krate::DecodeError> {
                #decode
            }
        }
    })
}

struct Body {
    shape: TokenStream,
    encode: TokenStream,
    decode: TokenStream,
}

fn of_struct(krate: &Path, fields: &Fields) -> Result<Body> {
    let shape = shape_of(krate, fields)?;
    let names = bindings(fields);
    let pattern = construct(fields, &names);
    let takes = takes(krate, fields, &names);
    Ok(Body {
        shape,
        encode: quote! {
            let Self #pattern = self;
            #(#krate::Wire::encode(#names, out);)*
        },
        decode: quote! {
            #takes
            ::core::result::Result::Ok(Self #pattern)
        },
    })
}

fn of_enum(krate: &Path, data: &syn::DataEnum) -> Result<Body> {
    let (mut shape, mut encode, mut decode) = (quote!(), quote!(), quote!());
    let mut next = 0u32;
    let mut seen = std::collections::BTreeSet::new();
    for variant in &data.variants {
        let tag = tag_of(variant)?.unwrap_or(next);
        next = tag.wrapping_add(1);
        if !seen.insert(tag) {
            let why = format!("the tag {tag} stands for another variant already");
            return Err(Error::new_spanned(&variant.ident, why));
        }
        let name = &variant.ident;
        let text = name.to_string();
        let inner = shape_of(krate, &variant.fields)?;
        shape.extend(quote! {
            let shape = #krate::shape_join(shape, #krate::hash_name(#text));
            let shape = #krate::shape_join(shape, #tag as u64);
            #inner
        });
        let names = bindings(&variant.fields);
        let pattern = construct(&variant.fields, &names);
        encode.extend(quote! {
            Self::#name #pattern => {
                out.u32(#tag);
                #(#krate::Wire::encode(#names, out);)*
            }
        });
        let takes = takes(krate, &variant.fields, &names);
        decode.extend(quote! {
            #tag => { #takes ::core::result::Result::Ok(Self::#name #pattern) }
        });
    }
    if data.variants.is_empty() {
        encode.extend(quote!(_ => ::core::unreachable!("a value of an empty enum"),));
    }
    Ok(Body {
        shape,
        encode: quote! { match self { #encode } },
        decode: quote! {
            from.nested(|from| match from.u32()? {
                #decode
                value => ::core::result::Result::Err(#krate::DecodeError::BadValue {
                    what: "variant",
                    value: value as u64,
                }),
            })
        },
    })
}

/// Statements that decode each field into its binding.
fn takes(krate: &Path, fields: &Fields, names: &[Ident]) -> TokenStream {
    let types = fields.iter().map(|field| &field.ty);
    quote!(#(let #names = <#types as #krate::Wire>::decode(from)?;)*)
}

/// One binding a field.
fn bindings(fields: &Fields) -> Vec<Ident> {
    (0..fields.len()).map(|at| format_ident!("field_{at}")).collect()
}

/// The fields in braces or parentheses, each bound to its name: a pattern and an expression.
fn construct(fields: &Fields, names: &[Ident]) -> TokenStream {
    match fields {
        Fields::Named(named) => {
            let labels = named.named.iter().map(|field| &field.ident);
            quote!({ #(#labels: #names),* })
        }
        Fields::Unnamed(_) => quote!((#(#names),*)),
        Fields::Unit => quote!(),
    }
}

/// Statements that bring the fields into `shape`.
fn shape_of(krate: &Path, fields: &Fields) -> Result<TokenStream> {
    let mut out = quote!();
    for field in fields {
        if let Some(name) = &field.ident {
            let name = name.to_string();
            out.extend(quote!(let shape = #krate::shape_join(shape, #krate::hash_name(#name));));
        }
        let ty = &field.ty;
        let part = if is_recursive(field)? {
            quote!(#krate::hash_name("recursive"))
        } else {
            quote!(<#ty as #krate::Wire>::SHAPE)
        };
        out.extend(quote!(let shape = #krate::shape_join(shape, #part);));
    }
    Ok(out)
}

fn is_recursive(field: &Field) -> Result<bool> {
    let mut recursive = false;
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("wire")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("recursive") {
                return Err(meta.error("a field knows only #[wire(recursive)]"));
            }
            recursive = true;
            Ok(())
        })?;
    }
    Ok(recursive)
}

fn tag_of(variant: &syn::Variant) -> Result<Option<u32>> {
    let mut tag = None;
    for attribute in variant.attrs.iter().filter(|a| a.path().is_ident("wire")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("tag") {
                return Err(meta.error("a variant knows only #[wire(tag = NUMBER)]"));
            }
            tag = Some(meta.value()?.parse::<LitInt>()?.base10_parse()?);
            Ok(())
        })?;
    }
    Ok(tag)
}

fn crate_path(input: &DeriveInput) -> Result<Path> {
    let mut path = parse_quote!(::petasos::wire);
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("wire")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("a type knows only #[wire(crate = \"path\")]"));
            }
            path = meta.value()?.parse::<LitStr>()?.parse()?;
            Ok(())
        })?;
    }
    Ok(path)
}
