//! The band between the low and the min watermark (soft and hard), in which reclaim goes along with
//! faults.

use coldpress_sys::{Bytes, PageCount};

/// The narrowest band, where the budget has room for it: the band is a 128th of the budget within
/// these bounds, and at most a 32nd.
const BAND_MIN: PageCount = Bytes::mib(1).pages_down();
/// The widest band.
pub(crate) const BAND_MAX: PageCount = Bytes::mib(2).pages_down();
/// Returns the distance from soft to hard in a budget of `total`.
pub(crate) fn band(total: PageCount) -> PageCount {
    PageCount(total.0 / 128).clamp(BAND_MIN, BAND_MAX).min(PageCount(total.0 / 32))
}
