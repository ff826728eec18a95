//! Sizes as people write them.
//!
//! | form | unit |
//! | --- | --- |
//! | `4096`, `4096B` | bytes |
//! | `K M G T`, `Ki Mi Gi Ti`, `KiB MiB GiB TiB` | powers of 1024, as in systemd, docker and Java |
//! | `KB MB GB TB` | powers of 1000, as in GNU coreutils |
//! | `25%` | a share of the memory there is, where a share makes sense |
//!
//! Upper and lower case are the same. A fraction such as `1.5G` is allowed, and rounded down to
//! whole bytes. Arithmetic is exact, in integers.

use std::fmt;

use coldpress_sys::Bytes;

/// The number of billionths in one percent.
const PERCENT: u32 = 10_000_000;

/// The end of every error about a text that is not a size.
const FORMS: &str = "write a number with K, M, G or T (1024 each; also KiB, Ki), KB, MB, GB or TB \
                     (1000 each) or plain bytes, for example 512M, 1.5GiB or 536870912";

/// The most digits after the point. More say nothing about bytes, and could overflow the
/// arithmetic.
const FRACTION_DIGITS_MAX: usize = 12;

/// A size given in bytes, or as a share of the memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// This many bytes.
    Bytes(Bytes),
    /// A share, in billionths of the whole: `25%` is 250_000_000.
    Share {
        /// The share in billionths, at most 1_000_000_000.
        billionths: u32,
    },
}

impl Size {
    /// Returns the size in bytes, where a share is one of `whole`. Rounds down.
    pub fn of(self, whole: Bytes) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Share { billionths } => {
                let bytes = whole.0 as u128 * u128::from(billionths) / 1_000_000_000;
                Bytes(usize::try_from(bytes).expect("a share of a size is no larger than the size"))
            }
        }
    }
}

impl fmt::Display for Size {
    /// Writes the size in a form that can be read again: bytes, or a percentage.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{}", bytes.0),
            Self::Share { billionths } => {
                let (percent, rest) = (billionths / PERCENT, billionths % PERCENT);
                let fraction = format!(".{rest:07}");
                write!(f, "{percent}{}%", fraction.trim_end_matches('0').trim_end_matches('.'))
            }
        }
    }
}

/// Reads a size or a share. The error names the text and the forms there are.
pub fn parse_size_or_share(text: &str) -> Result<Size, String> {
    let Some(percent) = text.strip_suffix('%') else {
        return parse_size(text).map(Size::Bytes);
    };
    let error = || format!("\"{text}\" is not a share: write a percentage up to 100%, as 25%");
    let billionths = multiply(percent, u64::from(PERCENT)).ok_or_else(error)?;
    match u32::try_from(billionths) {
        Ok(billionths) if billionths <= 1_000_000_000 => Ok(Size::Share { billionths }),
        _ => Err(error()),
    }
}

/// Reads a size in bytes. The error names the text and the forms there are.
pub fn parse_size(text: &str) -> Result<Bytes, String> {
    if text.ends_with('%') {
        return Err(format!("\"{text}\": a share is not possible here; {FORMS}"));
    }
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(digits);
    if number.is_empty() {
        return Err(format!("\"{text}\" is not a size; {FORMS}"));
    }
    let Some(unit) = unit_bytes(suffix) else {
        return Err(format!("\"{text}\": unknown unit \"{suffix}\"; {FORMS}"));
    };
    if unit == 1 && number.contains('.') {
        return Err(format!("\"{text}\" is a fraction of a byte; {FORMS}"));
    }
    let Some(bytes) = multiply(number, unit) else {
        return Err(format!("\"{text}\" is not a size; {FORMS}"));
    };
    match usize::try_from(bytes) {
        // Half of the address space is more than any machine has, and leaves room for sums of
        // sizes.
        Ok(bytes) if bytes <= usize::MAX / 2 => Ok(Bytes(bytes)),
        _ => Err(format!("\"{text}\" is more than any machine has; {FORMS}")),
    }
}

/// Returns the number of bytes in the unit `suffix`, or nothing for an unknown unit.
fn unit_bytes(suffix: &str) -> Option<u64> {
    let suffix = suffix.to_ascii_lowercase();
    if matches!(suffix.as_str(), "" | "b") {
        return Some(1);
    }
    let (letter, rest) = suffix.split_at_checked(1)?;
    let power = match letter {
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    match rest {
        "" | "i" | "ib" => Some(1024_u64.pow(power)),
        "b" => Some(1000_u64.pow(power)),
        _ => None,
    }
}

/// Multiplies the decimal `number` by `unit`, and rounds down. Returns nothing when `number` is not
/// a number, or the result is too large.
fn multiply(number: &str, unit: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !is_digits(whole) || !is_digits(fraction) || fraction.len() > FRACTION_DIGITS_MAX {
        return None;
    }
    let whole = whole.parse::<u64>().ok()?.checked_mul(unit)?;
    let scale = 10_u128.pow(fraction.len() as u32);
    let part = fraction.parse::<u128>().ok()? * u128::from(unit) / scale;
    whole.checked_add(u64::try_from(part).ok()?)
}

/// Formats a size for people, in powers of 1024, with one digit after the point where it is not
/// whole.
pub fn show(size: Bytes) -> String {
    let mut unit = 1_usize;
    let mut name = "bytes";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if size.0 / unit < 1024 {
            break;
        }
        unit *= 1024;
        name = larger;
    }
    if size.0.is_multiple_of(unit) {
        return format!("{} {name}", size.0 / unit);
    }
    let tenths = (size.0 % unit) as u128 * 10 / unit as u128;
    format!("{}.{tenths} {name}", size.0 / unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_documented_form_is_read() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("4096b", 4096),
            ("1K", 1024),
            ("1k", 1024),
            ("1Ki", 1024),
            ("1KiB", 1024),
            ("1kb", 1000),
            ("1KB", 1000),
            ("512M", 512 << 20),
            ("512m", 512 << 20),
            ("512Mi", 512 << 20),
            ("512mib", 512 << 20),
            ("512MB", 512_000_000),
            ("1.5G", 3 << 29),
            ("1.5GiB", 3 << 29),
            ("1.5GB", 1_500_000_000),
            ("2T", 2 << 40),
            ("0.1K", 102),
            ("16777216", 16 << 20),
        ] {
            assert_eq!(parse_size(text), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_named_with_the_forms() {
        for text in [
            "",
            "M",
            "-1",
            "+1",
            "1.M",
            ".5M",
            "1.2.3M",
            "12Q",
            "12 M",
            " 1M",
            "1e9",
            "0x10",
            "1.5",
            "1.5b",
            "99999999999T",
            "18446744073709551616",
            "\u{661}M",
            "1Mo",
            "1iB",
            "25%",
            "1.1234567890123M",
        ] {
            let error = parse_size(text).unwrap_err();
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
            assert!(error.contains("512M"), "{error}");
        }
    }

    #[test]
    fn shares_are_of_the_whole() {
        let whole = Bytes(8 << 30);
        for (text, bytes) in [
            ("25%", 2 << 30),
            ("100%", 8 << 30),
            ("12.5%", 1 << 30),
            ("0%", 0),
            ("512M", 512 << 20),
        ] {
            assert_eq!(parse_size_or_share(text).unwrap().of(whole), Bytes(bytes), "{text}");
        }
        for text in ["%", "101%", "-1%", "1e1%", "25 %", "99999999999999999999%"] {
            let error = parse_size_or_share(text).unwrap_err();
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
        }
    }

    #[test]
    fn sizes_are_shown_in_the_largest_unit() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1 KiB"),
            (16 << 20, "16 MiB"),
            (3 << 29, "1.5 GiB"),
            ((1 << 30) - 1, "1023.9 MiB"),
            (5 << 40, "5 TiB"),
        ] {
            assert_eq!(show(Bytes(bytes)), text);
        }
    }

    proptest! {
        #[test]
        fn whole_numbers_agree_with_multiplication(number in 0_usize..1 << 20, unit in 0_usize..5) {
            let power = |base: usize| base.pow(unit as u32);
            let letter = ["", "K", "M", "G", "T"][unit];
            let text = format!("{number}{letter}");
            prop_assert_eq!(parse_size(&text), Ok(Bytes(number * power(1024))));
            if unit > 0 {
                let text = format!("{number}{letter}b");
                prop_assert_eq!(parse_size(&text), Ok(Bytes(number * power(1000))));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC*", digits in "[0-9.]{0,40}[a-zA-Z%]{0,4}") {
            for text in [text, digits] {
                let parsed = parse_size_or_share(&text);
                if let Ok(size) = parsed {
                    prop_assert!(size.of(Bytes(usize::MAX / 2)).0 <= usize::MAX / 2);
                }
            }
        }
    }
}
