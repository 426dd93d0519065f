//! `#[derive(Wire)]`.

use proc_macro2::{Ident, TokenStream, TokenTree};
use quote::{ToTokens, format_ident, quote};
use syn::{
    Data, DeriveInput, Error, Field, Fields, LitInt, LitStr, Path, Result, ext::IdentExt,
    meta::ParseNestedMeta, parse_quote,
};

use crate::paths;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let krate = crate_path(input)?;
    let body = match &input.data {
        Data::Struct(data) => of_struct(&krate, &input.ident, &data.fields)?,
        Data::Enum(data) => of_enum(&krate, &input.ident, data)?,
        Data::Union(_) => {
            let why = "a union does not say what is in it: use an enum";
            return Err(Error::new_spanned(&input.ident, why));
        }
    };
    let Body { shape, encode, encode_head, decode, hint } = body;
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
            fn encode_head<'__v, __F: #krate::Format>(
                &'__v self,
                out: &mut #krate::Encoder<'_, __F>,
            ) -> &'__v [u8] {
                #encode_head
            }
            fn decode<__F: #krate::Format>(
                from: &mut #krate::Decoder<'_, __F>,
            ) -> ::core::result::Result<Self, #krate::DecodeError> {
                #decode
            }
            fn encoded_len_hint(&self) -> usize {
                #hint
            }
        }
    })
}

struct Body {
    shape: TokenStream,
    encode: TokenStream,
    encode_head: TokenStream,
    decode: TokenStream,
    hint: TokenStream,
}

fn of_struct(krate: &Path, name: &Ident, fields: &Fields) -> Result<Body> {
    let shape = shape_of(krate, name, fields)?;
    let (names, types) = (bindings(fields), types(fields));
    let pattern = construct(fields, &names);
    let takes = takes(krate, fields, &names);
    let head = head(krate, &types, &names);
    Ok(Body {
        shape,
        encode: quote! {
            let Self #pattern = self;
            #(<#types as #krate::Wire>::encode(#names, out);)*
        },
        encode_head: quote! {
            let Self #pattern = self;
            #head
        },
        decode: quote! {
            #takes
            ::core::result::Result::Ok(Self #pattern)
        },
        hint: quote! {
            let Self #pattern = self;
            0 #(+ <#types as #krate::Wire>::encoded_len_hint(#names))*
        },
    })
}

fn of_enum(krate: &Path, this: &Ident, data: &syn::DataEnum) -> Result<Body> {
    let (mut shape, mut encode, mut heads) = (quote!(), quote!(), quote!());
    let (mut decode, mut hint) = (quote!(), quote!());
    let enum_name = this.unraw().to_string();
    let mut next = Some(0u32);
    let mut seen = std::collections::BTreeSet::new();
    for variant in &data.variants {
        let Some(tag) = tag_of(variant)?.or(next) else {
            let why = "no number is left after the tag of the variant before: give it one";
            return Err(Error::new_spanned(&variant.ident, why));
        };
        next = tag.checked_add(1);
        if !seen.insert(tag) {
            let why = format!("the tag {tag} stands for another variant already");
            return Err(Error::new_spanned(&variant.ident, why));
        }
        let name = &variant.ident;
        let text = name.unraw().to_string();
        let inner = shape_of(krate, this, &variant.fields)?;
        shape.extend(quote! {
            let shape = #krate::shape_join(shape, #krate::hash_name(#text));
            let shape = #krate::shape_join(shape, #tag as u64);
            #inner
        });
        let (names, types) = (bindings(&variant.fields), types(&variant.fields));
        let pattern = construct(&variant.fields, &names);
        encode.extend(quote! {
            Self::#name #pattern => {
                out.u32(#tag);
                #(<#types as #krate::Wire>::encode(#names, out);)*
            }
        });
        let head = head(krate, &types, &names);
        heads.extend(quote! {
            Self::#name #pattern => {
                out.u32(#tag);
                #head
            }
        });
        let takes = takes(krate, &variant.fields, &names);
        hint.extend(quote! {
            Self::#name #pattern => 4 #(+ <#types as #krate::Wire>::encoded_len_hint(#names))*,
        });
        decode.extend(quote! {
            #tag => { #takes ::core::result::Result::Ok(Self::#name #pattern) }
        });
    }
    // A reference to an enum without variants needs an arm, the enum does not.
    let matched = if data.variants.is_empty() { quote!(*self) } else { quote!(self) };
    Ok(Body {
        shape,
        encode: quote! { match #matched { #encode } },
        encode_head: quote! { match #matched { #heads } },
        decode: quote! {
            match from.u32()? {
                #decode
                value => ::core::result::Result::Err(#krate::DecodeError::BadValue {
                    what: #enum_name,
                    value: value as u64,
                }),
            }
        },
        hint: quote! { match #matched { #hint } },
    })
}

/// Statements that encode all fields, and give the long bytes at the end of the last.
fn head(krate: &Path, types: &[&syn::Type], names: &[Ident]) -> TokenStream {
    let (Some((last_type, types)), Some((last, names))) = (types.split_last(), names.split_last())
    else {
        return quote!(&[]);
    };
    quote! {
        #(<#types as #krate::Wire>::encode(#names, out);)*
        <#last_type as #krate::Wire>::encode_head(#last, out)
    }
}

/// Statements that decode each field into its binding.
fn takes(krate: &Path, fields: &Fields, names: &[Ident]) -> TokenStream {
    let types = types(fields);
    quote!(#(let #names = <#types as #krate::Wire>::decode(from)?;)*)
}

fn types(fields: &Fields) -> Vec<&syn::Type> {
    fields.iter().map(|field| &field.ty).collect()
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
fn shape_of(krate: &Path, this: &Ident, fields: &Fields) -> Result<TokenStream> {
    let count = fields.len() as u64;
    let mut out = quote!(let shape = #krate::shape_join(shape, #count););
    for field in fields {
        if let Some(name) = &field.ident {
            let name = name.unraw().to_string();
            out.extend(quote!(let shape = #krate::shape_join(shape, #krate::hash_name(#name));));
        }
        let ty = &field.ty;
        let part = if is_recursive(field)? {
            quote!(#krate::hash_name("recursive"))
        } else if mentions(ty.to_token_stream(), this) {
            let why = "the hash of a structure cannot contain itself: mark this field with \
                       #[wire(recursive)]";
            return Err(Error::new_spanned(ty, why));
        } else {
            quote!(<#ty as #krate::Wire>::SHAPE)
        };
        out.extend(quote!(let shape = #krate::shape_join(shape, #part);));
    }
    Ok(out)
}

/// Whether these tokens name the type `this`, and not one of another module.
fn mentions(tokens: TokenStream, this: &Ident) -> bool {
    let mut in_path = false;
    tokens.into_iter().any(|token| {
        let found = match &token {
            TokenTree::Ident(ident) => !in_path && (ident == this || ident == "Self"),
            TokenTree::Group(group) => mentions(group.stream(), this),
            _ => false,
        };
        in_path = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ':');
        found
    })
}

/// Hands each `#[wire(…)]` item of these attributes to `item`.
fn each_item(
    attributes: &[syn::Attribute],
    mut item: impl FnMut(&ParseNestedMeta<'_>) -> Result<()>,
) -> Result<()> {
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("wire")) {
        attribute.parse_nested_meta(|meta| item(&meta))?;
    }
    Ok(())
}

fn is_recursive(field: &Field) -> Result<bool> {
    let mut recursive = false;
    each_item(&field.attrs, |meta| {
        if !meta.path.is_ident("recursive") {
            return Err(meta.error("a field knows only #[wire(recursive)]"));
        }
        recursive = true;
        Ok(())
    })?;
    Ok(recursive)
}

fn tag_of(variant: &syn::Variant) -> Result<Option<u32>> {
    let mut tag = None;
    each_item(&variant.attrs, |meta| {
        if !meta.path.is_ident("tag") {
            return Err(meta.error("a variant knows only #[wire(tag = NUMBER)]"));
        }
        tag = Some(meta.value()?.parse::<LitInt>()?.base10_parse()?);
        Ok(())
    })?;
    Ok(tag)
}

fn crate_path(input: &DeriveInput) -> Result<Path> {
    let mut path = None;
    each_item(&input.attrs, |meta| {
        if !meta.path.is_ident("crate") {
            return Err(meta.error("a type knows only #[wire(crate = \"path\")]"));
        }
        path = Some(meta.value()?.parse::<LitStr>()?.parse()?);
        Ok(())
    })?;
    path.map_or_else(|| paths::wire(input.ident.span()), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the user is told, or nothing.
    fn complaint(input: DeriveInput) -> String {
        derive(&input).map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn mistakes_are_explained() {
        let union: DeriveInput = parse_quote!(#[wire(crate = "w")] union Either { a: u8, b: i8 });
        assert!(complaint(union).starts_with("a union does not say"));
        let twice = parse_quote!(
            #[wire(crate = "w")]
            enum E {
                A,
                #[wire(tag = 0)]
                B,
            }
        );
        assert_eq!(complaint(twice), "the tag 0 stands for another variant already");
        let last = parse_quote!(
            #[wire(crate = "w")]
            enum E {
                #[wire(tag = 0xffff_ffff)]
                A,
                B,
            }
        );
        assert!(complaint(last).starts_with("no number is left"));
        let large = parse_quote!(
            #[wire(crate = "w")]
            enum E {
                #[wire(tag = 0x1_0000_0000)]
                A,
            }
        );
        assert!(!complaint(large).is_empty());
        let field = parse_quote!(
            #[wire(crate = "w")]
            struct S {
                #[wire(tag = 1)]
                a: u8,
            }
        );
        assert_eq!(complaint(field), "a field knows only #[wire(recursive)]");
        let variant = parse_quote!(
            #[wire(crate = "w")]
            enum E {
                #[wire(recursive)]
                A,
            }
        );
        assert_eq!(complaint(variant), "a variant knows only #[wire(tag = NUMBER)]");
        let ty = parse_quote!(
            #[wire(crates = "w")]
            struct S;
        );
        assert_eq!(complaint(ty), "a type knows only #[wire(crate = \"path\")]");
        assert_eq!(
            complaint(parse_quote!(
                #[wire(crate = "w")]
                struct S(u8);
            )),
            ""
        );
    }
}
