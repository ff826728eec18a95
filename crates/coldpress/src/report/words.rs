//! Numbers as people read them.

use coldpress_common::size::show;
use coldpress_sys::Bytes;

const MIB: usize = 1 << 20;
const GIB: usize = 1 << 30;

/// Returns a time: `0.25 s`, `41 s`, `12 min`, `3.5 h`.
pub(crate) fn time(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match seconds {
        _ if ns == 0 => "0 s".to_owned(),
        _ if seconds < 1e-3 => format!("{:.1} us", seconds * 1e6),
        _ if seconds < 0.1 => format!("{:.1} ms", seconds * 1e3),
        _ if seconds < 10.0 => format!("{seconds:.2} s"),
        _ if seconds < 100.0 => format!("{seconds:.1} s"),
        _ if seconds < 600.0 => format!("{seconds:.0} s"),
        _ if seconds < 7200.0 => format!("{:.1} min", seconds / 60.0),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

/// Returns the bound of a class of times, in one or two digits where possible: `8 us`, `16 ms`.
pub(super) fn brief(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.0} us", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.0} ms", seconds * 1e3),
        1_000_000_000..100_000_000_000 => format!("{seconds:.0} s"),
        100_000_000_000..7_200_000_000_000 => format!("{:.0} min", seconds / 60.0),
        _ => format!("{:.0} h", seconds / 3600.0),
    }
}

/// Returns a number of seconds beside a picture.
pub(super) fn seconds(seconds: f64) -> String {
    match seconds {
        _ if seconds == 0.0 || seconds >= 0.995 && seconds.fract().abs() < 1e-9 => {
            format!("{} s", count(seconds as u64))
        }
        _ if seconds < 0.1 => time((seconds * 1e9) as u64),
        _ => format!("{seconds:.2} s"),
    }
}

/// Returns a round number beside a picture: `200 k`, `1.5 M`.
pub(super) fn short(number: f64) -> String {
    match number {
        _ if number >= 1e9 => format!("{} G", number / 1e9),
        _ if number >= 1e6 => format!("{} M", number / 1e6),
        _ if number >= 1e3 => format!("{} k", number / 1e3),
        _ => format!("{number}"),
    }
}

/// Returns a count with its digits in groups: `1,234,567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns a part in percent, with no more digits than matter.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent == 0.0 => "0 %".to_owned(),
        _ if percent < 0.1 => "under 0.1 %".to_owned(),
        _ if percent < 10.0 => format!("{percent:.1} %"),
        _ => format!("{percent:.0} %"),
    }
}

/// Returns a size as it is typed behind `--memory`, rounded up to what a person would type.
pub(super) fn budget(size: Bytes) -> String {
    let mib = size.0.div_ceil(MIB);
    let step = match mib {
        0..200 => 1,
        200..1000 => 10,
        1000..10_000 => 100,
        _ => GIB / MIB,
    };
    let mib = mib.next_multiple_of(step);
    if mib.is_multiple_of(1024) { format!("{}G", mib / 1024) } else { format!("{mib}M") }
}

/// Returns a size as a person reads it: from 10 units on without a fraction.
pub(crate) fn size(size: Bytes) -> String {
    let shown = show(size);
    match shown.split_once('.') {
        Some((whole, rest)) if whole.len() > 1 => {
            format!("{whole} {}", rest.split_once(' ').map_or("", |(_, unit)| unit))
        }
        _ => shown,
    }
}

/// Returns a number with its word: `1 fork`, `2 forks`.
pub(super) fn of(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    //! The risk: a number off by a thousand, or a budget below what was meant.

    use super::*;

    #[test]
    fn numbers_have_their_size_and_unit() {
        let times = [0, 2_500, 2_500_000, 250_000_000, 41_200_000_000, 724_000_000_000];
        let shown = times.map(time);
        assert_eq!(shown, ["0 s", "2.5 us", "2.5 ms", "0.25 s", "41.2 s", "12.1 min"]);
        assert_eq!([0.0, 0.02, 0.5, 2000.0].map(seconds), ["0 s", "20.0 ms", "0.50 s", "2,000 s"]);
        assert_eq!([0.0, 800.0, 1.5e6, 2e9].map(short), ["0", "800", "1.5 M", "2 G"]);
        let bounds = [512, 8_192, 16_777_216, 4_294_967_296, 131_072_000_000, 9_000_000_000_000];
        assert_eq!(bounds.map(brief), ["512 ns", "8 us", "17 ms", "4 s", "2 min", "2 h"]);
        assert_eq!(time(12_600_000_000_000), "3.5 h");
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let shares = [0.0, 0.0004, 0.042, 0.66, 1.5].map(percent);
        assert_eq!(shares, ["0 %", "under 0.1 %", "4.2 %", "66 %", "150 %"]);
        let sizes = [Bytes(512), Bytes(1536), Bytes::mib(149), Bytes(15_400 << 10)].map(size);
        assert_eq!(sizes, ["512 bytes", "1.5 KiB", "149 MiB", "15 MiB"]);
        assert_eq!([of(1, "fork", "forks"), of(0, "fork", "forks")], ["1 fork", "0 forks"]);
    }

    #[test]
    fn a_budget_is_never_rounded_down() {
        let typed = |bytes| budget(Bytes(bytes));
        assert_eq!(typed((47 << 20) + 1), "48M");
        assert_eq!(typed(371 << 20), "380M");
        assert_eq!(typed(1024 << 20), "1100M");
        assert_eq!(typed(20 << 30), "20G");
        assert_eq!(typed((20 << 30) + 1), "21G");
    }
}
