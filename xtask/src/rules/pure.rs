//! What decides makes no system calls: it works on numbers alone, and tests can ask it anything.

use crate::items::elements;
use crate::masked::{body, line_of, words};
use crate::report::Report;
use crate::tree::Tree;

/// The modules that only decide: their folders, which are also their files without the ending.
const PURE: &[&str] = &["crates/runtime/src/policy", "crates/runtime/src/allowance"];
/// The crate with the system calls.
const CALLS: &str = "coldpress_sys";
/// What such a module may use of it: the types of units.
const UNITS: &[&str] = &["Bytes", "PageCount", "PAGE_BYTES", "costs"];

/// Checks that the product code of modules in [`PURE`] uses nothing but [`UNITS`] of [`CALLS`].
pub(crate) fn decisions_make_no_calls(tree: &Tree, report: &mut Report) {
    for file in tree.rust.iter().filter(|file| is_pure(&file.path)) {
        let code = &file.masked.code;
        for (at, _) in words(code).filter(|(_, word)| *word == CALLS) {
            let line = line_of(code, at);
            let names = used(&code[at + CALLS.len()..]);
            for name in names.into_iter().filter(|name| !UNITS.contains(name)) {
                if !file.test[line] {
                    let message =
                        format!("`{name}` of {CALLS}: a module that decides has no calls");
                    report.fail(&file.path, line + 1, message);
                }
            }
        }
    }
}

/// Returns whether the file at `path` is of a module in [`PURE`].
fn is_pure(path: &str) -> bool {
    let mut behind = PURE.iter().filter_map(|module| path.strip_prefix(module));
    behind.any(|rest| rest.starts_with('/') || rest == ".rs")
}

/// Returns the first names that are used of a crate; `rest` is what stands behind its name.
fn used(rest: &str) -> Vec<&str> {
    let Some(rest) = rest.strip_prefix("::") else { return vec!["*"] };
    if !rest.starts_with('{') {
        return vec![first(rest)];
    }
    let group = body(rest, 0).map_or("", |(open, end)| &rest[open + 1..end]);
    elements(group).into_iter().map(|(_, path)| first(path)).collect()
}

/// Returns the first name of `path`; `*` for all names.
fn first(path: &str) -> &str {
    let name = words(path).next().filter(|_| !path.starts_with('*'));
    name.map_or("*", |(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::findings;

    #[test]
    fn a_module_that_decides_uses_units_alone() {
        let run = |path: &str, text: &str| findings(decisions_make_no_calls, &[(path, text)]);
        let path = "crates/runtime/src/policy/victim.rs";
        for good in [
            "use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};",
            "use coldpress_sys::Bytes;\nuse crate::knobs::Knobs;\nuse alloc::vec::Vec;",
            "fn f() -> usize { coldpress_sys::PageCount(1).bytes().0 }",
            "// coldpress_sys::uffd\nconst A: &str = \"coldpress_sys::uffd\";",
            "#[cfg(test)]\nmod tests { use coldpress_sys::cpu; }",
        ] {
            assert!(run(path, good).is_empty(), "{good}: {:?}", run(path, good));
        }
        for bad in [
            "use coldpress_sys::uffd::Uffd;",
            "use coldpress_sys::{Bytes, cpu::{self, Bytes}};",
            "use coldpress_sys::*;",
            "use coldpress_sys::{Bytes, *};",
            "use coldpress_sys as sys;",
            "pub use coldpress_sys;",
            "fn f() { coldpress_sys::cpu::ticks(); }",
        ] {
            assert_eq!(run(path, bad).len(), 1, "{bad}");
        }
    }

    #[test]
    fn other_modules_may_call() {
        let run =
            |path: &str| findings(decisions_make_no_calls, &[(path, "\nuse coldpress_sys::cpu;")]);
        let wanted = "`cpu` of coldpress_sys: a module that decides has no calls";
        for path in ["crates/runtime/src/allowance/mod.rs", "crates/runtime/src/allowance.rs"] {
            assert_eq!(run(path), [format!("{path}:2: {wanted}")]);
        }
        assert!(run("crates/runtime/src/policy_of_others.rs").is_empty());
        assert!(run("crates/runtime/src/service.rs").is_empty());
    }
}
