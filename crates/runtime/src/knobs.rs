//! The knobs of a run as users know them: each has a name, one number, a range and a default.
//!
//! The launcher keeps them in the ledger; each process makes [`coldpress_zswap::Knobs`] of them for
//! its own store. A knob is one word, so that a reader never sees half of one. Texts are the
//! launcher's business.

use core::ops::RangeInclusive;

use coldpress_codec::{CodecChoice, CodecId};
use coldpress_mem::pools::PoolKind;
use coldpress_sys::page::BLOCK_BYTES;
use coldpress_sys::{Bytes, PAGE_BYTES, PageCount};

/// The part of the whole budget, in per cent, to which the pool may grow when nothing can be
/// written back, whatever other processes hold: a page that is refused would take more room in the
/// program.
const POOL_HARD_PERCENT: usize = 90;
/// The lowest limit of writeback in a period: one slot.
const WRITEBACK_LEAST: u64 = coldpress_backing::SLOT_BYTES.0 as u64;
/// The smallest core zone: one block.
const CORE_LEAST: u64 = BLOCK_BYTES as u64;
/// The word of [`Domain::Limit`] that says "no limit".
pub const NO_LIMIT: u64 = u64::MAX;

/// The values that a knob may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Domain {
    /// Off (0) or on (1).
    Switch,
    /// A whole number.
    Number(RangeInclusive<u64>),
    /// Bytes, at least the given number; or [`NO_LIMIT`].
    Limit(u64),
    /// A codec, see [`encode_codec`].
    Codec,
    /// A pool, see [`encode_pool`].
    Pool,
    /// A share of the time in hundredths of a per cent, within a range; or 0 for off.
    Share(RangeInclusive<u64>),
}

/// The share of the time that a program may wait for idle memory unless the user says otherwise, in
/// hundredths of a per cent: 18 seconds of an hour.
pub const IDLE_SHARE: u64 = 50;

macro_rules! knobs {
    ($($(#[doc = $doc:literal])+ $name:ident $text:literal $domain:expr, $default:expr;)+) => {
        /// A setting that a user may decide, also while a run goes on.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Knob {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Knob {
            /// Every knob, in the order of the report.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// Returns the name of the knob.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }

            /// Returns what the knob does, for users.
            pub const fn help(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),+).trim_ascii(),)+
                }
            }

            /// Returns the values that the knob may have.
            pub const fn domain(self) -> Domain {
                match self {
                    $(Self::$name => $domain,)+
                }
            }

            /// Returns the value of the knob unless a user turns it.
            const fn default(self) -> u64 {
                match self {
                    $(Self::$name => $default,)+
                }
            }
        }
    };
}

knobs! {
    /// Whether cold pages are taken at all; off, they stay in the program
    Enabled "enabled" Domain::Switch, 1;
    /// How pages are compressed from now on. With auto, each by wk, or by zstd if wk makes too
    /// little of it
    Codec "codec" Domain::Codec, encode_codec(CodecChoice::Always(CodecId::Wk));
    /// Where compressed pages are kept from now on. Those in another pool move over while nobody
    /// waits
    Pool "pool" Domain::Pool, encode_pool(PoolKind::Zsmalloc);
    /// The size of the pool at which writeback begins, in per cent of what others leave of the
    /// budget
    MaxPoolPercent "max_pool_percent" Domain::Number(1..=90), 50;
    /// A pool that met its limit is written back to this share of it. One that had to refuse a page
    /// takes none until it is no larger. 100: no hysteresis
    AcceptThresholdPercent "accept_threshold_percent" Domain::Number(1..=100), 100;
    /// A page that compresses to more of its size than this is incompressible
    MaxCompressionRatio "max_compression_ratio" Domain::Number(1..=100), 80;
    /// Whether incompressible pages are kept as they are; off, they stay in the program
    KeepIncompressible "keep_incompressible" Domain::Switch, 1;
    /// Bytes: a page that takes more stays in the program while those stored take more on average.
    /// 4096 is no limit
    MaxMeanZsize "max_mean_zsize" Domain::Number(1..=PAGE_BYTES as u64), PAGE_BYTES as u64;
    /// Whether a page of one repeated word is kept as that word
    SameFilled "same_filled" Domain::Switch, 1;
    /// Whether old pages of the pool are compressed once more, with a dictionary, while the program
    /// needs no pages
    Dense "dense" Domain::Switch, 1;
    /// Whether memory that is not touched for long is taken whatever the budget says. The program's
    /// threads wait for such memory no more than this share of the time
    Idle "idle" Domain::Share(1..=5_000), 0;
    /// Whether pages are compressed ahead by the launcher, on a processor that has nothing else to
    /// do
    Helper "helper" Domain::Switch, 1;
    /// Whether processes that together touch more memory than there is take turns. Faults of others
    /// wait meanwhile for up to two seconds
    Turns "turns" Domain::Switch, 1;
    /// Whether pages may be written back to disk
    Writeback "writeback" Domain::Switch, 1;
    /// The most bytes each process writes back in a period
    WritebackLimit "writeback_limit" Domain::Limit(WRITEBACK_LEAST), NO_LIMIT;
    /// That period, in seconds
    WritebackPeriod "writeback_period" Domain::Number(1..=365 * 86_400), 86_400;
    /// Whether all pages are brought back, and stay in the program whatever the budget says
    Thawed "thawed" Domain::Switch, 0;
    /// The zone for tables, which never move. It holds for processes that are managed from now on
    /// and have no limit of their own. none: 4 MiB, or what their limits need
    Core "core" Domain::Limit(CORE_LEAST), NO_LIMIT;
    /// Whether tables and compressed pages lie in one zone, so that whole blocks are rarely free.
    /// It holds for processes that are managed from now on
    OneZone "one_zone" Domain::Switch, 0;
}

/// The number of knobs.
pub const KNOBS: usize = Knob::ALL.len();

impl Knob {
    /// Returns the knob of that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|knob| knob.name() == name)
    }

    /// Whether the knob may be `word`.
    pub fn allows(self, word: u64) -> bool {
        match self.domain() {
            Domain::Switch => word <= 1,
            Domain::Number(range) => range.contains(&word),
            Domain::Limit(least) => word >= least,
            Domain::Share(range) => word == 0 || range.contains(&word),
            Domain::Codec => encode_codec(decode_codec(word)) == word,
            Domain::Pool => encode_pool(decode_pool(word)) == word,
        }
    }
}

/// The values of all knobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    words: [u64; KNOBS],
}

impl Default for Knobs {
    fn default() -> Self {
        let mut words = [0; KNOBS];
        for knob in Knob::ALL {
            words[*knob as usize] = knob.default();
        }
        Self { words }
    }
}

impl Knobs {
    /// Returns knobs with these values, in the order of [`Knob::ALL`]. A value that a knob may not
    /// have is replaced by the knob's default.
    pub(crate) fn from_words(words: [u64; KNOBS]) -> Self {
        let mut knobs = Self::default();
        for knob in Knob::ALL {
            knobs.set(*knob, words[*knob as usize]);
        }
        knobs
    }

    /// Returns the value of a knob.
    pub fn get(&self, knob: Knob) -> u64 {
        self.words[knob as usize]
    }

    /// Returns the size of the core zone that the user asks for, if any.
    pub fn core(&self) -> Option<Bytes> {
        let word = self.get(Knob::Core);
        (word != NO_LIMIT).then_some(Bytes(usize::try_from(word).unwrap_or(usize::MAX)))
    }

    /// Returns whether `knob` may be `word`, and turns it to that. If not, nothing changes.
    pub fn set(&mut self, knob: Knob, word: u64) -> bool {
        let allowed = knob.allows(word);
        if allowed {
            self.words[knob as usize] = word;
        }
        allowed
    }

    /// Returns the share of the time that a program may wait for idle memory, in hundredths of a
    /// per cent. `None` means that only the budget takes memory.
    pub fn idle_share(&self) -> Option<u64> {
        Some(self.get(Knob::Idle)).filter(|share| *share > 0)
    }

    /// Returns how pages are compressed.
    pub fn codec(&self) -> CodecChoice {
        decode_codec(self.get(Knob::Codec))
    }

    /// Returns where compressed pages are kept.
    pub fn pool(&self) -> PoolKind {
        decode_pool(self.get(Knob::Pool))
    }

    /// Returns the period of the writeback limit, in nanoseconds.
    pub fn writeback_period_ns(&self) -> u64 {
        self.get(Knob::WritebackPeriod) * 1_000_000_000
    }

    /// Returns the knobs of the store of a process that has this `share` of the run's `budget`.
    pub fn for_store(&self, budget: PageCount, share: PageCount) -> coldpress_zswap::Knobs {
        let part = |of: PageCount, percent: usize| PageCount(of.0 * percent / 100);
        let is_on = |knob| self.get(knob) != 0;
        // A value within its domain fits its type.
        let percent = |knob| self.get(knob) as u8;
        let writeback_limit = Some(self.get(Knob::WritebackLimit)).filter(|word| *word != NO_LIMIT);
        coldpress_zswap::Knobs {
            enabled: is_on(Knob::Enabled),
            codec: self.codec(),
            max_pool: part(share, self.get(Knob::MaxPoolPercent) as usize),
            hard_pool: part(budget, POOL_HARD_PERCENT),
            accept_threshold_percent: percent(Knob::AcceptThresholdPercent),
            max_compression_ratio: percent(Knob::MaxCompressionRatio),
            keep_incompressible: is_on(Knob::KeepIncompressible),
            max_mean_zsize: Bytes(self.get(Knob::MaxMeanZsize) as usize),
            same_filled: is_on(Knob::SameFilled),
            dense: is_on(Knob::Dense),
            writeback: is_on(Knob::Writeback),
            writeback_limit: writeback_limit.map(|word| Bytes(word as usize)),
        }
    }
}

/// Encodes a codec as a word: kind in the low byte, level as i32 above bit 32.
pub const fn encode_codec(codec: CodecChoice) -> u64 {
    match codec {
        CodecChoice::Always(CodecId::Wk) => 0,
        CodecChoice::Always(CodecId::Lz4) => 1,
        CodecChoice::Always(CodecId::Lzo) => 2,
        CodecChoice::Always(CodecId::Zstd { level }) => 3 | (level.cast_unsigned() as u64) << 32,
        CodecChoice::Auto => 4,
    }
}

/// Returns the codec that a word stands for; any word that names none means WK.
pub const fn decode_codec(word: u64) -> CodecChoice {
    match word & 0xff {
        1 => CodecChoice::Always(CodecId::Lz4),
        2 => CodecChoice::Always(CodecId::Lzo),
        3 => CodecChoice::Always(CodecId::Zstd { level: ((word >> 32) as u32).cast_signed() }),
        4 => CodecChoice::Auto,
        _ => CodecChoice::Always(CodecId::Wk),
    }
}

/// Encodes a pool as a word: its index in [`PoolKind::ALL`].
pub const fn encode_pool(kind: PoolKind) -> u64 {
    kind as u64
}

/// Returns the pool that a word stands for; any word that names none means zsmalloc.
pub fn decode_pool(word: u64) -> PoolKind {
    let kind = usize::try_from(word).ok().and_then(|place| PoolKind::ALL.get(place));
    kind.copied().unwrap_or(PoolKind::Zsmalloc)
}

#[cfg(test)]
mod tests {
    //! The risk: a knob that reaches the store as another one, or with a value that it must not
    //! have.

    use super::*;

    #[test]
    fn codecs_survive_being_words() {
        let ids = [CodecId::Wk, CodecId::Lz4, CodecId::Lzo, CodecId::Zstd { level: -7 }];
        for codec in ids.map(CodecChoice::Always).into_iter().chain([CodecChoice::Auto]) {
            assert_eq!(decode_codec(encode_codec(codec)), codec);
            assert!(Knob::Codec.allows(encode_codec(codec)));
        }
        assert!(!Knob::Codec.allows(77));
    }

    #[test]
    fn pools_survive_being_words() {
        let mut knobs = Knobs::default();
        for kind in PoolKind::ALL {
            assert!(knobs.set(Knob::Pool, encode_pool(*kind)));
            assert_eq!(knobs.pool(), *kind);
        }
        for word in [PoolKind::ALL.len() as u64, u64::MAX] {
            assert!(!Knob::Pool.allows(word));
        }
    }

    #[test]
    fn defaults_are_allowed_and_names_lead_to_their_knob() {
        let knobs = Knobs::default();
        for knob in Knob::ALL {
            assert!(knob.allows(knobs.get(*knob)), "{knob:?}");
            assert_eq!(Knob::named(knob.name()), Some(*knob));
            assert!(!knob.help().is_empty() && !knob.help().ends_with('.'), "{knob:?}");
        }
        assert_eq!(Knob::named("frob"), None);
    }

    #[test]
    fn defaults_are_those_of_the_store() {
        let budget = PageCount(1000);
        let defaults = coldpress_zswap::Knobs {
            hard_pool: PageCount(900),
            ..coldpress_zswap::Knobs::new(CodecId::Wk, PageCount(500))
        };
        assert_eq!(Knobs::default().for_store(budget, budget), defaults);
    }

    #[test]
    fn a_small_share_makes_the_pool_small_and_not_the_last_resort() {
        let (budget, share) = (PageCount(1000), PageCount(100));
        let knobs = Knobs::default().for_store(budget, share);
        assert_eq!((knobs.max_pool, knobs.hard_pool), (PageCount(50), PageCount(900)));
    }

    #[test]
    fn every_knob_of_the_store_is_reached_by_its_own_name() {
        let budget = PageCount(1000);
        let normal = Knobs::default().for_store(budget, budget);
        let turned = |knob: Knob, word: u64| {
            let mut knobs = Knobs::default();
            assert!(knobs.set(knob, word));
            knobs.for_store(budget, budget)
        };
        type Store = coldpress_zswap::Knobs;
        assert_eq!(turned(Knob::Enabled, 0), Store { enabled: false, ..normal });
        let codec = CodecChoice::Always(CodecId::Zstd { level: 5 });
        assert_eq!(turned(Knob::Codec, encode_codec(codec)), Store { codec, ..normal });
        let max_pool = PageCount(100);
        assert_eq!(turned(Knob::MaxPoolPercent, 10), Store { max_pool, ..normal });
        let accept = Store { accept_threshold_percent: 90, ..normal };
        assert_eq!(turned(Knob::AcceptThresholdPercent, 90), accept);
        let ratio = Store { max_compression_ratio: 50, ..normal };
        assert_eq!(turned(Knob::MaxCompressionRatio, 50), ratio);
        let refuse = Store { keep_incompressible: false, ..normal };
        assert_eq!(turned(Knob::KeepIncompressible, 0), refuse);
        let mean = Store { max_mean_zsize: Bytes(2560), ..normal };
        assert_eq!(turned(Knob::MaxMeanZsize, 2560), mean);
        assert_eq!(turned(Knob::SameFilled, 0), Store { same_filled: false, ..normal });
        assert_eq!(turned(Knob::Dense, 0), Store { dense: false, ..normal });
        assert_eq!(turned(Knob::Writeback, 0), Store { writeback: false, ..normal });
        let limit = Store { writeback_limit: Some(Bytes::mib(1)), ..normal };
        assert_eq!(turned(Knob::WritebackLimit, 1 << 20), limit);
        assert_eq!(turned(Knob::WritebackPeriod, 60), normal);
        assert_eq!(turned(Knob::Thawed, 1), normal);
        assert_eq!(turned(Knob::Core, 8 << 20), normal);
        assert_eq!(turned(Knob::OneZone, 1), normal);
        assert_eq!(turned(Knob::Turns, 0), normal);
        assert_eq!(turned(Knob::Idle, IDLE_SHARE), normal);
        assert_eq!(turned(Knob::Pool, encode_pool(PoolKind::Segment)), normal);
    }

    #[test]
    fn what_is_out_of_range_changes_nothing() {
        let outside = [
            (Knob::Enabled, 2),
            (Knob::MaxPoolPercent, 0),
            (Knob::MaxPoolPercent, 91),
            (Knob::AcceptThresholdPercent, 101),
            (Knob::MaxMeanZsize, 4097),
            (Knob::WritebackLimit, WRITEBACK_LEAST - 1),
            (Knob::WritebackPeriod, 0),
            (Knob::Core, CORE_LEAST - 1),
            (Knob::Idle, 5_001),
        ];
        for (knob, word) in outside {
            let mut knobs = Knobs::default();
            assert!(!knobs.set(knob, word), "{knob:?} {word}");
            assert_eq!(knobs, Knobs::default());
        }
    }
}
