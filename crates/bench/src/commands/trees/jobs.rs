//! The trees: what each needs, its files, and the commands that start it.

use crate::commands::programs::jobs::{Job, PYTHON};

pub(super) const REDIS: &str = "redis";
/// The figure of the slowest of a hundred requests while a server saves.
pub(super) const P99: &str = "p99_ms";

/// Returns all trees, with little work if `is_quick`; else each runs for some seconds on 150 to 250
/// MB.
pub(super) fn all(is_quick: bool) -> [Job; 3] {
    let pick = |large, small| if is_quick { small } else { large };
    [
        Job {
            name: REDIS,
            needs: &["redis-server", "redis-cli", "redis-benchmark"],
            files: &[
                ("fill.sh", include_str!("redis-fill.sh")),
                ("run.sh", include_str!("redis.sh")),
            ],
            prepare: pick("sh fill.sh 120000 > data", "sh fill.sh 20000 > data"),
            run: pick("exec sh run.sh 120000", "exec sh run.sh 20000"),
            figures: &["p50_ms", P99, "save_s"],
        },
        Job {
            name: "postgres",
            needs: &["pg_ctlcluster", "setpriv"],
            files: &[("postgres.sh", include_str!("postgres.sh"))],
            prepare: pick("exec sh postgres.sh fill 5", "exec sh postgres.sh fill 1"),
            run: pick("exec sh postgres.sh run 5", "exec sh postgres.sh run 1"),
            figures: &["tps", "latency_ms"],
        },
        Job {
            name: "python",
            needs: &["python3"],
            files: &[("pool.py", include_str!("pool.py"))],
            prepare: PYTHON,
            run: pick(
                "exec \"$(cat python)\" pool.py 60000 8",
                "exec \"$(cat python)\" pool.py 6000 8",
            ),
            figures: &[],
        },
    ]
}
