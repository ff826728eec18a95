//! The knobs as people write them: `NAME=VALUE`, for `run --set` and for `ctl`.

use std::fmt::Write;

use coldpress_codec::CodecChoice;
use coldpress_common::size::{parse_size, show};
use coldpress_mem::pools::PoolKind;
use coldpress_runtime::knobs::{
    Domain, IDLE_SHARE, Knob, Knobs, NO_LIMIT, decode_codec, decode_pool, encode_codec, encode_pool,
};
use coldpress_sys::Bytes;
use serde_json::{Map, Value};

/// A knob and its new value.
pub(crate) type Setting = (Knob, u64);

/// Reads `NAME=VALUE`. The error names the text and the possible values.
pub(crate) fn parse(text: &str) -> Result<Setting, String> {
    let Some((name, value)) = text.split_once('=') else {
        return Err(format!("\"{text}\" is no NAME=VALUE, for example max_pool_percent=30"));
    };
    let Some(knob) = Knob::named(name) else {
        return Err(unknown(name));
    };
    parse_value(knob, value).map(|word| (knob, word))
}

/// Returns the error for a name that no knob has.
fn unknown(name: &str) -> String {
    if name == "memory" {
        return "the budget of a run that begins is --memory SIZE".to_owned();
    }
    let names: Vec<_> = Knob::ALL.iter().map(|knob| knob.name()).collect();
    format!("there is no knob \"{name}\"; the knobs are {}", names.join(", "))
}

/// Reads a value of `knob`. The error names the text and the possible values.
pub(crate) fn parse_value(knob: Knob, text: &str) -> Result<u64, String> {
    let word = match knob.domain() {
        Domain::Switch => match text {
            "on" | "1" | "y" => Some(1),
            "off" | "0" | "n" => Some(0),
            _ => None,
        },
        Domain::Number(_) => text.parse().ok(),
        Domain::Limit(_) if text == "none" => Some(NO_LIMIT),
        Domain::Limit(_) => parse_size(text).ok().map(|Bytes(bytes)| bytes as u64),
        Domain::Codec => match text.parse::<CodecChoice>() {
            Ok(codec) => Some(encode_codec(codec)),
            Err(error) => return Err(error.to_string()),
        },
        Domain::Share(_) => parse_share(text),
        Domain::Pool => match text.parse::<PoolKind>() {
            Ok(kind) => Some(encode_pool(kind)),
            Err(error) => return Err(format!("pool={text}: {error}")),
        },
    };
    word.filter(|word| knob.allows(*word)).ok_or_else(|| {
        let (name, values) = (knob.name(), values(knob));
        format!("{name}={text} is not possible; {name} is {values}")
    })
}

/// Reads `on`, `off` or a share as `0.5%` or `0.5`, in hundredths of a per cent.
fn parse_share(text: &str) -> Option<u64> {
    match text {
        "on" => return Some(IDLE_SHARE),
        "off" => return Some(0),
        _ => {}
    }
    let number = text.strip_suffix('%').unwrap_or(text);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || part.len() > 2 || !digits(whole) || !digits(part) {
        return None;
    }
    format!("{whole}{part:0<2}").parse().ok()
}

/// Formats a share, in hundredths of a per cent, so that it can be read again.
fn show_share(share: u64) -> String {
    let text = format!("{}.{:02}", share / 100, share % 100);
    format!("{}%", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns the possible values of `knob`, in words.
pub(crate) fn values(knob: Knob) -> String {
    match knob.domain() {
        Domain::Switch => "on or off".to_owned(),
        Domain::Number(range) => format!("{} to {}", range.start(), range.end()),
        Domain::Limit(least) => {
            format!("a size from {} on, such as 512M, or none", show(Bytes(least as usize)))
        }
        Domain::Share(range) => {
            let (least, most) = (show_share(*range.start()), show_share(*range.end()));
            format!("off, on ({}), or {least} to {most}", show_share(IDLE_SHARE))
        }
        Domain::Codec => "wk, lz4, lzo, zstd[:LEVEL] or auto".to_owned(),
        Domain::Pool => "zsmalloc, xvmalloc, xcfmalloc or segment".to_owned(),
    }
}

/// Returns the setting of `knob`, as a value for JSON.
fn value(knobs: &Knobs, knob: Knob) -> Value {
    let word = knobs.get(knob);
    match knob.domain() {
        Domain::Switch => Value::from(if word == 0 { "off" } else { "on" }),
        Domain::Limit(_) if word == NO_LIMIT => Value::from("none"),
        Domain::Share(_) if word == 0 => Value::from("off"),
        Domain::Share(_) => Value::from(show_share(word)),
        Domain::Number(_) | Domain::Limit(_) => Value::from(word),
        Domain::Codec => Value::from(decode_codec(word).to_string()),
        Domain::Pool => Value::from(decode_pool(word).name()),
    }
}

/// Returns the settings of all knobs, as an object for JSON. [`parse`] can read them again.
pub(crate) fn document(knobs: &Knobs) -> Map<String, Value> {
    Knob::ALL.iter().map(|knob| (knob.name().to_owned(), value(knobs, *knob))).collect()
}

/// Returns the setting of `knob`, as text that [`parse`] can read again.
pub(crate) fn shown(knobs: &Knobs, knob: Knob) -> String {
    match value(knobs, knob) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

/// Formats all knobs with their values, defaults and meaning, for `--help`.
pub(crate) fn table() -> String {
    let defaults = Knobs::default();
    let mut text = String::from("Knobs:");
    for knob in Knob::ALL {
        let default = shown(&defaults, *knob);
        let (name, help, values) = (knob.name(), knob.help(), values(*knob));
        write!(text, "\n  {name} ({values}; default {default})\n      {help}")
            .expect("a string takes what is written");
    }
    text
}

#[cfg(test)]
mod tests {
    //! The risk: a user turns a knob and gets another value, or an error that does not help.

    use super::*;

    #[test]
    fn what_is_shown_can_be_given_back() {
        let mut knobs = Knobs::default();
        let settings =
            ["codec=zstd:-3", "writeback_limit=3M", "enabled=off", "pool=segment", "idle=1.25%"];
        for setting in settings {
            let (knob, word) = parse(setting).unwrap();
            assert!(knobs.set(knob, word));
        }
        for (name, value) in document(&knobs) {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            let (knob, word) = parse(&format!("{name}={value}")).unwrap();
            assert_eq!((knob.name(), word), (name.as_str(), knobs.get(knob)));
        }
        assert_eq!(document(&Knobs::default())["writeback_limit"], "none");
    }

    #[test]
    fn switches_are_read_as_the_kernel_reads_them() {
        for (text, word) in [("on", 1), ("1", 1), ("y", 1), ("off", 0), ("0", 0), ("n", 0)] {
            assert_eq!(parse(&format!("enabled={text}")), Ok((Knob::Enabled, word)));
        }
    }

    #[test]
    fn shares_are_read_and_shown() {
        for (text, word, shown) in [
            ("off", 0, "off"),
            ("on", 50, "0.5%"),
            ("0.5%", 50, "0.5%"),
            ("0.01", 1, "0.01%"),
            ("1", 100, "1%"),
            ("1.0%", 100, "1%"),
            ("10%", 1000, "10%"),
            ("12.34", 1234, "12.34%"),
            ("50%", 5000, "50%"),
        ] {
            assert_eq!(parse(&format!("idle={text}")), Ok((Knob::Idle, word)), "{text}");
            let mut knobs = Knobs::default();
            assert!(knobs.set(Knob::Idle, word));
            assert_eq!(value(&knobs, Knob::Idle), shown);
        }
        for text in
            ["", "%", ".5", "0.005", "-1", "51", "1e1", "+1", "1.%%", "99999999999999999999"]
        {
            let error = parse_value(Knob::Idle, text).unwrap_err();
            assert!(error.contains("off, on (0.5%), or 0.01% to 50%"), "{text}: {error}");
        }
    }

    #[test]
    fn errors_name_the_text_and_the_choices() {
        for (text, parts) in [
            ("enabled", &["\"enabled\"", "NAME=VALUE"][..]),
            ("memory=1G", &["--memory"]),
            ("frob=1", &["\"frob\"", "max_pool_percent", "writeback_period"]),
            ("max_pool_percent=91", &["max_pool_percent=91", "1 to 90"]),
            ("max_pool_percent=", &["max_pool_percent=", "1 to 90"]),
            ("max_mean_zsize=1e3", &["1e3", "1 to 4096"]),
            ("enabled=maybe", &["maybe", "on or off"]),
            ("codec=gzip", &["gzip", "auto", "wk", "lz4", "zstd"]),
            ("pool=zbud", &["zbud", "zsmalloc", "segment"]),
            ("writeback_limit=4K", &["4K", "64 KiB", "none"]),
            ("writeback_limit=-1", &["-1", "64 KiB"]),
        ] {
            let error = parse(text).unwrap_err();
            for part in parts {
                assert!(error.contains(part), "{part:?} is not in: {error}");
            }
        }
    }

    #[test]
    fn the_table_has_every_knob() {
        let table = table();
        for knob in Knob::ALL {
            assert!(table.contains(&format!("\n  {} (", knob.name())), "{knob:?} in {table}");
        }
    }
}
