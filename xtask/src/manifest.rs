//! The few facts the rules need from a `Cargo.toml`, read line by line.

/// One `key = value` of a manifest.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Setting<'a> {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The table that the setting stands in, for example `dependencies`.
    pub(crate) table: &'a str,
    /// The key, or the name of a dependency that has a table of its own.
    pub(crate) key: &'a str,
    /// The value as written.
    pub(crate) value: &'a str,
}

/// Returns all settings of a manifest. A heading `[dependencies.x]` counts as the setting `x`.
pub(crate) fn settings(text: &str) -> Vec<Setting<'_>> {
    let mut table = "";
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let setting = |table, key, value| Setting { line: number + 1, table, key, value };
        if let Some(heading) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = heading.trim_matches(['[', ']']);
            if let Some((parent, name)) = table.rsplit_once('.')
                && parent.ends_with("dependencies")
            {
                found.push(setting(parent, name, ""));
            }
        } else if let Some((key, value)) = line.split_once('=')
            && !line.starts_with('#')
        {
            found.push(setting(table, key.trim(), value.trim()));
        }
    }
    found
}

/// Returns whether the manifest describes a package, not only a workspace.
pub(crate) fn is_package(text: &str) -> bool {
    text.lines().any(|line| line.trim() == "[package]")
}

/// Returns the dependencies of any kind, with their lines from 1.
pub(crate) fn dependencies(text: &str) -> Vec<(usize, String)> {
    let is_dependency = |setting: &Setting| {
        setting.table.ends_with("dependencies") && !setting.table.starts_with("workspace")
    };
    let found = settings(text).into_iter().filter(is_dependency);
    found.map(|setting| (setting.line, name_of(&setting).to_string())).collect()
}

/// Returns the name of a dependency's package: `x.workspace = true`, `x = "1"`, and `y = { package
/// = "x" }` all name the package `x`.
fn name_of<'a>(setting: &Setting<'a>) -> &'a str {
    let renamed =
        setting.value.split_once("package = \"").and_then(|rest| rest.1.split('"').next());
    renamed.unwrap_or_else(|| setting.key.split('.').next().unwrap_or(setting.key))
}

/// Returns the source files named by a `path` in `[[test]]` and its like.
pub(crate) fn target_paths(text: &str) -> Vec<String> {
    let is_path = |setting: &Setting| setting.key == "path" && setting.value.ends_with(".rs\"");
    let found = settings(text).into_iter().filter(is_path);
    found.map(|setting| setting.value.trim_matches('"').to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_of_every_spelling() {
        let text = "[package]\nname = \"x\"\n[dependencies]\na.workspace = true\nb = \"1\"\n\
                    [dev-dependencies]\nc = { path = \"p\" }\nd = { package = \"e\" }\n\
                    [dependencies.f]\nversion = \"1\"\n\
                    [target.'cfg(unix)'.dependencies]\ng = \"1\"\n";
        let names: Vec<_> = dependencies(text).into_iter().map(|found| found.1).collect();
        for name in ["a", "b", "c", "e", "f", "g"] {
            assert!(names.contains(&name.to_string()), "{name} in {names:?}");
        }
        assert_eq!(dependencies(text)[0], (4, "a".into()));
        assert!(dependencies("[workspace.dependencies]\na = \"1\"\n").is_empty());
    }

    #[test]
    fn targets_with_a_path() {
        assert_eq!(
            target_paths("[[bench]]\npath = \"b/x.rs\"\n[lib]\npath = \"../y\"\n"),
            ["b/x.rs"]
        );
    }
}
