//! The risk: a lower layer starts to use a higher one. Cargo notices only when that closes a cycle,
//! so `cargo xtask tidy` must, and must fail. Here it reads a small tree with three such arrows.

use std::path::Path;
use std::process::Command;

#[test]
fn arrows_that_point_up_fail_the_run() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/upward");
    let run = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("tidy")
        .arg(tree)
        .output()
        .expect("Cargo built xtask for this test");
    let found = String::from_utf8(run.stdout).expect("tidy prints UTF-8");
    let wanted = "\
.git:1: warning: commits are not checked: this is no clone
crates/mem/Cargo.toml:5: `mem` may not use `zswap`: arrows point down
crates/mem/src/frames/mod.rs:3: `frames` may not use `pools`: arrows point down
crates/mem/src/lib.rs:6: `mem` may not use `zswap`: arrows point down
";
    assert_eq!(found, wanted);
    assert_eq!(run.status.code(), Some(1));
}
