//! The risk: a wrong, lost or left page after verbs that nobody thought of. The body of the fuzz
//! target, with bytes of proptest's.

mod operations;

use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_store_does_as_a_map_does(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
        operations::run(&bytes);
    }
}
