//! The programs: what each needs, its files, and the commands that start it.
//!
//! Each program works for a few seconds on 60 to 140 MB and prints a result that follows from its
//! input alone.

use std::path::Path;
use std::process::{Command, Stdio};
use std::{fs, io};

use crate::commands::launch::{absent, fixture};
use crate::interrupt;

/// The command that sums up the file `objects` by jq.
pub(crate) const SUMS: &str = "exec jq -c \
    'group_by(.key) | map({key: .[0].key, sum: (map(.value) | add)}) \
     | sort_by(.sum) | [length, .[0:3], .[-3:]]' objects";

/// A real program with its work.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    /// The commands that must be installed.
    pub(crate) needs: &'static [&'static str],
    /// The files in its directory: name and text.
    pub(crate) files: &'static [(&'static str, &'static str)],
    /// The shell commands that run once, in that directory.
    pub(crate) prepare: &'static str,
    /// The shell commands of each run, in that directory.
    pub(crate) run: &'static str,
    /// The figures that each run prints, each on a line `figure NAME NUMBER`.
    pub(crate) figures: &'static [&'static str],
}

/// A script that writes 35 MB of lines of text and numbers.
const LINES: &str = "awk 'BEGIN { srand(42); for (i = 0; i < 700000; i++) \
    printf \"%08x%08x line %d of the file, %08x\\n\", \
    rand() * 4294967295, rand() * 4294967295, i, rand() * 4294967295 }' > lines";

/// A script that writes functions with a table, loops and branches each, so that all passes of a
/// compiler have work.
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

/// A script that writes 30 MB of JSON objects.
const OBJECTS: &str = "awk 'BEGIN { print \"[\"; for (i = 0; i < 500000; i++) \
    printf \"%s{\\\"key\\\": %d, \\\"value\\\": %d, \\\"name\\\": \\\"name of %d\\\"}\\n\", \
    i ? \",\" : \"\", i * 7919 % 20011, i * 31 % 65521, i; print \"]\" }' > objects";

/// A script that makes commits of a text of some MB, which changes a little from one to the next.
const COMMITS: &str = r##"git init -q tree && cd tree
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a
export GIT_AUTHOR_DATE='1700000000 +0000' GIT_COMMITTER_DATE='1700000000 +0000'
for n in $(seq 60); do
    awk -v n=$n 'BEGIN { for (i = 0; i < 60000; i++)
        printf "line %d of the file: %d\n", i, (i % 97 == n) ? n : i * 7919 % 65521 }' > text
    git add text && git commit -q -m $n
done"##;

/// A script that finds the interpreter itself: the file in PATH may be a script that takes long.
pub(crate) const PYTHON: &str = "python3 -c 'import sys; print(sys.executable)' > python";

/// All programs.
pub(super) const ALL: [Job; 16] = [
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
    Job {
        name: "polars",
        needs: &["python3"],
        files: &[("frames.py", fixture!("frames.py"))],
        prepare: "python3 -c 'import polars'",
        run: "exec python3 frames.py 4000000",
        figures: &[],
    },
    Job {
        name: "chdb",
        needs: &["python3"],
        files: &[("grouped.py", fixture!("grouped.py"))],
        prepare: "python3 -c 'import chdb'",
        run: "exec python3 grouped.py 12000000",
        figures: &[],
    },
    Job { name: "jq", needs: &["jq"], files: &[], prepare: OBJECTS, run: SUMS, figures: &[] },
    Job {
        name: "java-g1",
        needs: &["javac", "java"],
        files: &[("Job.java", fixture!("Job.java"))],
        prepare: "javac Job.java",
        run: "exec java -XX:-UseContainerSupport -XX:+UseG1GC -XX:+AlwaysPreTouch \
              -XX:-UsePerfData -Xms400m -Xmx400m Job 50",
        figures: &[],
    },
    Job {
        name: "git",
        needs: &["git"],
        files: &[],
        prepare: COMMITS,
        run: "cd tree && git repack -q -a -d -f --window=60 --depth=60 --threads=2 && \
              git fsck --no-progress --no-dangling && git rev-list --objects --all | cksum",
        figures: &[],
    },
    Job {
        name: "ruby",
        needs: &["ruby"],
        files: &[("words.rb", fixture!("words.rb"))],
        prepare: "",
        run: "exec ruby words.rb 2000000",
        figures: &[],
    },
    Job {
        name: "nix",
        needs: &["nix-instantiate"],
        files: &[("attributes.nix", fixture!("attributes.nix"))],
        prepare: "",
        run: "NIX_STATE_DIR=$PWD NIX_STORE_DIR=$PWD exec nix-instantiate --eval attributes.nix",
        figures: &[],
    },
    Job {
        name: "prometheus",
        needs: &["prometheus", "promtool", "curl"],
        files: &[("prometheus.sh", include_str!("prometheus.sh"))],
        prepare: "exec sh prometheus.sh fill",
        run: "exec sh prometheus.sh run $1",
        figures: &[],
    },
    Job {
        name: "restic",
        needs: &["restic"],
        files: &[("restic.sh", include_str!("restic.sh"))],
        prepare: LINES,
        run: "exec sh restic.sh $1",
        figures: &[],
    },
];

/// Returns the program of this name, if there is one.
pub(crate) fn named(name: &str) -> Option<&'static Job> {
    static JOBS: [Job; ALL.len()] = ALL;
    JOBS.iter().find(|job| job.name == name)
}

impl Job {
    /// Returns what the program needs and this machine lacks, if anything.
    pub(crate) fn lacks(&self) -> Option<String> {
        let name = absent(self.needs)?;
        Some(format!("there is no {name}"))
    }

    /// Makes the program's files in a directory.
    pub(crate) fn prepare(&self, directory: &Path) -> io::Result<()> {
        for (name, text) in self.files {
            fs::write(directory.join(name), text)?;
        }
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", self.prepare]).current_dir(directory);
        let output = interrupt::output(shell.stdin(Stdio::null()).stderr(Stdio::piped()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        output.status.success().then_some(()).ok_or_else(|| io::Error::other(said.into_owned()))
    }

    /// Returns the command of one run, in the directory with the program's files. `words` start the
    /// program, if there are any.
    pub(crate) fn command(&self, directory: &Path, words: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("cd \"$0\" && {}", self.run)]).arg(directory).arg(words);
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
        assert_eq!(job.command(directory.path(), "").output().unwrap().stdout, b"1\n1\n");
        let error = Job { prepare: "cat absent", ..job }.prepare(directory.path()).unwrap_err();
        assert!(error.to_string().contains("absent"), "{error}");
    }
}
