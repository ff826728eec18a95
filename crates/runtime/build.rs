//! Compiles the C shim into the preload library.

fn main() {
    println!("cargo::rerun-if-changed=src/preload/shim.c");
    if std::env::var_os("CARGO_FEATURE_PRELOAD").is_some() {
        cc::Build::new().file("src/preload/shim.c").flag("-fvisibility=hidden").compile("shim");
        // The standard library does not bring libc here; named, its symbols get their versions.
        println!("cargo::rustc-cdylib-link-arg=-lc");
    }
}
