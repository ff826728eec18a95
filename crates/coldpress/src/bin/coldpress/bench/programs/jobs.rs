//! The programs: what each needs, the files it finds, and the words that start it.
//!
//! Each works for a few seconds on 60 to 140 MB and prints what it found, which follows from its
//! input alone.

use std::path::Path;
use std::process::Command;
use std::{fs, io};

use crate::bench::launch::absent;

/// The files of the system tests, which run the same jobs.
macro_rules! fixture {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/fixtures/", $name))
    };
}
pub(in crate::bench) use fixture;

/// A real program with its work.
pub(in crate::bench) struct Job {
    pub(in crate::bench) name: &'static str,
    /// Commands that must be installed.
    pub(in crate::bench) needs: &'static [&'static str],
    /// Files in its directory: name and text.
    pub(in crate::bench) files: &'static [(&'static str, &'static str)],
    /// What a shell does once, in that directory.
    pub(in crate::bench) prepare: &'static str,
    /// What a shell does in each run, in that directory.
    pub(in crate::bench) run: &'static str,
    /// Figures that each run prints, each on a line `figure NAME NUMBER`.
    pub(in crate::bench) figures: &'static [&'static str],
}

/// Lines of text and numbers, 35 MB.
const LINES: &str = "awk 'BEGIN { srand(42); for (i = 0; i < 700000; i++) \
    printf \"%08x%08x line %d of the file, %08x\\n\", \
    rand() * 4294967295, rand() * 4294967295, i, rand() * 4294967295 }' > lines";

/// Functions with a table, loops and branches each, so that all passes of a compiler have work.
const FUNCTIONS: &str = r##"awk 'BEGIN {
    print "#include <stddef.h>"
    for (n = 0; n < 600; n++) {
        printf "static const unsigned short t%d[] = {", n
        for (j = 0; j < 64; j++) printf "%d,", (n * 31 + j * j) % 65521
        printf "};\nstruct s%d { int key[%d]; double weight;", n, n % 50 + 5
        printf " struct s%d *next; };\n", n
        printf "unsigned f%d(struct s%d *list, const unsigned *in, size_t count) {\n", n, n
        printf "  unsigned sum = %du;\n  for (size_t i = 0; i < count; i++) {\n", n * 7919 % 251
        printf "    if (in[i] %% 7u == %du) sum += in[i] * t%d[i & 63u];\n", n % 7, n
        printf "    else sum ^= in[i] >> 3;\n  }\n  for (; list; list = list->next)\n"
        printf "    list->weight += list->key[%d] * 1.5 + sum;\n  return sum;\n}\n", n % 5
    }
}' > functions.c"##;

/// Where the interpreter really is: what PATH names may be a script that takes long.
pub(in crate::bench) const PYTHON: &str = "python3 -c 'import sys; print(sys.executable)' > python";

/// All of them.
pub(super) const ALL: [Job; 7] = [
    Job {
        name: "python",
        needs: &["python3"],
        files: &[("job.py", fixture!("job.py"))],
        prepare: PYTHON,
        run: "exec \"$(cat python)\" job.py 1 100",
        figures: &[],
    },
    Job {
        name: "redis",
        needs: &["redis-server", "redis-cli", "redis-benchmark"],
        files: &[("redis.sh", fixture!("redis.sh"))],
        prepare: "",
        run: "exec sh redis.sh \"$PWD\" 120000",
        figures: &[],
    },
    Job {
        name: "sqlite",
        needs: &["sqlite3"],
        files: &[("table.sql", fixture!("table.sql"))],
        prepare: "",
        run: "exec sqlite3 :memory: < table.sql",
        figures: &[],
    },
    Job {
        name: "sort",
        needs: &["sort"],
        files: &[],
        prepare: LINES,
        run: "LC_ALL=C sort --parallel=2 -S 300M lines | cksum",
        figures: &[],
    },
    Job {
        name: "node",
        needs: &["node"],
        files: &[("job.js", fixture!("job.js"))],
        prepare: "",
        run: "exec node job.js 60",
        figures: &[],
    },
    Job {
        name: "java",
        needs: &["javac", "java"],
        files: &[("Job.java", fixture!("Job.java"))],
        prepare: "javac Job.java",
        run: "exec java -XX:-UseContainerSupport -XX:+UseSerialGC -XX:-UsePerfData -Xmx400m Job 50",
        figures: &[],
    },
    Job {
        name: "compile",
        needs: &["gcc"],
        files: &[],
        prepare: FUNCTIONS,
        run: "exec gcc -O2 -S -o - functions.c",
        figures: &[],
    },
];

impl Job {
    /// What it needs and this machine lacks.
    pub(in crate::bench) fn lacks(&self) -> Option<String> {
        let name = absent(self.needs)?;
        Some(format!("there is no {name}"))
    }

    /// Makes its files in a directory.
    pub(in crate::bench) fn prepare(&self, directory: &Path) -> io::Result<()> {
        for (name, text) in self.files {
            fs::write(directory.join(name), text)?;
        }
        let output =
            Command::new("/bin/sh").args(["-c", self.prepare]).current_dir(directory).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(()).ok_or_else(|| io::Error::other(said.into_owned()))
    }

    /// One run of it, in the directory with its files.
    pub(in crate::bench) fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("cd \"$0\" && {}", self.run)]).arg(directory);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_by_name() {
        let job = Job {
            name: "a",
            needs: &["sh", "no-such"],
            files: &[],
            prepare: "",
            run: "",
            figures: &[],
        };
        assert_eq!(job.lacks().unwrap(), "there is no no-such");
        assert!(Job { needs: &["sh"], ..job }.lacks().is_none());
    }

    #[test]
    fn a_job_runs_with_its_files_in_its_directory() {
        let directory = tempfile::tempdir().unwrap();
        let job = Job {
            name: "a",
            needs: &[],
            files: &[("one", "1\n")],
            prepare: "cat one one > two",
            run: "exec cat two",
            figures: &[],
        };
        job.prepare(directory.path()).unwrap();
        assert_eq!(job.command(directory.path()).output().unwrap().stdout, b"1\n1\n");
        let error = Job { prepare: "cat absent", ..job }.prepare(directory.path()).unwrap_err();
        assert!(error.to_string().contains("absent"), "{error}");
    }
}
