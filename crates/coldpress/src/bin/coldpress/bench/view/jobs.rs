//! Programs that take a part of the memory that they find, and print what follows from their input
//! alone.

use crate::bench::programs::jobs::{Job, fixture};

/// A JVM, with its work.
const fn java(name: &'static str, run: &'static str) -> Job {
    Job {
        name,
        needs: &["javac", "java"],
        files: &[("Sized.java", fixture!("Sized.java"))],
        prepare: "javac Sized.java",
        run,
        figures: &[],
    }
}

/// All of them.
pub(super) const ALL: [Job; 6] = [
    java("java-50", "exec java Sized 50 40"),
    java("java-300", "exec java Sized 300 6"),
    java("java-700", "exec java Sized 700 2"),
    Job {
        name: "node",
        needs: &["node"],
        files: &[("sized.js", fixture!("sized.js"))],
        prepare: "",
        run: "exec node sized.js 1500 9000",
        figures: &[],
    },
    Job {
        name: "sort",
        needs: &["sort", "awk", "cksum"],
        files: &[],
        prepare: "awk 'BEGIN { for (i = 0; i < 7000000; i++) \
                  printf \"%d %d of the file\\n\", i * 7919 % 7000003, i }' > lines",
        run: "LC_ALL=C TMPDIR=. sort -n lines | cksum",
        figures: &[],
    },
    Job {
        name: "duckdb",
        needs: &["python3"],
        files: &[("sized.py", fixture!("sized.py"))],
        prepare: "python3 -c 'import duckdb'",
        run: "exec python3 sized.py 16000000",
        figures: &[],
    },
];
