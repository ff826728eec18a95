//! The build: files of PostgreSQL's server, compiled by a makefile of our own, in which the files
//! do not depend on each other and only objects result.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

use coldpress_common::failure::Failure;
use tempfile::TempDir;

use crate::commands::launch::absent;

/// The largest files of `src/backend` in descending order of size, so that the longest compiles
/// begin first. With gcc 12 and these flags, each compile holds 59 to 175 MB at its peak and takes
/// half a second to five.
pub(super) const FILES: [&str; 24] = [
    "parser/gram",
    "commands/tablecmds",
    "utils/adt/ruleutils",
    "utils/misc/guc",
    "access/heap/heapam",
    "access/transam/xlog",
    "utils/adt/numeric",
    "utils/adt/selfuncs",
    "optimizer/plan/planner",
    "optimizer/plan/createplan",
    "utils/cache/relcache",
    "commands/trigger",
    "optimizer/path/costsize",
    "postmaster/postmaster",
    "utils/adt/arrayfuncs",
    "access/transam/xact",
    "catalog/aclchk",
    "storage/ipc/procarray",
    "utils/adt/varlena",
    "storage/lmgr/predicate",
    "utils/adt/formatting",
    "optimizer/util/clauses",
    "catalog/objectaddress",
    "replication/logical/reorderbuffer",
];

/// The flags of PostgreSQL's own build that change code, and debug information.
const FLAGS: &str = "-O2 -g -w -fno-strict-aliasing -fwrapv -fexcess-precision=standard \
                     -D_GNU_SOURCE";
/// The last file that PostgreSQL's build makes of all that a compile needs.
const MADE: &str = "src/include/utils/fmgroids.h";

/// Returns a failure that names what the build of `files` needs and this machine lacks, if
/// anything.
pub(super) fn lacks(source: &Path, files: &[&str]) -> Option<Failure> {
    if let Some(name) = absent(&["gcc", "make"]) {
        return Some(Failure::ours(format!("there is no {name}"), "install it"));
    }
    let file = |name: &&str| source.join("src/backend").join(name).with_extension("c");
    let mut needed = files.iter().map(file).chain([source.join(MADE)]);
    let missing = needed.find(|file| !file.exists())?;
    Some(Failure::ours(
        format!("there is no PostgreSQL 15 to compile: no {}", missing.display()),
        "run `scripts/fetch-postgresql FOLDER` and give `--source FOLDER/postgresql`",
    ))
}

/// A build: the files to compile, a folder for their objects, and the objects that should result.
pub(super) struct Tree {
    directory: TempDir,
    names: Vec<&'static str>,
    wanted: Vec<Vec<u8>>,
}

impl Tree {
    /// Writes the makefile into a new folder below `directory`.
    pub(super) fn new(source: &Path, directory: &Path, files: &[&'static str]) -> io::Result<Self> {
        let source = fs::canonicalize(source)?;
        let directory =
            tempfile::Builder::new().prefix("coldpress-bench-").tempdir_in(directory)?;
        let names: Vec<&str> = files.iter().map(|file| last_of(file)).collect();
        let mut text = format!("SOURCE = {}\nall:", source.display());
        for name in &names {
            write!(text, " {name}.o").expect("a string takes all");
        }
        for (file, name) in files.iter().zip(&names) {
            let folder = Path::new(file).parent().unwrap_or(Path::new("")).display();
            write!(
                text,
                "\n{name}.o:\n\t@gcc {FLAGS} -I'$(SOURCE)/src/backend/{folder}' \
                 -I'$(SOURCE)/src/include' -c '$(SOURCE)/src/backend/{file}.c' -o $@\n"
            )
            .expect("a string takes all");
        }
        fs::write(directory.path().join("Makefile"), text)?;
        Ok(Self { directory, names, wanted: Vec::new() })
    }

    /// Returns the number of files.
    pub(super) fn files(&self) -> usize {
        self.names.len()
    }

    /// Returns the total bytes of the objects that should result.
    pub(super) fn bytes(&self) -> usize {
        self.wanted.iter().map(Vec::len).sum()
    }

    /// Returns the command of a build from scratch, with `jobs` compilers at a time.
    pub(super) fn make(&self, jobs: u32) -> io::Result<Command> {
        for name in &self.names {
            match fs::remove_file(self.object(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let mut command = Command::new("make");
        command.args(["-s", "-k", &format!("-j{jobs}"), "-C"]).arg(self.directory.path());
        // A make that runs this one would hand down its own jobs.
        command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        Ok(command)
    }

    /// Takes the present objects as those that should result.
    pub(super) fn keep(&mut self) -> io::Result<()> {
        self.wanted =
            self.names.iter().map(|name| fs::read(self.object(name))).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// Returns how many objects are missing. Fails when an object is not what it should be, unless
    /// compilers were killed: then it was cut short and counts as missing.
    pub(super) fn missing(&self, is_killed: bool) -> Result<u32, String> {
        let mut missing = 0;
        for (name, wanted) in self.names.iter().zip(&self.wanted) {
            match fs::read(self.object(name)) {
                Ok(bytes) if bytes == *wanted => {}
                Ok(_) if !is_killed => return Err(format!("WRONG OBJECT: {name}.o")),
                _ => missing += 1,
            }
        }
        Ok(missing)
    }

    fn object(&self, name: &str) -> PathBuf {
        self.directory.path().join(name).with_extension("o")
    }
}

/// Returns the last component of a path.
fn last_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    //! The risk: a build that is fast because it did not compile, or compiled something else.
    use super::*;

    #[test]
    fn every_file_has_an_object_of_its_own() {
        let names: std::collections::HashSet<_> = FILES.iter().map(|file| last_of(file)).collect();
        assert_eq!(names.len(), FILES.len());
    }

    #[test]
    fn objects_that_are_missing_or_wrong_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join("src/backend").join(name).with_extension("c");
        let files = &FILES[..2];
        for (number, name) in files.iter().enumerate() {
            fs::create_dir_all(file(name).parent().unwrap()).unwrap();
            fs::write(file(name), format!("int one{number} = {number};\n")).unwrap();
        }
        assert!(lacks(folder.path(), files).unwrap().to_string().contains("fetch-postgresql"));
        let mut tree = Tree::new(folder.path(), folder.path(), files).unwrap();
        let build = |tree: &Tree| tree.make(2).unwrap().status().unwrap().success();
        assert!(build(&tree));
        tree.keep().unwrap();
        assert!(build(&tree) && tree.bytes() > 0);
        assert_eq!(tree.missing(false), Ok(0));
        fs::write(tree.object("gram"), "cut").unwrap();
        assert_eq!(tree.missing(true), Ok(1));
        assert!(tree.missing(false).unwrap_err().contains("gram.o"));
        // A compile that fails does not stop the others.
        fs::write(file(files[0]), "int one0 = ;\n").unwrap();
        assert!(!build(&tree));
        assert_eq!(tree.missing(false), Ok(1));
    }
}
