//! Builds the preload library and hands its path to the command, which carries it inside.
//!
//! A nested cargo builds `coldpress-runtime` as an object without std and without unwinding. In a
//! checkout its workspace is the tree's. Out of packages (crates.io, `cargo vendor`) this script
//! makes one of the packages beside `coldpress-runtime`, which tells where it lies.
//! `COLDPRESS_PRELOAD_SO=FILE` names a ready library instead, for packagers. The path reaches the
//! sources as the environment variable `COLDPRESS_PRELOAD_PATH`.
//! A static command, which is built for musl, carries the library for glibc all the same.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, io};

/// The crates that make up the preload library: a change in one rebuilds it.
const CRATES_INSIDE: [&str; 6] = ["sys", "mem", "codec", "backing", "zswap", "runtime"];

/// The profile of the library: one object without std, without unwinding. Here and not in a
/// manifest, as packages have no profiles.
const PROFILE: [&str; 6] = [
    "inherits = 'release'",
    "panic = 'abort'",
    "lto = 'fat'",
    "codegen-units = 1",
    "debug = false",
    "strip = 'symbols'",
];

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
    // OUT_DIR is TARGET/PROFILE/build/PACKAGE/out: one place beside the profiles serves them all,
    // but for a library with assertions.
    let out = variable("OUT_DIR");
    let is_checked = env::var(ASSERTIONS).is_ok_and(|value| value == "true");
    let directory = out.ancestors().nth(4).unwrap_or(&out);
    let directory =
        directory.join(if is_checked { "preload-library-checked" } else { "preload-library" });
    let runtime = variable("DEP_COLDPRESS_RUNTIME_SOURCES");
    let workspace = match checkout(&runtime) {
        Some(root) => root,
        None => assemble(&runtime, out.join("library")),
    };
    for name in CRATES_INSIDE {
        for part in ["src", "Cargo.toml", "build.rs"] {
            let path = sibling(&runtime, name).join(part);
            if path.exists() {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
    let output = nested_cargo(&workspace, &directory)
        .output()
        .unwrap_or_else(|error| stop(&format!("the nested cargo cannot start: {error}")));
    if !output.status.success() {
        let (words, errors) = (text(&output.stdout), text(&output.stderr));
        stop(&format!("the preload library does not build ({}):\n{words}{errors}", output.status));
    }
    let library = directory.join(library_target()).join("preload/libcoldpress_runtime.so");
    if !library.is_file() {
        stop(&format!("the nested cargo made no {}", library.display()));
    }
    library
}

/// Returns the command that builds the library in `directory`.
fn nested_cargo(workspace: &Path, directory: &Path) -> Command {
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--package", "coldpress-runtime", "--lib", "--features", "preload"])
        .args(["--profile", "preload", "--manifest-path"])
        .arg(workspace.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(directory)
        // With a named target, flags meant for it never reach the build scripts of dependencies.
        .arg("--target")
        .arg(library_target());
    for setting in PROFILE {
        cargo.arg("--config").arg(format!("profile.preload.{setting}"));
    }
    for (name, _) in env::vars_os() {
        if !is_kept(&name.to_string_lossy()) {
            cargo.env_remove(&name);
        }
    }
    // Messages of panics name source files: the same ones wherever the library is built.
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cargo")));
    let places = [(Some(workspace.to_path_buf()), "."), (home, "cargo")];
    let remaps = places.iter().filter_map(|(from, to)| {
        Some(format!("--remap-path-prefix={}={to}", from.as_ref()?.display()))
    });
    cargo.env("CARGO_ENCODED_RUSTFLAGS", remaps.collect::<Vec<_>>().join("\x1f"));
    let flags = env::var("CFLAGS").unwrap_or_default();
    cargo.env("CFLAGS", format!("{flags} {C_FLAGS}"));
    cargo
}

/// Returns the root of the tree, if `runtime` is the folder `crates/runtime` of one.
fn checkout(runtime: &Path) -> Option<PathBuf> {
    if !runtime.ends_with("crates/runtime") {
        return None;
    }
    let root = runtime.ancestors().nth(2)?;
    for file in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", root.join(file).display());
    }
    Some(root.to_path_buf())
}

/// Returns where the crate `name` lies: beside `runtime`, by a name of the same form, which is
/// `runtime`, `coldpress-runtime-0.1.0` or `coldpress-runtime`.
fn sibling(runtime: &Path, name: &str) -> PathBuf {
    let own = runtime.file_name().unwrap_or_default().to_string_lossy();
    runtime.with_file_name(own.replace("runtime", name))
}

/// Makes the workspace `root` of the packages beside `runtime`, and returns it. They are linked to,
/// as their own places may be read-only, and locked as the command is.
fn assemble(runtime: &Path, root: PathBuf) -> PathBuf {
    let mut manifest = String::from("[workspace]\nresolver = \"3\"\nmembers = [\"runtime\"]\n");
    manifest += "[patch.crates-io]\n";
    let made = (|| -> io::Result<()> {
        if root.exists() {
            fs::remove_dir_all(&root)?;
        }
        fs::create_dir(&root)?;
        for name in CRATES_INSIDE {
            let package = fs::canonicalize(sibling(runtime, name))?;
            symlink(package, root.join(name))?;
            if name != "runtime" {
                manifest += &format!("coldpress-{name} = {{ path = \"{name}\" }}\n");
            }
        }
        let lock = variable("CARGO_MANIFEST_DIR").join("Cargo.lock");
        if lock.exists() {
            fs::write(root.join("Cargo.lock"), fs::read(lock)?)?;
        }
        fs::write(root.join("Cargo.toml"), &manifest)
    })();
    if let Err(error) = made {
        stop(&format!("no workspace of the packages beside {}: {error}", runtime.display()));
    }
    root
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
