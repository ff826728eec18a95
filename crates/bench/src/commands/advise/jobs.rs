//! The programs whose times are predicted: some of `programs`, some of these with less to do, and
//! compilers, statistics, genomes and the demo.
//!
//! Each works for one to four seconds by itself, as it runs nine times, most of them slowly.

use crate::commands::launch::fixture;
use crate::commands::programs::jobs::{self, Job};

/// The names of all programs.
pub(super) const NAMES: [&str; 12] = [
    "polars", "duckdb", "nix", "jq", "r", "java-g1", "ghc", "cargo", "git", "ruby", "samtools",
    "demo",
];

/// A script that writes an array of JSON objects, a line each.
const OBJECTS: &str = r##"awk 'BEGIN {
    print "["
    for (i = 0; i < 200000; i++)
        printf "%s{\"key\": %d, \"value\": %d, \"name\": \"name of %d\"}\n",
            i ? "," : "", i * 7919 % 20011, i * 31 % 65521, i
    print "]"
}' > objects"##;

/// A script that writes a module of types with derived instances, and of functions on them.
const HASKELL: &str = r##"awk 'BEGIN {
    print "module Main where\nimport qualified Data.Map as M"
    for (n = 0; n < 60; n++) {
        printf "data T%d = A%d Int | B%d Double Int | C%d [Int] deriving (Show, Eq, Ord)\n",
            n, n, n, n
        printf "f%d :: T%d -> M.Map Int Int -> Int\n", n, n
        printf "f%d (A%d x) m = maybe %d (+ x) (M.lookup (x `mod` %d) m)\n", n, n, n, n + 3
        printf "f%d (B%d d x) m = truncate (d * %d) + x + M.size m\n", n, n, n
        printf "f%d (C%d xs) m = foldr (\\x y -> x * %d + y) 0 [x | x <- xs, odd x]\n", n, n, n
    }
    print "main :: IO ()\nmain = print (sum ["
    for (n = 0; n < 60; n++)
        printf "  %sf%d (C%d [1 .. %d]) (M.fromList (zip [1 .. 9] [2 ..]))\n",
            n ? "," : " ", n, n, n
    print "  ])"
}' > Main.hs"##;

/// A script that writes a crate of types, maps, iterators and functions that fail.
const CRATE: &str = r##"mkdir src
printf '[package]\nname = "work"\nversion = "0.1.0"\nedition = "2021"\n[workspace]\n' > Cargo.toml
awk 'BEGIN {
    print "use std::collections::BTreeMap;"
    for (n = 0; n < 100; n++) {
        printf "#[derive(Clone, Debug, PartialEq, PartialOrd)]\npub struct S%d {", n
        printf " pub key: u64, pub names: Vec<String>, pub map: BTreeMap<u64, [u8; %d]> }\n",
            n % 30 + 1
        printf "impl S%d {\n    pub fn sum(&self, times: u64) -> u64 {\n", n
        printf "        let long = self.names.iter().filter(|name| name.len() > %d);\n", n % 7
        printf "        let names = long.map(|name| name.len() as u64);\n"
        printf "        let all: Vec<u64> = names.chain(self.map.keys().copied()).collect();\n"
        printf "        all.iter().enumerate().fold(self.key, |sum, (at, it)| {\n"
        printf "            sum.wrapping_mul(%d).wrapping_add(it ^ (at as u64) ^ times)\n", n + 3
        printf "        })\n    }\n}\npub fn f%d(text: &str) -> Option<S%d> {\n", n, n
        printf "    let mut map = BTreeMap::new();\n"
        printf "    for (at, word) in text.split(char::is_whitespace).enumerate() {\n"
        printf "        map.insert(word.parse::<u64>().ok()?, [at as u8; %d]);\n    }\n", n % 30 + 1
        printf "    Some(S%d { key: %d, names: text.lines().map(str::to_owned).collect(), map })\n",
            n, n
        print "}"
    }
}' > src/lib.rs"##;

/// A script that writes 400,000 reads of a genome, out of order.
const READS: &str = r##"awk 'BEGIN {
    srand(42)
    print "@SQ\tSN:one\tLN:100000000"
    for (i = 0; i < 400000; i++) {
        bases = marks = ""
        word = rand() * 1e9
        for (j = 0; j < 10; j++) {
            word = (word * 16807) % 2147483647
            bases = bases substr("ACGTTGCAAGCTTCGAGGATCCTA", 1 + word % 12, 10)
            marks = marks substr("FFFFFF:FFFFFFF,FFFFFFFFF", 1 + word % 13, 10)
        }
        printf "read%d\t0\tone\t%d\t60\t100M\t*\t0\t0\t%s\t%s\n", i, 1 + rand() * 99000000,
            bases, marks
    }
}' > reads.sam"##;

/// Aggregates, merges, sorts and fits a frame.
const FRAME: &str = r##"rows <- as.integer(commandArgs(TRUE)[1])
set.seed(7)
frame <- data.frame(key = sample(50000L, rows, TRUE), value = runif(rows),
                    name = paste0("n", sample(2000L, rows, TRUE)))
sums <- aggregate(value ~ key, frame, sum)
joined <- merge(frame, sums, by = "key")
joined <- joined[order(joined$name, joined$value.x), ]
fit <- lm(value.y ~ value.x + key, joined)
print(dim(joined))
print(round(unname(coef(fit)), 6))
print(head(joined$name, 3))
"##;

/// What `programs` does not have.
static OWN: [Job; 8] = [
    Job { name: "jq", needs: &["jq"], files: &[], prepare: OBJECTS, run: jobs::SUMS, figures: &[] },
    Job {
        name: "ruby",
        needs: &["ruby"],
        files: &[("words.rb", fixture!("words.rb"))],
        prepare: "",
        run: "exec ruby words.rb 1000000",
        figures: &[],
    },
    Job {
        name: "duckdb",
        needs: &["python3"],
        files: &[("sized.py", fixture!("sized.py"))],
        prepare: "python3 -c 'import duckdb'",
        run: "exec python3 sized.py 2000000",
        figures: &[],
    },
    Job {
        name: "r",
        needs: &["Rscript"],
        files: &[("frame.R", FRAME)],
        prepare: "",
        run: "exec Rscript --vanilla frame.R 300000",
        figures: &[],
    },
    Job {
        name: "ghc",
        needs: &["ghc"],
        files: &[],
        prepare: HASKELL,
        run: "exec ghc -O1 -v0 -fforce-recomp -c Main.hs",
        figures: &[],
    },
    Job {
        name: "cargo",
        needs: &["cargo"],
        files: &[],
        prepare: CRATE,
        run: "rm -rf target && exec cargo build --quiet --offline --release",
        figures: &[],
    },
    Job {
        name: "samtools",
        needs: &["samtools"],
        files: &[],
        prepare: READS,
        run: "samtools sort -@ 1 -m 400M -l 1 -O sam reads.sam | grep -v ^@ | cksum",
        figures: &[],
    },
    Job {
        name: "demo",
        needs: &["python3"],
        files: &[(
            "index.py",
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../demo/index.py")),
        )],
        prepare: "",
        run: "exec python3 index.py --limit 30",
        figures: &[],
    },
];

/// Returns all programs, in the order of their names.
pub(super) fn all() -> Vec<&'static Job> {
    let own = |name: &str| OWN.iter().find(|job| job.name == name);
    let find = |name: &&str| own(name).or_else(|| jobs::named(name));
    NAMES.iter().filter_map(find).collect()
}

#[cfg(test)]
mod tests {
    //! The risk: a program is left out, and nobody notices.

    use super::*;

    #[test]
    fn each_name_has_its_program() {
        let names: Vec<_> = all().iter().map(|job| job.name).collect();
        assert_eq!(names, NAMES);
    }
}
