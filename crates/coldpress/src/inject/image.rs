//! The library as it lies in memory: what of it is mapped from its file, and what its data is at
//! the address where it comes to lie (elf(5), the psABI of x86-64).
//!
//! The library asks nothing of a loader but that addresses in its data are made right. All that it
//! takes from others may be missing, so there is nothing to look up.

use std::ops::Range;

use coldpress_sys::PAGE_BYTES;
use object::LittleEndian;
use object::elf::{self, FileHeader64, ProgramHeader64, Rela64};
use object::read::elf::{FileHeader, ProgramHeader, Rela, SectionHeader, Sym};

/// The symbol that leads to all others that matter here.
const DOORS: &str = "COLDPRESS_DOORS";
/// The number of addresses there.
pub(super) const DOOR_COUNT: usize = 7;

/// A part of the library that is mapped from its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapped {
    /// Whole pages, from the library's start.
    pub(super) pages: Range<usize>,
    /// The place in the file.
    pub(super) offset: usize,
    pub(super) is_code: bool,
}

/// A word of the data that holds an address: its place and the address, both from the library's
/// start.
#[derive(Clone, Copy, Debug)]
struct Relocated {
    place: usize,
    address: u64,
}

/// The layout of the library.
#[derive(Debug)]
pub(crate) struct Image {
    /// The bytes of addresses that all of it takes.
    pub(super) length: usize,
    pub(super) mapped: Vec<Mapped>,
    /// Where the data begins; zeros follow it up to the end.
    pub(super) data_start: usize,
    data: Vec<u8>,
    relocated: Vec<Relocated>,
    doors: usize,
}

impl Image {
    /// Reads the layout from the library's file. Returns `None` for a file that needs more than
    /// this loader does.
    pub(crate) fn of(file: &[u8]) -> Option<Self> {
        let header = FileHeader64::<LittleEndian>::parse(file).ok()?;
        let endian = header.endian().ok()?;
        let all = header.program_headers(endian, file).ok()?;
        let mut loaded = all.iter().filter(|segment| segment.p_type(endian) == elf::PT_LOAD);
        let is_data = |it: &&ProgramHeader64<LittleEndian>| it.p_flags(endian).contains(elf::PF_W);
        let start = |it: &ProgramHeader64<LittleEndian>| it.p_vaddr(endian) as usize;
        let first = loaded.clone().find(is_data)?;
        let data_start = start(first) & !(PAGE_BYTES - 1);
        let (mut length, mut mapped, mut data) = (0, Vec::new(), Vec::new());
        for segment in loaded.by_ref() {
            let (address, offset) = (start(segment), segment.p_offset(endian) as usize);
            let bytes = segment.data(endian, file).ok()?;
            if is_data(&segment) {
                data.resize(address.checked_sub(data_start)?, 0);
                data.extend_from_slice(bytes);
            } else {
                let from = address % PAGE_BYTES;
                let end = (address + bytes.len()).next_multiple_of(PAGE_BYTES);
                let is_code = segment.p_flags(endian).contains(elf::PF_X);
                let pages = address - from..end;
                mapped.push(Mapped { pages, offset: offset.checked_sub(from)?, is_code });
            }
            length = address + segment.p_memsz(endian) as usize;
        }
        if mapped.iter().any(|part| part.pages.end > data_start) {
            return None;
        }
        let length = length.next_multiple_of(PAGE_BYTES);
        let (relocated, doors) = relocations(header, endian, file)?;
        Some(Self { length, mapped, data_start, data, relocated, doors })
    }

    /// Returns the data of the library at address `base`.
    pub(super) fn data_at(&self, base: usize) -> Vec<u8> {
        let mut data = self.data.clone();
        for Relocated { place, address } in &self.relocated {
            let place = place - self.data_start;
            let address = (base as u64).wrapping_add(*address);
            if let Some(word) = data.get_mut(place..place + size_of::<u64>()) {
                word.copy_from_slice(&address.to_le_bytes());
            }
        }
        data
    }

    /// Returns the addresses that the library gives, of its data at an address.
    pub(super) fn doors(&self, data: &[u8]) -> Option<[usize; DOOR_COUNT]> {
        let start = self.doors.checked_sub(self.data_start)?;
        let bytes = data.get(start..start + DOOR_COUNT * size_of::<usize>())?;
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        Some([(); DOOR_COUNT].map(|()| words.next().unwrap_or_default() as usize))
    }
}

/// Returns the words that hold addresses, and the place of [`DOORS`].
fn relocations(
    header: &FileHeader64<LittleEndian>,
    endian: LittleEndian,
    file: &[u8],
) -> Option<(Vec<Relocated>, usize)> {
    let sections = header.sections(endian, file).ok()?;
    let symbols = sections.symbols(endian, file, elf::SHT_DYNSYM).ok()?;
    let value = |index| {
        let symbol = symbols.symbol(index).ok()?;
        let is_here = symbol.st_shndx(endian) != elf::SHN_UNDEF;
        Some(is_here.then(|| symbol.st_value(endian)))
    };
    let mut relocated = Vec::new();
    for section in sections.iter() {
        let Some((entries, _)) = section.rela(endian, file).ok()? else { continue };
        for entry in entries {
            let entry: &Rela64<LittleEndian> = entry;
            let addend = entry.r_addend(endian).cast_unsigned();
            let place = entry.r_offset(endian) as usize;
            let address = match entry.r_type(endian, false) {
                elf::R_X86_64_RELATIVE => addend,
                elf::R_X86_64_64 | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT => {
                    // What is not here stays null.
                    match value(entry.symbol(endian, false)?)? {
                        Some(value) => value.wrapping_add(addend),
                        None => continue,
                    }
                }
                _ => return None,
            };
            relocated.push(Relocated { place, address });
        }
    }
    let names = symbols.strings();
    let doors = symbols.iter().find(|symbol| symbol.name(endian, names) == Ok(DOORS.as_bytes()))?;
    Some((relocated, doors.st_value(endian) as usize))
}

#[cfg(test)]
mod tests {
    //! The risk: the library is put together wrongly, and a program ends where it begins.

    use super::*;
    use crate::preload::LIBRARY;

    #[test]
    fn the_library_fits_together() {
        let image = Image::of(LIBRARY).expect("it needs no other loader");
        assert_eq!(image.mapped.iter().filter(|part| part.is_code).count(), 1);
        assert!(image.data_start + image.data.len() <= image.length);
        assert!(image.relocated.len() > 100, "{}", image.relocated.len());
        let all = image.data_start..image.data_start + image.data.len();
        assert!(image.relocated.iter().all(|word| all.contains(&word.place)));
        let base = 0x7000_0000_0000;
        let doors = image.doors(&image.data_at(base)).expect("they are in the data");
        let code = image.mapped.iter().find(|part| part.is_code).expect("counted above");
        let [words, enter, came, loose, stubs, leave, inside] =
            doors.map(|door| door.wrapping_sub(base));
        for word in [words, inside] {
            assert!((image.data_start..image.length).contains(&word), "{word:#x}");
        }
        for door in [enter, came, loose, stubs, leave] {
            assert!(code.pages.contains(&door), "{door:#x}");
        }
        // The first instruction there is `syscall`.
        assert_eq!(LIBRARY[enter - code.pages.start + code.offset..][..2], [0x0f, 0x05]);
    }

    #[test]
    fn another_file_is_not_put_together() {
        assert!(Image::of(&[]).is_none() && Image::of(&LIBRARY[..100]).is_none());
        let program = std::fs::read("/proc/self/exe").expect("it is there");
        assert!(Image::of(&program).is_none(), "it has no {DOORS}");
    }
}
