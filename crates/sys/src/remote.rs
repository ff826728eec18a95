//! Pages of other processes.

use core::array;

use linux_raw_sys::general as linux;

use crate::error::SysResult;
use crate::page::{PAGE_BYTES, Page, PageCount};
use crate::raw;

/// Maximum pages in one read.
pub const BATCH_MAX: usize = 8;

/// Reads the pages at `addresses` of another process, at most [`BATCH_MAX`], into `pages`. Returns
/// how many it could read, from the first on. The caller needs the right to trace the process:
/// EPERM without.
///
/// A page that is missing, or changes meanwhile, reads as anything. Reading stops where nothing is
/// mapped.
pub fn read_pages(
    process: u32,
    addresses: &[usize],
    pages: &mut [Page; BATCH_MAX],
) -> SysResult<PageCount> {
    let count = addresses.len().min(BATCH_MAX);
    let there: [[usize; 2]; BATCH_MAX] =
        array::from_fn(|index| [addresses.get(index).copied().unwrap_or(0), PAGE_BYTES]);
    let here = [pages.as_mut_ptr() as usize, count * PAGE_BYTES];
    let (here, there) = (here.as_ptr() as usize, there.as_ptr() as usize);
    // SAFETY: the kernel reads two lists of struct iovec, which live through the call, and writes
    // to `pages` alone, at most `count` of them.
    let result = unsafe {
        let arguments = [process as usize, here, 1, there, count, 0];
        raw::syscall(linux::__NR_process_vm_readv, arguments)
    };
    raw::checked("process_vm_readv", result).map(|bytes| PageCount(bytes / PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    //! The risk: pages pass for read that were not, or an error looks like pages.

    use super::*;

    #[test]
    fn pages_of_a_process_are_read_up_to_the_first_that_is_not_there() {
        let source = std::vec![[[1_u8; PAGE_BYTES], [2; PAGE_BYTES], [3; PAGE_BYTES]]];
        let address = |index: usize| source[0][index].as_ptr() as usize;
        let mut pages = [[0; PAGE_BYTES]; BATCH_MAX];
        let me = raw::process_id();
        let all = read_pages(me, &[address(2), address(0), address(1)], &mut pages);
        assert_eq!(all, Ok(PageCount(3)));
        assert_eq!([pages[0][9], pages[1][9], pages[2][4095], pages[3][0]], [3, 1, 2, 0]);
        let some = read_pages(me, &[address(1), 4096, address(2)], &mut pages);
        assert_eq!((some, pages[0][0]), (Ok(PageCount(1)), 2));
        assert_eq!(read_pages(me, &[4096], &mut pages).map_err(|error| error.errno), Err(14));
        let nobody = read_pages(0x3f_ffff, &[address(0)], &mut pages);
        assert_eq!(nobody.map_err(|error| error.errno), Err(3));
        assert_eq!(read_pages(me, &[address(0); 20], &mut pages), Ok(PageCount(BATCH_MAX)));
    }
}
