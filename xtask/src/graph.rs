//! The files that make up a package: from its targets along every `mod name;`.

use std::collections::BTreeMap;

use crate::manifest;
use crate::masked;
use crate::rust_file::RustFile;

/// A `mod name;`, an `include!` or a `#[path]`: the files it can mean.
struct Link {
    candidates: Vec<String>,
    test: bool,
}

/// Marks the files that are reached, and marks as test code the files that only tests reach. The
/// `packages` are pairs of a folder and its manifest.
pub(crate) fn resolve(files: &mut [RustFile], packages: &[(&str, &str)]) {
    let at: BTreeMap<String, usize> =
        files.iter().enumerate().map(|(index, file)| (file.path.clone(), index)).collect();
    // None: not seen; Some(true): only from test code.
    let mut seen: Vec<Option<bool>> = vec![None; files.len()];
    let mut waiting: Vec<(usize, bool)> = roots(files, packages)
        .iter()
        .filter_map(|root| at.get(root))
        .map(|index| (*index, false))
        .collect();
    while let Some((index, test)) = waiting.pop() {
        // A second visit is useful only when it turns a test file into product code.
        if seen[index].is_some_and(|before| !before || test) {
            continue;
        }
        seen[index] = Some(test);
        for link in links(&files[index]) {
            let found = link.candidates.iter().filter_map(|path| at.get(path));
            waiting.extend(found.map(|target| (*target, test || link.test)));
        }
    }
    for (file, seen) in files.iter_mut().zip(seen) {
        file.reached = seen.is_some();
        if seen == Some(true) {
            file.mark_test();
        }
    }
}

/// Returns the source files that Cargo starts from.
fn roots(files: &[RustFile], packages: &[(&str, &str)]) -> Vec<String> {
    let mut roots = Vec::new();
    for (package, manifest) in packages {
        let named = manifest::target_paths(manifest);
        roots.extend(named.iter().map(|path| join(package, path)));
        let files = files.iter().filter(|file| file.package == *package);
        let is_root = |file: &&RustFile| {
            let inside = file.path.strip_prefix(&format!("{package}/")).unwrap_or(&file.path);
            is_target(inside)
        };
        roots.extend(files.filter(is_root).map(|file| file.path.clone()));
    }
    roots
}

/// Returns whether Cargo finds a target at `path`, counted from the package.
fn is_target(path: &str) -> bool {
    let parts: Vec<_> = path.split('/').collect();
    // A file of its own, or a folder with a `main.rs`.
    let single = |rest: &[&str]| matches!(rest, [_] | [_, "main.rs"]);
    match &parts[..] {
        ["src", "bin", rest @ ..] | ["tests" | "benches" | "examples", rest @ ..] => single(rest),
        other => matches!(other, ["build.rs"] | ["src", "lib.rs" | "main.rs"]),
    }
}

/// Returns the links of `file` to other files.
fn links(file: &RustFile) -> Vec<Link> {
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let stem = name.strip_suffix(".rs").unwrap_or(name);
    let inside = file.path.strip_prefix(&format!("{}/", file.package)).unwrap_or(&file.path);
    let owns_folder = stem == "mod" || is_target(inside);
    let base = if owns_folder { folder.to_string() } else { join(folder, stem) };

    let code = &file.masked.code;
    let mut links = includes(file, folder);
    // The inline modules around the place of reading: their names and where they end.
    let mut around: Vec<(&str, usize)> = Vec::new();
    let words: Vec<_> = masked::words(code).collect();
    for pair in words.windows(2) {
        let [(start, "mod"), (at, name)] = pair else { continue };
        around.retain(|(_, end)| end > start);
        match code[at + name.len()..].trim_start().bytes().next() {
            Some(b'{') => {
                if let Some((_, end)) = masked::body(code, *start) {
                    around.push((name, end));
                }
            }
            Some(b';') => {
                let nest = around.iter().fold(base.clone(), |base, part| join(&base, part.0));
                let line = masked::line_of(code, *start);
                let candidates = match path_attribute(&file.text, line) {
                    Some(path) => vec![join(folder, &path)],
                    None => vec![format!("{nest}/{name}.rs"), format!("{nest}/{name}/mod.rs")],
                };
                links.push(Link { candidates, test: file.test[line] });
            }
            _ => {}
        }
    }
    links
}

/// Returns the files that `file` includes as source.
fn includes(file: &RustFile, folder: &str) -> Vec<Link> {
    let found = file.text.match_indices("include!(\"").filter_map(|(start, opening)| {
        let rest = &file.text[start + opening.len()..];
        rest.split_once('"').map(|(path, _)| join(folder, path))
    });
    found.map(|path| Link { candidates: vec![path], test: false }).collect()
}

/// Returns the value of a `#[path = ".."]` among the attributes above `line`, counted from 0.
fn path_attribute(text: &str, line: usize) -> Option<String> {
    let above: Vec<_> = text.lines().take(line).collect();
    let attributes = above.iter().rev().take_while(|line| line.trim().starts_with("#["));
    attributes
        .filter_map(|line| line.trim().strip_prefix("#[path = \""))
        .next()
        .and_then(|rest| rest.split_once('"').map(|(path, _)| path.to_string()))
}

/// Returns `path` counted from `folder`, with `.` and `..` taken out.
pub(crate) fn join(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use crate::tree::Tree;

    /// Returns the reached files, each with a mark when only tests reach it.
    fn reached(files: &[(&str, &str)]) -> Vec<(String, bool)> {
        let manifest = [("p/Cargo.toml".to_string(), "[package]".to_string())];
        let files = files.iter().map(|(path, text)| (format!("p/{path}"), (*text).to_string()));
        let tree = Tree::new(manifest.into_iter().chain(files));
        let reached = tree.rust.into_iter().filter(|file| file.reached);
        reached.map(|file| (file.path[2..].to_string(), file.test[0])).collect()
    }

    #[test]
    fn modules_are_followed_by_every_spelling() {
        let files = [
            ("src/lib.rs", "mod a;\nmod b { mod c; }\n#[path = \"odd/d.rs\"]\nmod d;"),
            ("src/a.rs", "pub mod e;\n// mod dead;"),
            ("src/a/e.rs", ""),
            ("src/b/c.rs", ""),
            ("src/odd/d.rs", ""),
            ("src/dead.rs", ""),
            ("src/a/dead.rs", ""),
            ("build.rs", ""),
        ];
        let names: Vec<_> = reached(&files).into_iter().map(|found| found.0).collect();
        let wanted =
            ["build.rs", "src/a.rs", "src/a/e.rs", "src/b/c.rs", "src/lib.rs", "src/odd/d.rs"];
        assert_eq!(names, wanted);
    }

    #[test]
    fn what_only_tests_reach_is_test_code() {
        let files = [
            ("src/lib.rs", "mod a;\n#[cfg(test)]\nmod oracle;\n#[cfg(test)]\nmod both;"),
            ("src/a.rs", "#[path = \"both.rs\"]\nmod both;"),
            ("src/both.rs", "fn x() {}"),
            ("src/oracle.rs", "mod deep;"),
            ("src/oracle/deep.rs", "fn x() {}"),
        ];
        let tests: Vec<_> = reached(&files).into_iter().filter(|found| found.1).collect();
        let wanted = ["src/oracle.rs", "src/oracle/deep.rs"];
        assert_eq!(tests.into_iter().map(|found| found.0).collect::<Vec<_>>(), wanted);
    }
}
