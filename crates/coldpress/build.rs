//! Builds the preload library and hands its path to the command, which carries it inside.
//!
//! A nested cargo builds `coldpress-runtime` with the `preload` profile (no std, no unwinding).
//! `COLDPRESS_PRELOAD_SO=FILE` names a ready library instead, for packagers. The path reaches the
//! sources as the environment variable `COLDPRESS_PRELOAD_PATH`.
//! A static command, which is built for musl, carries the library for glibc all the same.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// The crates that make up the preload library: a change in one rebuilds it.
const CRATES_INSIDE: [&str; 6] = ["sys", "mem", "codec", "backing", "zswap", "runtime"];

/// Turns the library's assertions on, for tests: `true`.
const ASSERTIONS: &str = "CARGO_PROFILE_PRELOAD_DEBUG_ASSERTIONS";

/// Settings of the user's machine that the nested cargo needs as much as the outer one.
const CARGO_SETTINGS_KEPT: [&str; 7] = [
    "CARGO_HOME",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    ASSERTIONS,
    // The outer cargo's job server: both together use no more processors than one would.
    "CARGO_MAKEFLAGS",
];

/// Variables that the outer cargo set for its own compiler and for this script.
const BUILD_VARIABLES: [&str; 14] = [
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_LINKER",
    "RUSTFLAGS",
    "RUSTDOCFLAGS",
    "CLIPPY_ARGS",
    "CLIPPY_CONF_DIR",
    "OUT_DIR",
    "TARGET",
    "HOST",
    "NUM_JOBS",
    "OPT_LEVEL",
    "DEBUG",
    "PROFILE",
];

/// Flags for the C code in the library, after the user's. They keep out whatever calls libc, such
/// as the checks that some compilers add by themselves, and the functions of the program that zstd
/// would call.
const C_FLAGS: &str = "-U_FORTIFY_SOURCE -fno-stack-protector -DZSTD_TRACE=0";

fn main() {
    println!("cargo::rerun-if-env-changed=COLDPRESS_PRELOAD_SO");
    println!("cargo::rerun-if-env-changed=CFLAGS");
    println!("cargo::rerun-if-env-changed={ASSERTIONS}");
    println!("cargo::rerun-if-changed=build.rs");
    let library = match env::var_os("COLDPRESS_PRELOAD_SO") {
        Some(ready) => ready_library(Path::new(&ready)),
        None => build_library(),
    };
    println!("cargo::rustc-env=COLDPRESS_PRELOAD_PATH={}", library.display());
}

/// Returns the path of a library that was built beforehand. Stops the build if the file is missing.
fn ready_library(path: &Path) -> PathBuf {
    println!("cargo::rerun-if-changed={}", path.display());
    fs::canonicalize(path)
        .unwrap_or_else(|error| stop(&format!("COLDPRESS_PRELOAD_SO={}: {error}", path.display())))
}

/// Builds the library and returns its path. Stops the build with the compiler's output on failure.
fn build_library() -> PathBuf {
    let workspace = variable("CARGO_MANIFEST_DIR").join("../..");
    for name in CRATES_INSIDE {
        for part in ["src", "Cargo.toml", "build.rs"] {
            let path = workspace.join("crates").join(name).join(part);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    for file in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(file).display());
    }

    let target = library_target();
    // OUT_DIR is TARGET/PROFILE/build/PACKAGE/out: one place beside the profiles serves them all,
    // but for a library with assertions.
    let out = variable("OUT_DIR");
    let directory = out.ancestors().nth(4).unwrap_or(&out);
    let is_checked = env::var(ASSERTIONS).is_ok_and(|value| value == "true");
    let directory =
        directory.join(if is_checked { "preload-library-checked" } else { "preload-library" });
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--package", "coldpress-runtime", "--lib", "--features", "preload"])
        .args(["--profile", "preload", "--manifest-path"])
        .arg(workspace.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&directory)
        // With a named target, flags meant for it never reach the build scripts of dependencies.
        .arg("--target")
        .arg(&target);
    for (name, _) in env::vars_os() {
        if !is_kept(&name.to_string_lossy()) {
            cargo.env_remove(&name);
        }
    }
    let flags = env::var("CFLAGS").unwrap_or_default();
    cargo.env("CFLAGS", format!("{flags} {C_FLAGS}"));
    let output = cargo
        .output()
        .unwrap_or_else(|error| stop(&format!("the nested cargo cannot start: {error}")));
    if !output.status.success() {
        let (words, errors) = (text(&output.stdout), text(&output.stderr));
        stop(&format!("the preload library does not build ({}):\n{words}{errors}", output.status));
    }
    let library = directory.join(target).join("preload/libcoldpress_runtime.so");
    if !library.is_file() {
        stop(&format!("the nested cargo made no {}", library.display()));
    }
    library
}

/// Returns the target that the library is built for. It goes into programs of glibc, also out of a
/// static command, which is built for musl.
fn library_target() -> String {
    let target = variable("TARGET").to_string_lossy().into_owned();
    match target.strip_suffix("-musl") {
        Some(machine) => format!("{machine}-gnu"),
        None => target,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Ends the build with `message`, which cargo shows because the script fails.
fn stop(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(1)
}

/// Returns whether the nested cargo sees the variable `name`.
fn is_kept(name: &str) -> bool {
    let of_cargo = name == "CARGO" || name.starts_with("CARGO_");
    let kept = CARGO_SETTINGS_KEPT.iter().any(|prefix| name.starts_with(prefix));
    (kept || !of_cargo) && !BUILD_VARIABLES.contains(&name) && !name.starts_with("DEP_")
}

/// Returns a variable that cargo sets for every build script.
fn variable(name: &str) -> PathBuf {
    let value = env::var_os(name);
    value.unwrap_or_else(|| stop(&format!("cargo did not set {name} for the build script"))).into()
}
