//! Programs that take a part of the memory that they find, and print a result that follows from
//! their input alone.

use crate::commands::launch::fixture;
use crate::commands::programs::jobs::Job;

/// Makes a job for a JVM.
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

/// The configuration that accepts any runtime from .NET Core 3.1 on.
const DOTNET: &str = r#"{ "runtimeOptions": { "rollForward": "Major",
    "framework": { "name": "Microsoft.NETCore.App", "version": "3.1.0" } } }"#;

/// All programs.
pub(super) const ALL: [Job; 10] = [
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
    Job {
        name: "chdb",
        needs: &["python3"],
        files: &[("grouped.py", fixture!("grouped.py"))],
        prepare: "python3 -c 'import chdb'",
        run: "exec python3 grouped.py 30000000",
        figures: &[],
    },
    Job {
        name: "dask",
        needs: &["python3"],
        files: &[("workers.py", fixture!("workers.py"))],
        prepare: "python3 -c 'import numpy, dask.distributed'",
        run: "TMPDIR=. exec python3 workers.py 24",
        figures: &[],
    },
    Job {
        name: "erlang",
        needs: &["erl", "erlc"],
        files: &[("sized.erl", fixture!("sized.erl"))],
        prepare: "erlc sized.erl && erl -noinput -eval 'ok = application:load(os_mon), halt().'",
        run: "exec erl -noinput -kernel logger_level none -run sized main 2000 5",
        figures: &[],
    },
    Job {
        name: "dotnet",
        needs: &["dotnet", "mcs"],
        files: &[("Sized.cs", fixture!("Sized.cs")), ("Sized.runtimeconfig.json", DOTNET)],
        prepare: "mcs -out:Sized.dll Sized.cs && dotnet --list-runtimes | grep -q NETCore",
        run: "DOTNET_SYSTEM_GLOBALIZATION_INVARIANT=1 exec dotnet Sized.dll 100 10",
        figures: &[],
    },
];
