//! The packages that some rules leave out.

use crate::rust_file::RustFile;

/// The packages whose documentation of answers, sizes of types and order of modules are not
/// checked.
const EXEMPT: &[&str] = &[];

/// Returns whether `file` is of a package that is left out.
pub(super) fn is_exempt(file: &RustFile) -> bool {
    EXEMPT.contains(&file.package.as_str())
}
