//! Layer 4: the doors of coldpress. Today there is one, the command in `src/bin/coldpress`.
#![forbid(unsafe_code)]
