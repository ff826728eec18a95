//! The command line of `coldpress-bench pools`.

use std::path::PathBuf;

use crate::pools::Kind;
use crate::pools::density::Churn;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};

use crate::commands::common::Common;

/// The options of `coldpress-bench pools`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PoolsArgs {
    /// The pools; all is the default
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = pool_parser())]
    pub(crate) pool: Vec<Kind>,

    /// The tables; all is the default
    #[arg(long, value_name = "TABLE", value_delimiter = ',', value_enum)]
    pub(crate) tables: Vec<PoolTable>,

    /// Traces of compressed sizes, or folders of them
    ///
    /// A trace is CORPUS.CODEC.u16 or CORPUS.CODEC.u16.zst: a 16-bit number a page, little-endian.
    /// 0 stands for zeros, 1 for one word repeated, 65535 leaves the page out. The default is
    /// models of a heap and of English text.
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) trace: Vec<PathBuf>,

    /// Which traces of a folder
    #[arg(long, value_name = "CODEC", default_value = "lzo1x")]
    pub(crate) codec: String,

    /// What happens to the objects of T4; everything is the default
    #[arg(long, value_name = "CHURN", value_delimiter = ',', value_parser = churn_parser())]
    pub(crate) churn: Vec<Churn>,

    /// Objects of the large pools of T4, of up to 4 KiB each; 0 for none
    #[arg(long, value_name = "N", default_value_t = 1_000_000,
        value_parser = clap::value_parser!(u32).range(0..=4_000_000))]
    pub(crate) objects: u32,

    /// Print every class in T2
    #[arg(long)]
    pub(crate) classes: bool,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// Returns a parser for the names of pools.
fn pool_parser() -> impl TypedValueParser<Value = Kind> {
    let names = Kind::ALL.iter().map(|kind| kind.name());
    PossibleValuesParser::new(names).map(|name| Kind::named(&name).expect("one of its names"))
}

/// Returns a parser for the names of churns.
fn churn_parser() -> impl TypedValueParser<Value = Churn> {
    PossibleValuesParser::new(Churn::ALL.map(Churn::name)).map(|name| {
        Churn::ALL.into_iter().find(|churn| churn.name() == name).expect("one of their names")
    })
}

/// A table of `coldpress-bench pools`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PoolTable {
    /// Zero-filled pages and text, as in the mail on xcfmalloc
    T1,
    /// Classes with short and long zspages, as in the mail on zsmalloc
    T2,
    /// One sequence of allocations, the sizes swept
    T3,
    /// Density over time
    T4,
    /// Single calls
    T5,
}

impl PoolTable {
    /// All tables.
    pub(super) const ALL: [Self; 5] = [Self::T1, Self::T2, Self::T3, Self::T4, Self::T5];

    /// Returns the name of the table on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::T1 => "t1",
            Self::T2 => "t2",
            Self::T3 => "t3",
            Self::T4 => "t4",
            Self::T5 => "t5",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_named_as_on_the_command_line() {
        for table in PoolTable::ALL {
            assert_eq!(PoolTable::from_str(table.name(), false), Ok(table));
        }
    }
}
