//! The symbols that the library inside the command shares with others, against the list of
//! `coldpress_runtime::symbols`.
//!
//! The risk: the service runs a function of the program, which waits for memory that only the
//! service can bring; or the loader of another libc ends a program for a symbol it lacks. What a
//! compiler, its default flags or a library in C bring in shows in the linked library, and nowhere
//! else.

use std::collections::BTreeSet;

use coldpress_runtime::symbols::{GIVEN, TAKEN};
use object::LittleEndian;
use object::elf::{self, FileHeader64};
use object::read::elf::{FileHeader, Sym};

use super::LIBRARY;

/// A symbol that others can see.
struct Symbol {
    name: String,
    is_defined: bool,
    is_weak: bool,
}

fn symbols() -> Vec<Symbol> {
    let header = FileHeader64::<LittleEndian>::parse(LIBRARY).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, LIBRARY).unwrap();
    let table = sections.symbols(endian, LIBRARY, elf::SHT_DYNSYM).unwrap();
    let names = table.strings();
    let one = |symbol: &elf::Sym64<LittleEndian>| Symbol {
        name: String::from_utf8(symbol.name(endian, names).unwrap().to_vec()).unwrap(),
        is_defined: symbol.st_shndx(endian) != elf::SHN_UNDEF,
        is_weak: symbol.st_bind() == elf::STB_WEAK,
    };
    // The first entry stands for no symbol (elf(5)).
    table.iter().skip(1).map(one).collect()
}

fn names<'s>(symbols: impl Iterator<Item = &'s Symbol>) -> BTreeSet<&'s str> {
    symbols.map(|symbol| symbol.name.as_str()).collect()
}

#[test]
fn nothing_is_taken_from_others_but_what_is_listed() {
    let symbols = symbols();
    let taken = names(symbols.iter().filter(|symbol| !symbol.is_defined));
    assert_eq!(taken, BTreeSet::from(TAKEN));
    let strong = names(symbols.iter().filter(|symbol| !symbol.is_defined && !symbol.is_weak));
    assert_eq!(strong, BTreeSet::new(), "a libc without them ends a program with the library");
}

#[test]
fn nothing_is_given_to_others_but_what_is_listed() {
    let symbols = symbols();
    let given = names(symbols.iter().filter(|symbol| symbol.is_defined));
    assert_eq!(given, BTreeSet::from(GIVEN));
}

/// An older loader ends a program with a library that needs a version it lacks.
#[test]
fn no_version_is_needed_that_glibc_did_not_always_have() {
    let text = LIBRARY.split(|byte| *byte == 0).filter_map(|text| str::from_utf8(text).ok());
    let versions: BTreeSet<_> = text.filter(|text| text.starts_with("GLIBC_")).collect();
    assert_eq!(versions, BTreeSet::from(["GLIBC_2.2.5", "GLIBC_2.3.2"]));
}
