//! The kind of an executable file, read from its first bytes: how does our library get in?
//!
//! glibc's loader puts the library into the programs that it starts. Into any other program for
//! this processor the launcher puts it itself (`inject`). ELF without PT_INTERP is static (also
//! when it is position independent), and musl's loader cannot run a library made for glibc.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::LittleEndian;
use object::elf;
use object::read::ReadCache;
use object::read::elf::{FileHeader, ProgramHeader};

/// The processor this command, and so the library inside it, was built for.
#[cfg(target_arch = "x86_64")]
const MACHINE: elf::Machine = elf::EM_X86_64;
#[cfg(target_arch = "aarch64")]
const MACHINE: elf::Machine = elf::EM_AARCH64;

/// The part of a `#!` line that the kernel looks at (`BINPRM_BUF_SIZE`, linux/binfmts.h).
const SCRIPT_LINE_BYTES: usize = 256;

/// The kind of an executable file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// An ELF program that glibc's loader starts: our library can be put in.
    Dynamic,
    /// An ELF program for this processor that another loader starts, or none: the launcher puts
    /// our library in.
    Foreign(Foreign),
    /// An ELF program that our library cannot get into, and why.
    Closed(Closed),
    /// A script whose first line names this interpreter.
    Script(PathBuf),
    /// Anything else: a file for the shell, or one that the kernel was taught to run (binfmt_misc).
    Other,
}

/// The way in which a program begins without glibc's loader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Foreign {
    /// By itself: linked statically.
    Static,
    /// By musl's loader.
    Musl(PathBuf),
    /// By a loader that is neither glibc's nor musl's.
    OtherLoader(PathBuf),
}

/// The reason why the library cannot get into an ELF program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Made for a 32-bit processor or mode.
    Not64Bit,
    /// Made for another processor, by its ELF number.
    OtherMachine(u16),
    /// The headers make no sense.
    Damaged,
}

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static => f.write_str("is statically linked"),
            Self::Musl(loader) => write!(f, "is linked with musl ({})", loader.display()),
            Self::OtherLoader(loader) => write!(f, "is started by {}", loader.display()),
        }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Not64Bit => f.write_str("is a 32-bit program"),
            Self::OtherMachine(number) => {
                write!(f, "is made for another processor (ELF machine {number}, not {})", MACHINE.0)
            }
            Self::Damaged => f.write_str("has damaged ELF headers"),
        }
    }
}

/// Looks at the file `path`. Fails when it cannot be read.
pub(crate) fn examine(path: &Path) -> io::Result<Image> {
    let mut file = File::open(path)?;
    let mut start = Vec::with_capacity(SCRIPT_LINE_BYTES);
    file.by_ref().take(SCRIPT_LINE_BYTES as u64).read_to_end(&mut start)?;
    if start.starts_with(&elf::ELFMAG) {
        let image = examine_elf(&start, file);
        // glibc's loader, as a program, is linked statically, and heeds LD_PRELOAD.
        let is_loader = path.file_name().is_some_and(|name| is_glibcs(&name.to_string_lossy()));
        let is_static = image == Image::Foreign(Foreign::Static);
        return Ok(if is_static && is_loader { Image::Dynamic } else { image });
    }
    Ok(interpreter_of_script(&start).map_or(Image::Other, Image::Script))
}

/// Returns the interpreter that a `#!` line names, as the kernel reads it: one word, blanks around
/// it.
fn interpreter_of_script(start: &[u8]) -> Option<PathBuf> {
    let line = start.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | 0));
    let word = words.find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

fn examine_elf(start: &[u8], file: File) -> Image {
    // e_ident: class at 4, byte order at 5; e_machine: two bytes at 18 (elf(5)).
    let Some(&[class, order, ..]) = start.get(4..20) else {
        return Image::Closed(Closed::Damaged);
    };
    let machine = match order {
        1 => u16::from_le_bytes([start[18], start[19]]),
        _ => u16::from_be_bytes([start[18], start[19]]),
    };
    if machine != MACHINE.0 && class == elf::ELFCLASS64.0 {
        return Image::Closed(Closed::OtherMachine(machine));
    }
    if class != elf::ELFCLASS64.0 {
        return Image::Closed(Closed::Not64Bit);
    }
    match loader(&ReadCache::new(file)) {
        Err(_) => Image::Closed(Closed::Damaged),
        Ok(None) => Image::Foreign(Foreign::Static),
        Ok(Some(loader)) => judge_loader(loader),
    }
}

/// Returns whether the program at `path` has Go's runtime: a note of Go's linker says so.
pub(crate) fn has_go_runtime(path: &Path) -> bool {
    const GO: &[u8] = b"Go";
    let has_note = |file: &ReadCache<File>| -> object::read::Result<bool> {
        let header = elf::FileHeader64::<LittleEndian>::parse(file)?;
        let endian = header.endian()?;
        for segment in header.program_headers(endian, file)? {
            let Some(mut notes) = segment.notes(endian, file)? else { continue };
            while let Some(note) = notes.next()? {
                if note.name() == GO {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    };
    File::open(path).is_ok_and(|file| has_note(&ReadCache::new(file)).unwrap_or(false))
}

/// Returns the loader that the program asks for in PT_INTERP.
fn loader(file: &ReadCache<File>) -> object::read::Result<Option<PathBuf>> {
    let header = elf::FileHeader64::<LittleEndian>::parse(file)?;
    let endian = header.endian()?;
    for segment in header.program_headers(endian, file)? {
        if let Some(path) = segment.interpreter(endian, file)? {
            return Ok(Some(PathBuf::from(OsStr::from_bytes(path))));
        }
    }
    Ok(None)
}

/// Whether a file of this name is glibc's loader: `ld-linux-x86-64.so.2`, or `ld-2.31.so`.
fn is_glibcs(name: &str) -> bool {
    name.starts_with("ld-linux") || name.starts_with("ld-2.")
}

/// Judges a loader by its name: glibc's are called `ld-linux-*.so.2` and the like in any directory.
fn judge_loader(loader: PathBuf) -> Image {
    let name = loader.file_name().map(|name| name.to_string_lossy().into_owned());
    match name.as_deref() {
        Some(name) if is_glibcs(name) => Image::Dynamic,
        Some(name) if name.contains("musl") => Image::Foreign(Foreign::Musl(loader)),
        _ => Image::Foreign(Foreign::OtherLoader(loader)),
    }
}

#[cfg(test)]
mod tests {
    //! The risk: the library is given to a loader that ignores it, and a program runs without any
    //! budget.
    use super::*;
    use std::process::Command;

    fn examine_bytes(bytes: &[u8]) -> Image {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, bytes).unwrap();
        examine(&path).unwrap()
    }

    /// Compiles an empty program with `flags`. Returns nothing when this machine cannot.
    fn compile(directory: &Path, flags: &[&str]) -> Option<PathBuf> {
        let (source, program) = (directory.join("m.c"), directory.join("m"));
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let mut compiler = Command::new("cc");
        compiler.args(flags).arg(&source).arg("-o").arg(&program);
        let built = compiler.output().is_ok_and(|output| output.status.success());
        if !built {
            eprintln!("skipped: no cc {flags:?} here");
        }
        built.then_some(program)
    }

    #[test]
    fn the_shell_is_dynamic() {
        assert_eq!(examine(Path::new("/bin/sh")).unwrap(), Image::Dynamic);
    }

    #[test]
    fn static_programs_are_seen_position_independent_or_not() {
        let directory = tempfile::tempdir().unwrap();
        for flags in [&["-static"][..], &["-static-pie"]] {
            if let Some(program) = compile(directory.path(), flags) {
                let image = examine(&program).unwrap();
                assert_eq!(image, Image::Foreign(Foreign::Static), "{flags:?}");
            }
        }
    }

    #[test]
    fn a_program_of_musl_or_of_a_stranger_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let musl = "/lib/ld-musl-x86_64.so.1";
        if let Some(program) =
            compile(directory.path(), &["-Wl,--dynamic-linker", "-Wl,/lib/ld-musl-x86_64.so.1"])
        {
            assert_eq!(examine(&program).unwrap(), Image::Foreign(Foreign::Musl(musl.into())));
        }
        let strange = PathBuf::from("/system/bin/linker64");
        assert_eq!(judge_loader(strange.clone()), Image::Foreign(Foreign::OtherLoader(strange)));
        assert_eq!(judge_loader("/nix/x/lib/ld-linux-x86-64.so.2".into()), Image::Dynamic);
        assert_eq!(judge_loader("/lib64/ld-2.31.so".into()), Image::Dynamic);
        let loader = Path::new("/lib64/ld-linux-x86-64.so.2");
        assert!(!loader.exists() || examine(loader).unwrap() == Image::Dynamic);
    }

    #[test]
    fn other_processors_and_modes_are_seen() {
        let shell = std::fs::read("/bin/sh").unwrap();
        let with = |position: usize, byte: u8| {
            let mut copy = shell.clone();
            copy[position] = byte;
            examine_bytes(&copy)
        };
        assert_eq!(with(18, 243), Image::Closed(Closed::OtherMachine(243)));
        assert_eq!(with(4, 1), Image::Closed(Closed::Not64Bit));
    }

    #[test]
    fn damaged_headers_never_panic() {
        let shell = std::fs::read("/bin/sh").unwrap();
        for length in [4, 5, 6, 19, 20, 63, 64, 100, 200] {
            assert_eq!(examine_bytes(&shell[..length]), Image::Closed(Closed::Damaged), "{length}");
        }
        for position in 4..64 {
            for byte in [0, 1, 2, 0x7f, 0xff] {
                let mut copy = shell.clone();
                copy[position] = byte;
                examine_bytes(&copy);
            }
        }
    }

    #[test]
    fn scripts_name_their_interpreter_as_the_kernel_reads_it() {
        for (text, interpreter) in [
            ("#!/bin/sh\n", Some("/bin/sh")),
            ("#! \t/usr/bin/env python3\n", Some("/usr/bin/env")),
            ("#!/bin/sh", Some("/bin/sh")),
            ("#!/bin/sh\tx y\n", Some("/bin/sh")),
            ("#!\n/bin/sh\n", None),
            ("echo\n", None),
            ("", None),
        ] {
            let expected = interpreter.map_or(Image::Other, |path| Image::Script(path.into()));
            assert_eq!(examine_bytes(text.as_bytes()), expected, "{text:?}");
        }
    }
}
