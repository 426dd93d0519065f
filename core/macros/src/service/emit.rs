//! The trait, its client, and what registers an implementation.

use super::{Method, Parameter, Role, Service};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote};

pub(super) fn service(service: &Service) -> TokenStream {
    let the_trait = emit_trait(service);
    let client = emit_client(service);
    quote!(#the_trait #client)
}

/// The constant of the client that names a method.
fn constant(method: &Method) -> Ident {
    Ident::new(&method.function.sig.ident.to_string().to_uppercase(), Span::call_site())
}

fn client_name(service: &Service) -> Ident {
    format_ident!("{}Client", service.item.ident)
}

/// The type that a parameter has on the wire.
fn wire_type(service: &Service, parameter: &Parameter) -> TokenStream {
    let (krate, ty) = (&service.krate, &parameter.ty);
    match parameter.role {
        Role::Pull | Role::Push => quote!(#krate::BulkHandle),
        _ => quote!(#ty),
    }
}

fn travelling(method: &Method) -> impl Iterator<Item = &Parameter> {
    method.parameters.iter().filter(|parameter| parameter.role != Role::Context)
}

fn emit_trait(service: &Service) -> TokenStream {
    let Service { item, krate, methods, .. } = service;
    let (attributes, visibility, name) = (&item.attrs, &item.vis, &item.ident);
    let supertraits = &item.supertraits;
    let plus = if supertraits.is_empty() { quote!() } else { quote!(+) };
    let client = client_name(service);
    let functions = methods.iter().map(|method| {
        let mut function = method.function.clone();
        let output = &method.output;
        function.sig.asyncness = None;
        function.sig.output = syn::parse_quote!(-> impl ::core::future::Future<Output = #output>);
        quote!(#function)
    });
    let registrations = methods.iter().map(|method| emit_registration(service, method));
    let constants = methods.iter().map(constant);
    quote! {
        #(#attributes)*
        #visibility trait #name: #supertraits #plus 'static {
            #(#functions)*

            /// Serves this at an engine, under a provider id. Fails if one of the methods is
            /// served there already; then nothing is registered.
            fn serve(
                self,
                engine: &#krate::Engine,
                provider: u16,
            ) -> ::core::result::Result<(), #krate::ServeError>
            where
                Self: ::core::marker::Sized,
            {
                let service = ::std::rc::Rc::new(self);
                let methods = [#(#client::#constants),*];
                engine.check_free(&methods, provider)?;
                #(#registrations)*
                ::core::result::Result::Ok(())
            }
        }
    }
}

/// The statement that registers one method.
fn emit_registration(service: &Service, method: &Method) -> TokenStream {
    let krate = &service.krate;
    let (name, client, constant) =
        (&method.function.sig.ident, client_name(service), constant(method));
    let names: Vec<_> = travelling(method).map(|parameter| &parameter.name).collect();
    let types: Vec<_> = travelling(method).map(|p| wire_type(service, p)).collect();
    let before = method.parameters.iter().map(|parameter| {
        let name = &parameter.name;
        let remote = format_ident!("remote_{name}");
        match parameter.role {
            Role::Argument | Role::Context => quote!(),
            Role::Pull => quote! {
                let #remote = context.engine().open(&#name)?;
                let #name = #remote.pull(0, #remote.len());
            },
            Role::Push => quote! {
                let #remote = context.engine().open(&#name)?;
                let #name = #remote.local()?;
            },
        }
    });
    // All are under way before the first is awaited.
    let pulled = method.parameters.iter().filter(|p| p.role == Role::Pull).map(|parameter| {
        let name = &parameter.name;
        quote!(let #name = #name.await?;)
    });
    let hands: Vec<_> = method
        .parameters
        .iter()
        .map(|parameter| {
            let name = &parameter.name;
            match parameter.role {
                Role::Context => quote!(::core::clone::Clone::clone(&context)),
                Role::Push => quote!(::core::clone::Clone::clone(&#name)),
                Role::Argument | Role::Pull => quote!(#name),
            }
        })
        .collect();
    let gives_back = method.parameters.iter().filter(|p| p.role == Role::Pull);
    let gives_back: Vec<_> = gives_back.map(|p| format_ident!("remote_{}", p.name)).collect();
    let work = match gives_back.is_empty() {
        true => quote!(this.#name(#(#hands),*)),
        false => quote!(#krate::release_while(this.#name(#(#hands),*), &[#(#gives_back),*])),
    };
    let pushes = method.parameters.iter().filter(|p| p.role == Role::Push).map(|parameter| {
        let name = &parameter.name;
        let remote = format_ident!("remote_{name}");
        quote!(let #remote = #remote.push(0, ::core::convert::Into::into(#name));)
    });
    let pushed = method.parameters.iter().filter(|p| p.role == Role::Push).map(|parameter| {
        let remote = format_ident!("remote_{}", parameter.name);
        quote!(#remote.await?;)
    });
    let asked = method.parameters.iter().any(|parameter| parameter.role != Role::Argument);
    let (arrival, context) = match asked {
        true => (quote!(arrival), quote!(let context = arrival.context();)),
        false => (quote!(_), quote!()),
    };
    quote! {
        let this = ::std::rc::Rc::clone(&service);
        engine.register(
            #client::#constant,
            provider,
            #krate::typed(
                move |#arrival: &mut #krate::Arrival<'_>, (#(#names,)*): (#(#types,)*)| {
                    let this = ::std::rc::Rc::clone(&this);
                    #context
                    async move {
                        #(#before)*
                        #(#pulled)*
                        let result = #work.await;
                        #(#pushes)*
                        #(#pushed)*
                        ::core::result::Result::<_, #krate::Failure>::Ok(result)
                    }
                },
            ),
        );
    }
}

fn emit_client(service: &Service) -> TokenStream {
    let Service { item, krate, methods, .. } = service;
    let (visibility, trait_name, client) = (&item.vis, &item.ident, client_name(service));
    let constants = methods.iter().map(|method| emit_constant(service, method));
    let functions = methods.iter().map(|method| emit_call(service, method));
    let about = format!("Calls [`{trait_name}`] at a target. Cheap to clone.");
    quote! {
        #[doc = #about]
        #[derive(Clone, Debug)]
        #visibility struct #client {
            target: #krate::Target,
            options: #krate::CallOptions,
        }

        #[allow(dead_code, reason = "a program may use a part of an interface")]
        impl #client {
            #(#constants)*

            /// A client for the service at `address`.
            #visibility fn new(engine: &#krate::Engine, address: &#krate::fabric::Address) -> Self {
                Self::at(engine.target(address))
            }

            /// A client for the service at a target.
            #visibility fn at(target: #krate::Target) -> Self {
                Self { target, options: ::core::default::Default::default() }
            }

            /// The same client, that calls with other options: a time limit, a provider, an
            /// encoding, checksums.
            #[must_use]
            #visibility fn with(&self, options: #krate::CallOptions) -> Self {
                Self { target: ::core::clone::Clone::clone(&self.target), options }
            }

            #(#functions)*
        }
    }
}

fn emit_constant(service: &Service, method: &Method) -> TokenStream {
    let krate = &service.krate;
    let constant = constant(method);
    let visibility = &service.item.vis;
    let name = format!("{}::{}", service.name, method.function.sig.ident);
    let types = travelling(method).map(|parameter| wire_type(service, parameter));
    let output = &method.output;
    let about = format!("The method `{name}`.");
    quote! {
        #[doc = #about]
        #visibility const #constant: #krate::Method = #krate::Method::typed(
            #name,
            <(#(#types,)*) as #krate::wire::Wire>::SHAPE,
            <#output as #krate::wire::Wire>::SHAPE,
        );
    }
}

fn emit_call(service: &Service, method: &Method) -> TokenStream {
    let krate = &service.krate;
    let (constant, output) = (constant(method), &method.output);
    let (name, visibility) = (&method.function.sig.ident, &service.item.vis);
    let documents: Vec<_> =
        method.function.attrs.iter().filter(|a| a.path().is_ident("doc")).collect();
    let names: Vec<_> = travelling(method).map(|parameter| &parameter.name).collect();
    let parameters = travelling(method).map(|parameter| {
        let (name, ty) = (&parameter.name, &parameter.ty);
        match parameter.role {
            Role::Pull => quote!(#name: impl ::core::convert::Into<#krate::fabric::Slice>),
            Role::Push => quote!(#name: impl #krate::Destination<'lent>),
            _ => quote!(#name: #ty),
        }
    });
    let lent: Vec<_> = travelling(method).filter(|p| p.role != Role::Argument).collect();
    if method.one_way {
        return quote! {
            #(#documents)*
            #visibility fn #name(
                &self, #(#parameters),*
            ) -> ::core::result::Result<(), #krate::CallError> {
                self.target.notify(Self::#constant, &self.options, &(#(#names,)*))
            }
        };
    }
    if lent.is_empty() {
        return quote! {
            #(#documents)*
            #visibility fn #name(&self, #(#parameters),*) -> #krate::TypedCall<#output> {
                self.target.call(Self::#constant, &self.options, &(#(#names,)*))
            }
        };
    }
    // What is pushed to is borrowed for as long as the call; what is pulled is the call's own.
    let (lifetime, borrowed) = match lent.iter().any(|parameter| parameter.role == Role::Push) {
        true => (quote!(<'lent>), quote!('lent)),
        false => (quote!(), quote!('static)),
    };
    let memory = lent.iter().map(|parameter| {
        let name = &parameter.name;
        match parameter.role {
            Role::Pull => quote!(#krate::Lent::pull(#name)),
            _ => quote!(#krate::Lent::push(#name)),
        }
    });
    let handles = lent.iter().map(|parameter| &parameter.name);
    quote! {
        #(#documents)*
        ///
        /// When the future is ready, no peer accesses the lent memory any more. If it is dropped
        /// before, the engine keeps the memory until the network no longer uses it.
        #visibility fn #name #lifetime (
            &self, #(#parameters),*
        ) -> #krate::BulkCall<#borrowed, #output> {
            let memory = [#(#memory),*];
            self.target.call_lending(Self::#constant, &self.options, memory, |[#(#handles),*]| {
                (#(#names,)*)
            })
        }
    }
}
