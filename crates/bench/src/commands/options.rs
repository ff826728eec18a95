//! The command lines of `coldpress-bench`.

use std::path::{Path, PathBuf};

use clap::{ArgAction, Parser, Subcommand, ValueHint};

use super::advise::options::AdviseArgs;
use super::all::AllArgs;
use super::build::options::BuildArgs;
use super::codecs::options::CodecsArgs;
use super::common::Common;
use super::fault::FaultArgs;
use super::fit::FitArgs;
use super::fork::options::ForkArgs;
use super::frames::options::FramesArgs;
use super::policy::PolicyArgs;
use super::pools::options::PoolsArgs;
use super::programs::options::ProgramsArgs;
use super::slab::SlabArgs;
use super::start::options::StartArgs;
use super::swap::options::SwapArgs;
use super::trees::options::TreesArgs;
use super::view::options::ViewArgs;
use super::workload::WorkloadArgs;
use super::zswap::options::ZswapArgs;

/// The place of `--help` among the options: behind all others.
const HELP_LAST: usize = 1000;

/// The layout of the help, which has a line for each benchmark, and none to spare on a screen.
const TEMPLATE: &str = "{about}\n{usage-heading} {usage}\n{all-args}{after-help}";
/// The end of `coldpress-bench --help`.
const MORE: &str = "Options, examples, exit statuses: coldpress-bench help [BENCHMARK]";

/// The end of `coldpress-bench help`.
const DETAILS: &str = "\
Examples:
  coldpress-bench fault
  coldpress-bench fit --rounds 5 --json
  coldpress-bench fault --against ./coldpress-before --rounds 40
  coldpress-bench frames --part huge --trace job.frames
  coldpress-bench pools --pool zsmalloc-8 --tables t2,t4 --trace job.lz4.u16.zst
  coldpress-bench codecs --pid 4711 --svg codecs.svg
  coldpress-bench policy --record job.touches -- python3 job.py
  coldpress-bench policy --trace job.touches --budget 50
  coldpress-bench swap --peer zram-lz4 --pages heap,6 --svg swap.svg
  coldpress-bench programs --program sqlite,sort --peer zram-lz4
  coldpress-bench trees --tree redis --peer zram-lz4
  coldpress-bench zswap --jobs 8,24 --peer swapfile
  coldpress-bench build --source target/suites/postgresql --jobs 8,16
  coldpress-bench view --program java-50,sort
  coldpress-bench advise --program jq,ruby --runs 4
  coldpress-bench all --out bench/results

Figures:
Every figure is compared within one run, in turn: without coldpress and with it.
A goal that is missed is printed as such and is no failure. Let nothing else run
meanwhile. On a terminal, a line shows how far it has come.

Other builds:
--against compares with another build of coldpress, an old one too. Both take
turns, and both run the workloads of this one. Of each time and size it prints
the median ratio of the rounds, this build by the other. Beside it stands the
95 % interval: of 20 rounds the 6th smallest and the 6th largest ratio.
  worse    the whole interval is above 1.02
  better   it is below 1/1.02
  same     it is between
  unclear  none of these

Exit status:
  0  measured
  1  something could not be measured, or is worse than with --against
  2  the command line is wrong
An interrupt ends what runs, and puts everything back. Then the command ends by
that signal.";

/// Measure what coldpress costs on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "coldpress-bench",
    version,
    help_template = TEMPLATE,
    after_help = MORE,
    after_long_help = DETAILS,
    arg_required_else_help = true,
    disable_help_flag = true,
    disable_version_flag = true,
    subcommand_value_name = "BENCHMARK"
)]
pub(crate) struct Cli {
    /// Print a short help; `coldpress-bench help` has more
    #[arg(
        id = "help",
        short,
        long,
        global = true,
        hide_short_help = true,
        display_order = HELP_LAST,
        action = ArgAction::HelpShort
    )]
    _help: Option<bool>,

    /// Print the version
    #[arg(id = "version", short = 'V', long, hide_short_help = true, action = ArgAction::Version)]
    _version: Option<bool>,

    /// The command to measure; the default lies beside this one
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        hide_short_help = true,
        value_hint = ValueHint::FilePath
    )]
    pub(crate) coldpress: Option<PathBuf>,

    /// What to measure.
    #[command(subcommand)]
    pub(crate) what: What,
}

/// The benchmarks.
#[derive(Debug, Subcommand)]
pub(crate) enum What {
    /// The time of one fault on a compressed page
    Fault(FaultArgs),
    /// What a program pays that fits its budget
    Fit(FitArgs),
    /// What the start of a program costs, and of every process of a script
    Start(StartArgs),
    /// What a fork costs a program of which half is away
    Fork(ForkArgs),
    /// The slab beside the system's malloc
    Slab(SlabArgs),
    /// Single frames, their descriptors, and huge pages that stay whole
    Frames(FramesArgs),
    /// Pools of compressed pages: how densely and quickly they keep them
    Pools(PoolsArgs),
    /// The codecs on pages of programs: bytes, times, use of a dictionary
    Codecs(CodecsArgs),
    /// Which page to give up, on recorded touches of real programs
    ///
    /// It counts the faults of our policy, of others and of the optimum.
    Policy(PolicyArgs),
    /// Threads over the kernel's swap and over coldpress, in equal memory
    ///
    /// The kernel's swap is zram, zswap and a swap file. A program of our own touches its data.
    Swap(SwapArgs),
    /// Real programs over the same
    ///
    /// By default half of what they hold stays in place, with room for the rest compressed.
    Programs(ProgramsArgs),
    /// Trees of real processes over the same: redis, PostgreSQL, Python
    ///
    /// These are redis while it saves, PostgreSQL with queries that sort and hash, and a pool of
    /// Python's multiprocessing.
    Trees(TreesArgs),
    /// Jobs like those of a compiler under growing pressure
    ///
    /// They run over a swap file, over the kernel's zswap, and over coldpress. The last runs with
    /// compression and without.
    Zswap(ZswapArgs),
    /// Real compilers under growing pressure
    ///
    /// They run over a swap file, over the kernel's zswap and zram, and over coldpress.
    Build(BuildArgs),
    /// Programs that size themselves, by the memory that they are shown
    View(ViewArgs),
    /// Times that `coldpress advise` predicts, beside those measured
    Advise(AdviseArgs),
    /// All of them, with their defaults, kept as files
    All(AllArgs),
    /// What the others run and measure
    #[command(hide = true)]
    Workload(WorkloadArgs),
}

impl What {
    /// Returns the options that every benchmark takes; `None` for a command that is not a benchmark
    /// by itself.
    pub(super) fn common(&self) -> Option<&Common> {
        Some(match self {
            Self::Fault(args) => &args.common,
            Self::Fit(args) => &args.common,
            Self::Start(args) => &args.common,
            Self::Fork(args) => &args.common,
            Self::Slab(args) => &args.common,
            Self::Frames(args) => &args.common,
            Self::Pools(args) => &args.common,
            Self::Codecs(args) => &args.common,
            Self::Policy(args) => &args.common,
            Self::Swap(args) => &args.common,
            Self::Programs(args) => &args.common,
            Self::Trees(args) => &args.common,
            Self::Zswap(args) => &args.common,
            Self::Build(args) => &args.common,
            Self::View(args) => &args.common,
            Self::Advise(args) => &args.common,
            Self::All(_) | Self::Workload(_) => return None,
        })
    }

    /// Returns the other build to compare with, if any.
    pub(super) fn against(&self) -> Option<&Path> {
        let args = match self {
            Self::Fault(args) => &args.against,
            Self::Fit(args) => &args.against,
            Self::Start(args) => &args.against,
            Self::Fork(args) => &args.against,
            Self::Swap(args) => &args.against,
            _ => return None,
        };
        args.against.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn accepts(args: &[&str]) -> bool {
        Cli::try_parse_from(["coldpress-bench"].iter().chain(args)).is_ok()
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn numbers_that_measure_nothing_are_refused() {
        assert!(accepts(&["fault", "--memory", "16M", "--accesses", "1"]));
        assert!(!accepts(&["fault", "--memory", "15M"]));
        assert!(!accepts(&["fault", "--accesses", "0"]));
        assert!(!accepts(&["fit", "--rounds", "0"]));
        assert!(!accepts(&["pools", "--rounds", "2"]));
        assert!(accepts(&["frames", "--part", "order-0", "--part", "huge", "--trace", "a"]));
        assert!(!accepts(&["frames", "--part", "order-1"]));
        assert!(!accepts(&["slab", "--rounds", "0"]));
        assert!(accepts(&["pools", "--pool", "zsmalloc-1,zsmalloc-8", "--tables", "t1,t4"]));
        assert!(accepts(&["pools", "--trace", "a", "b", "--churn", "half", "--objects", "0"]));
        assert!(!accepts(&["pools", "--pool", "zsmalloc-3"]));
        assert!(!accepts(&["pools", "--churn", "third"]));
        assert!(!accepts(&["pools", "--tables", "t6"]));
        assert!(accepts(&["codecs", "--pages", "a", "b", "--pid", "1", "--count", "16"]));
        assert!(!accepts(&["codecs", "--count", "15"]));
        assert!(accepts(&["swap", "--peer", "zram-lz4,swapfile", "--share", "total-50,total-25"]));
        assert!(accepts(&["swap", "--threads", "1,8", "--data", "1G", "--svg", "a"]));
        assert!(!accepts(&["swap", "--peer", "zram"]));
        assert!(!accepts(&["swap", "--threads", "0"]));
        assert!(accepts(&["swap", "--writes", "0,30,100"]));
        assert!(!accepts(&["swap", "--writes", "101"]));
        assert!(accepts(&["swap", "--pages", "heap,1.8,3,6", "--share", "total-75"]));
        assert!(!accepts(&["swap", "--pages", "0.9"]));
        assert!(accepts(&["programs", "--program", "sort,java", "--share", "resident-25"]));
        assert!(!accepts(&["programs", "--program", "cat"]));
        assert!(!accepts(&["programs", "--rounds", "0"]));
        assert!(accepts(&["trees", "--tree", "redis,python", "--quick", "--peer", "zram-lz4"]));
        assert!(!accepts(&["trees", "--tree", "sort"]));
        assert!(accepts(&["zswap", "--jobs", "1,64", "--peer", "zram-lz4,swapfile"]));
        assert!(!accepts(&["zswap", "--jobs", "0"]));
        assert!(!accepts(&["zswap", "--memory", "15M"]));
        assert!(accepts(&["build", "--jobs", "2,64", "--peer", "none"]));
        assert!(!accepts(&["build", "--memory", "15M"]));
        assert!(!accepts(&["build", "--jobs", "0"]));
        assert!(accepts(&["fork", "--rounds", "1", "--out", "a"]));
        assert!(accepts(&["advise", "--program", "r,ghc", "--runs", "3"]));
        assert!(!accepts(&["advise", "--runs", "2"]));
        for what in ["fault", "fit", "start", "fork", "swap"] {
            assert!(accepts(&[what, "--against", "a", "--rounds", "20", "--json"]), "{what}");
        }
        assert!(!accepts(&["slab", "--against", "a"]));
        assert!(!accepts(&["fork", "--forks", "0"]));
        assert!(accepts(&["policy", "--trace", "a", "b", "--budget", "25,100"]));
        assert!(accepts(&["policy", "--record", "a", "--", "true", "--json"]));
        assert!(!accepts(&["policy", "--record", "a"]));
        assert!(!accepts(&["policy", "--", "true"]));
        assert!(!accepts(&["policy", "--budget", "24"]));
        assert!(!accepts(&["all"]));
        assert!(!accepts(&[]));
    }
}
