//! Statistics from another place, as `coldpress report` reads them.
//!
//! Whatever the file says, the page is made or refused with words, and has no element that a
//! program named into it.
#![no_main]
#![expect(dead_code, reason = "the command does more with these modules")]

#[path = "../../crates/coldpress/src/report/advice.rs"]
mod advice;
#[path = "../../crates/coldpress/src/report/chapters.rs"]
mod chapters;
#[path = "../../crates/coldpress/src/report/curve.rs"]
mod curve;
#[path = "../../crates/coldpress/src/report/figures.rs"]
mod figures;
#[path = "../../crates/coldpress/src/report/page.rs"]
mod page;
#[path = "../../crates/coldpress/src/report/picture.rs"]
mod picture;
#[path = "../../crates/coldpress/src/report/scale.rs"]
mod scale;
#[path = "../../crates/coldpress/src/text.rs"]
mod text;
#[path = "../../crates/coldpress/src/report/words.rs"]
mod words;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match figures::Figures::read(text) {
        Ok(figures) => {
            let page = page::page(&figures);
            assert!(page.ends_with("</html>\n") && !page.contains("<script"));
        }
        Err(why) => assert!(!why.is_empty()),
    }
});
