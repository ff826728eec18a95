//! Risk: a user looks for help where systems have it and finds none, or what no program can read:
//! man pages that groff complains about, completions that break the user's shell, files that an
//! installation puts where nothing looks.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use coldpress_tests::machine::{self, Scratch, require};

/// The root of the tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Returns the files in a folder of the tree.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).expect("the folder is there");
    let found: Vec<_> = entries.map(|entry| entry.expect("an entry").path()).collect();
    assert!(!found.is_empty(), "{folder} is empty");
    found
}

fn output(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("it is installed");
    let text = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    let text = text.concat();
    (output, text)
}

#[test]
fn groff_has_no_complaints_about_the_pages() {
    let Some(groff) = require("groff") else { return };
    let pages = [files("packaging/man/coldpress"), files("packaging/man/coldpress-bench")].concat();
    let mut groff = Command::new(groff);
    let (done, text) =
        output(groff.args(["-ww", "-K", "utf8", "-man", "-Tutf8", "-z"]).args(pages));
    assert!(done.status.success() && text.is_empty(), "{text}");
}

#[test]
fn each_script_is_parsed_by_its_shell() {
    for (shell, name) in
        [("bash", "coldpress.bash"), ("zsh", "_coldpress"), ("fish", "coldpress.fish")]
    {
        let Some(shell) = require(shell) else { continue };
        for name in [name.to_owned(), name.replace("coldpress", "coldpress-bench")] {
            let script = root().join("packaging/completions").join(name);
            let (done, text) = output(Command::new(&shell).arg("-n").arg(&script));
            assert!(done.status.success() && text.is_empty(), "{}: {text}", script.display());
        }
    }
}

/// Returns what bash completes these words to.
fn completed(script: &str, words: &[&str]) -> Vec<String> {
    let text = "source \"$0\"; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); \
                $(complete -p \"$1\" | sed 's/.*-F \\([^ ]*\\) .*/\\1/') \
                    \"$1\" \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD-1]}\"; \
                printf '%s\\n' \"${COMPREPLY[@]}\"";
    let script = root().join("packaging/completions").join(script);
    let (done, text) =
        output(Command::new("bash").args(["--norc", "-c", text]).arg(script).args(words));
    assert!(done.status.success(), "{text}");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    assert_eq!(completed("coldpress.bash", &["coldpress", "ru"]), ["run"]);
    assert_eq!(completed("coldpress.bash", &["coldpress", "run", "--mem"]), ["--memory"]);
    assert_eq!(completed("coldpress.bash", &["coldpress", "ctl", "4711", "th"]), ["thaw"]);
    let all = completed("coldpress.bash", &["coldpress", ""]);
    assert!(!all.iter().any(|word| word == "trial" || word == "in-place"), "hidden: {all:?}");
    let bench = ["coldpress-bench", "pro"];
    assert_eq!(completed("coldpress-bench.bash", &bench), ["programs"]);
}

#[test]
fn fish_completes_commands() {
    let Some(fish) = require("fish") else { return };
    let script = root().join("packaging/completions/coldpress.fish");
    let text = format!("source {}; complete -C 'coldpress ru'", script.display());
    let (_, text) = output(Command::new(fish).args(["--no-config", "-c", &text]));
    assert!(text.starts_with("run\t"), "{text}");
}

/// Returns the long options that a text names.
fn options(text: &str) -> BTreeSet<String> {
    let words = text.split(|char: char| !(char.is_ascii_alphanumeric() || char == '-'));
    let long = words.filter(|word| word.len() > 2 && word.starts_with("--"));
    long.map(str::to_owned).collect()
}

#[test]
fn every_option_of_the_help_is_in_the_page() {
    for (help, page) in [
        (&["--help"][..], "coldpress"),
        (&["help", "run"], "coldpress-run"),
        (&["run", "--help"], "coldpress-run"),
        (&["help", "ctl"], "coldpress-ctl"),
        (&["ctl", "1", "get", "--help"], "coldpress-ctl-get"),
        (&["ctl", "1", "set", "--help"], "coldpress-ctl-set"),
        (&["ctl", "1", "thaw", "--help"], "coldpress-ctl-thaw"),
        (&["ctl", "1", "timeline", "--help"], "coldpress-ctl-timeline"),
        (&["ctl", "1", "metrics", "--help"], "coldpress-ctl-metrics"),
        (&["doctor", "--help"], "coldpress-doctor"),
    ] {
        let (done, text) = output(Command::new(machine::coldpress()).args(help));
        assert!(done.status.success(), "{text}");
        let page = root().join("packaging/man/coldpress").join(page).with_extension("1");
        let page = fs::read_to_string(page).expect("the page").replace("\\-", "-");
        let found = options(&text);
        assert!(found.contains("--help"), "{text}");
        let absent: Vec<_> = found.iter().filter(|option| !page.contains(*option)).collect();
        assert!(absent.is_empty(), "{help:?}: {absent:?}");
    }
}

#[test]
fn the_page_of_the_command_has_exit_statuses_and_variables() {
    let page = fs::read_to_string(root().join("packaging/man/coldpress/coldpress.1"));
    let page = page.expect("the page").replace("\\-", "-");
    let long = output(Command::new(machine::coldpress()).args(["help", "run"])).1;
    for option in options(&long[..long.find("Examples:").expect("examples")]) {
        let variable = format!("COLDPRESS{}", option[1..].replace('-', "_").to_uppercase());
        let is_none = ["--help", "--trace"].contains(&option.as_str());
        assert!(is_none || page.contains(&variable), "{variable} is missing");
    }
    for status in ["0", "1", "2", "125", "126", "127", "128+N"] {
        assert!(page.contains(&format!("\n  {status} ")), "{status} is missing");
    }
}

#[test]
fn an_installation_puts_files_where_systems_look() {
    if ["make", "objcopy", "strip"].into_iter().any(|tool| require(tool).is_none()) {
        return;
    }
    let scratch = Scratch::new("install");
    let built = scratch.path("target/release");
    fs::create_dir_all(&built).expect("a folder");
    fs::copy(machine::coldpress(), built.join("coldpress")).expect("a copy");
    let mut make = Command::new("make");
    make.arg("-C").arg(root()).args(["install", "PREFIX=/usr"]);
    make.arg(format!("TARGET={}", scratch.path("target").display()));
    make.arg(format!("DESTDIR={}", scratch.path("place").display()));
    let (done, text) = output(&mut make);
    assert!(done.status.success(), "{text}");
    let place = scratch.path("place/usr");
    for file in [
        "bin/coldpress",
        "share/man/man1/coldpress.1",
        "share/man/man1/coldpress-run.1",
        "share/man/man1/coldpress-ctl-thaw.1",
        "share/coldpress/schema/stats-1.json",
        "share/coldpress/grafana.json",
        "share/man/man1/coldpress-bench.1",
        "share/man/man1/coldpress-bench-programs.1",
        "share/bash-completion/completions/coldpress",
        "share/bash-completion/completions/coldpress-bench",
        "share/zsh/site-functions/_coldpress",
        "share/zsh/site-functions/_coldpress-bench",
        "share/fish/vendor_completions.d/coldpress.fish",
        "share/fish/vendor_completions.d/coldpress-bench.fish",
    ] {
        assert!(place.join(file).is_file(), "{file} is missing; {text}");
    }
    let (done, text) = output(Command::new(place.join("bin/coldpress")).arg("--version"));
    assert!(done.status.success(), "{text}");
}
