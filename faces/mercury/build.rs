//! Names the shared object as programs that are linked to it look for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmercury.so.2");
}
