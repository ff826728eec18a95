//! Compiles the C shim into the preload library.

fn main() {
    println!("cargo::rerun-if-changed=src/preload/shim.c");
    if std::env::var_os("CARGO_FEATURE_PRELOAD").is_some() {
        cc::Build::new().file("src/preload/shim.c").flag("-fvisibility=hidden").compile("shim");
        // The standard library does not bring libc here; named, its symbols get their versions.
        // None is needed for certain, but libc's constructor must run before ours.
        for word in ["-Wl,--push-state,--no-as-needed", "-lc", "-Wl,--pop-state"] {
            println!("cargo::rustc-cdylib-link-arg={word}");
        }
        // What compilers put around a library refers to symbols of others, for constructors of C++
        // and for transactions; ours has neither, and the loader finds its constructor by itself.
        println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    }
}
