//! Compiles the C shim into the preload library, and tells the command's build script where these
//! sources are.

fn main() {
    println!("cargo::rerun-if-changed=src/preload/shim.c");
    println!("cargo::rerun-if-changed=build.rs");
    let sources = std::env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    println!("cargo::metadata=sources={sources}");
    if std::env::var_os("CARGO_FEATURE_PRELOAD").is_some() {
        cc::Build::new().file("src/preload/shim.c").flag("-fvisibility=hidden").compile("shim");
        // The standard library does not link libc here. Naming libc gives its symbols their
        // versions. None of them is needed for certain, but libc's constructor must run before
        // ours.
        for word in ["-Wl,--push-state,--no-as-needed", "-lc", "-Wl,--pop-state"] {
            println!("cargo::rustc-cdylib-link-arg={word}");
        }
        // The files that compilers link around a library refer to foreign symbols, for C++
        // constructors and for transactions. Our library has neither, and the loader finds its
        // constructor by itself.
        println!("cargo::rustc-cdylib-link-arg=-nostartfiles");
    }
}
