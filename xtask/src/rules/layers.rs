//! Arrows point down: sys < mem, codec, backing, common < zswap < runtime < bench, coldpress, and
//! inside mem frames < slab < pools. Cargo forbids a cycle, not an arrow that points up.

use super::crate_path;
use crate::manifest;
use crate::masked;
use crate::report::Report;
use crate::tree::Tree;

/// The crates, bottom to top. Crates of one row do not know each other.
const LAYERS: &[&[&str]] = &[
    &["sys"],
    &["mem", "codec", "backing", "common", "manual"],
    &["zswap"],
    &["runtime"],
    &["bench", "coldpress"],
];

/// The parts of mem, bottom to top.
const MEM_LAYERS: &[&str] = &["percpu", "frames", "slab", "pools"];

/// Returns the height of a crate; a crate that is not a layer (the system tests) stands above all
/// of them.
fn height(name: &str) -> usize {
    LAYERS.iter().position(|row| row.contains(&name)).unwrap_or(LAYERS.len())
}

/// Returns the layer behind the name of a package (`coldpress-mem`): that of its folder, but for
/// the command's.
fn layer(name: &str) -> Option<&str> {
    match name {
        "coldpress-cli" => Some("coldpress"),
        _ => name.strip_prefix("coldpress-"),
    }
}

/// Returns why `from` may not use `to`; `None` when it may.
fn upward(from: &str, to: &str) -> Option<String> {
    (height(to) >= height(from)).then(|| format!("`{from}` may not use `{to}`: arrows point down"))
}

/// Checks the dependencies of each manifest.
pub(crate) fn dependencies_point_down(tree: &Tree, report: &mut Report) {
    for (package, manifest) in tree.packages() {
        let Some(from) = package.strip_prefix("crates/") else { continue };
        for (line, dependency) in manifest::dependencies(&manifest.text) {
            if let Some(message) = layer(&dependency).and_then(|to| upward(from, to)) {
                report.fail(&manifest.path, line, message);
            }
        }
    }
}

/// Checks every path that starts with a crate of ours.
pub(crate) fn paths_point_down(tree: &Tree, report: &mut Report) {
    for file in &tree.rust {
        let Some((from, _)) = crate_path(&file.path) else { continue };
        for (line, word) in file.words() {
            // A binary or a test of a package uses the library of the package.
            let Some(to) = word.strip_prefix("coldpress_").filter(|to| *to != from) else {
                continue;
            };
            let known = height(to) < LAYERS.len();
            if let Some(message) = upward(from, to).filter(|_| known) {
                report.fail(&file.path, line, message);
            }
        }
    }
}

/// Checks that a part of mem names no part above it, by `crate::` or by `super::`.
pub(crate) fn mem_points_down(tree: &Tree, report: &mut Report) {
    for file in &tree.rust {
        let Some(("mem", inside)) = crate_path(&file.path) else { continue };
        let part = inside.strip_prefix("src/").and_then(|rest| rest.split(['/', '.']).next());
        let own = part.and_then(|part| MEM_LAYERS.iter().position(|layer| *layer == part));
        let Some(own) = own else { continue };
        let code = &file.masked.code;
        let used =
            ["crate::", "super::"].into_iter().flat_map(|path| masked::names_behind(code, path));
        for (offset, name) in used {
            if MEM_LAYERS[own + 1..].contains(&name) {
                let line = masked::line_of(code, offset) + 1;
                let message =
                    format!("`{}` may not use `{name}`: arrows point down", MEM_LAYERS[own]);
                report.fail(&file.path, line, message);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    #[test]
    fn a_dependency_upward_is_rejected() {
        let run = |home: &str, name: &str| {
            let text = format!("[package]\n[dev-dependencies]\n{name}.workspace = true\n");
            findings(dependencies_point_down, &[(&format!("crates/{home}/Cargo.toml"), &text)])
        };
        let found = run("mem", "coldpress-zswap");
        let wanted = "crates/mem/Cargo.toml:3: `mem` may not use `zswap`: arrows point down";
        assert_eq!(found, [wanted]);
        assert_eq!(run("codec", "coldpress-mem").len(), 1, "crates of one row");
        assert_eq!(run("runtime", "coldpress-cli").len(), 1);
        assert_eq!(run("zswap", "coldpress-tests").len(), 1, "nothing stands on the tests");
        assert!(run("zswap", "coldpress-mem").is_empty());
        assert!(run("zswap", "rustix").is_empty());
    }

    #[test]
    fn a_path_upward_is_rejected() {
        let run = |text: &str| findings(paths_point_down, &[("crates/mem/src/a.rs", text)]);
        assert_eq!(run("\nuse coldpress_zswap::Zswap;").len(), 1);
        assert_eq!(run("fn f() { coldpress_runtime::x() }").len(), 1);
        assert!(run("use coldpress_sys::page; // coldpress_zswap\n\"coldpress_zswap\"").is_empty());
        assert!(run("fn coldpress_constructor() {}").is_empty());
    }

    #[test]
    fn inside_mem_a_path_upward_is_rejected() {
        let run = |part: &str, text: &str| {
            findings(mem_points_down, &[(&format!("crates/mem/src/{part}"), text)])
        };
        assert_eq!(run("frames/mod.rs", "use crate::pools::Pool;").len(), 1);
        assert_eq!(run("slab.rs", "use crate::{frames::Zone, pools::{Pool}};").len(), 1);
        assert_eq!(run("frames/zone.rs", "use super::super::slab;").len(), 1);
        assert!(run("pools/mod.rs", "use crate::{frames, slab::ObjectCache};").is_empty());
        assert!(run("frames/mod.rs", "use crate::frames::{pools};").is_empty());
        assert!(run("lib.rs", "pub use crate::pools::Pool;").is_empty());
    }
}
