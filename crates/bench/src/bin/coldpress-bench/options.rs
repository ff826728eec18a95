//! The command lines of `coldpress-bench` and of the hidden workloads it starts.

use std::path::{Path, PathBuf};

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use coldpress_bench::kernel::Peer;
use coldpress_bench::pools::Kind;
use coldpress_bench::pools::density::Churn;
use coldpress_cli::size::{parse_size, show};
use coldpress_sys::Bytes;

use super::against::AgainstArgs;
use super::build::options::{BuildArgs, SOURCE};
use super::fork::options::{ForkArgs, ForksArgs};
use super::policy::PolicyArgs;
use super::programs::options::ProgramsArgs;
use super::swap::options::{SwapArgs, TouchArgs};
use super::trees::options::TreesArgs;
use super::view::options::ViewArgs;
use super::zswap::options::{JobArgs, JobsArgs, ZswapArgs};
use coldpress_runtime::ledger::BUDGET_FLOOR;

/// The name of the part about descriptors, and of its workload.
pub(super) const DESCRIPTORS: &str = "descriptors";

const EXAMPLES: &str = "\
Examples:
  coldpress-bench fault
  coldpress-bench fit --rounds 5 --json
  coldpress-bench fault --against ./coldpress-before --rounds 40
  coldpress-bench frames --part huge --trace job.frames
  coldpress-bench pools --pool zsmalloc-8,zsmalloc-16 --tables t2,t4 --trace job.lz4.u16.zst
  coldpress-bench codecs --pid 4711 --svg codecs.svg
  coldpress-bench policy --record job.touches -- python3 job.py
  coldpress-bench policy --trace job.touches --budget 50
  coldpress-bench swap --peer zram-lz4 --share total-50 --svg swap.svg
  coldpress-bench programs --program sqlite,sort --peer zram-lz4
  coldpress-bench trees --tree redis --peer zram-lz4
  coldpress-bench zswap --jobs 8,24 --peer swapfile
  coldpress-bench build --source target/suites/postgresql --jobs 8,16
  coldpress-bench view --program java-50,sort
  coldpress-bench all --out bench/results

Every figure is compared within one run, in turn: without coldpress and with it, or with others. A
goal that is missed is printed as such and is no failure. Let nothing else run meanwhile.

--against compares with another build of coldpress, an old one too, which takes turns with this
one; both run the workloads of this one. Of each figure, which are times and memory, it prints the
median ratio of the rounds, this build by the other, and its 95 % interval (of order statistics:
of 20 rounds the 6th smallest and the 6th largest ratio). \"worse\": the whole interval is above
1.02; \"better\": below 1/1.02; \"same\": between; \"unclear\": none of these.

Exit status:
  0  measured
  1  something could not be measured, or is worse than with --against
  2  wrong command line";

/// Measure what coldpress costs on this machine.
#[derive(Debug, Parser)]
#[command(name = "coldpress-bench", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(crate) struct Cli {
    /// The command to measure. Default: the one beside this one
    #[arg(long, global = true, value_name = "FILE")]
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
    /// What the start of a program costs, and that of every process of a script
    Start(StartArgs),
    /// What a fork costs a program of which half is away
    Fork(ForkArgs),
    /// The slab beside the system's malloc
    Slab(SlabArgs),
    /// Single frames, the price of a frame's descriptor, and huge pages that stay whole
    Frames(FramesArgs),
    /// The pools of compressed pages: how densely and how quickly they keep them
    Pools(PoolsArgs),
    /// The codecs on pages of programs: bytes, times, and what a dictionary brings
    Codecs(CodecsArgs),
    /// Which page to give up: faults of our policy, of others and of the optimum, on recorded
    /// touches of real programs
    Policy(PolicyArgs),
    /// Programs over the kernel's zram, zswap and swap file, and over coldpress, with the same
    /// memory in all
    Swap(SwapArgs),
    /// Real programs over the same, with half of what they hold in place and room for the rest
    /// compressed
    Programs(ProgramsArgs),
    /// Trees of real processes over the same: redis while it saves, PostgreSQL with queries that
    /// sort and hash, and a pool of Python's multiprocessing
    Trees(TreesArgs),
    /// Jobs like those of a compiler under growing pressure: over a swap file, over the kernel's
    /// zswap, and over coldpress, with compression and without
    Zswap(ZswapArgs),
    /// Real compilers under growing pressure: over a swap file, over the kernel's zswap and zram,
    /// and over coldpress
    Build(BuildArgs),
    /// Programs that size themselves, by what they are shown as the machine's memory
    View(ViewArgs),
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

/// What every benchmark takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Little work, to see that everything runs; its times say nothing
    #[arg(long)]
    pub(crate) quick: bool,

    /// Directory to keep the figures in, too; each processor gets a folder, each date and commit
    /// two files
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,

    /// Print one JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// How often a benchmark whose sides take turns has them do so.
#[derive(Clone, Debug, Args)]
pub(crate) struct Rounds {
    /// Rounds, in each of which every side has a turn. Default: as many as the figures need, 20
    /// with --against, 1 with --quick
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) rounds: Option<u32>,
}

impl Rounds {
    /// Returns the number of rounds that the user asks for, else `usual`, or one with --quick.
    pub(crate) fn or(&self, usual: u32, common: &Common) -> u32 {
        self.rounds.unwrap_or(if common.quick { 1 } else { usual })
    }
}

/// The kernel's swap that coldpress is compared with, where files go, and how often.
#[derive(Clone, Debug, Args)]
pub(crate) struct ContestArgs {
    /// The kernel's swap to compare with: zram-lz4, zram-lzo-rle, zswap-lzo, swapfile, or none.
    /// Default: all that the benchmark is about. It takes root, a kernel with zram or zswap, and a
    /// machine that does not swap
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = parse_peer)]
    pub(crate) peer: Vec<Choice>,

    /// Directory on a disk, for swap files, for the file of coldpress, and for what programs read
    /// and write
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    pub(crate) directory: PathBuf,

    #[command(flatten)]
    pub(crate) rounds: Rounds,
}

/// A value of `--peer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// No peer.
    None,
    /// This peer.
    Peer(Peer),
}

impl ContestArgs {
    /// Returns the peers that the user names, else the `usual` ones.
    pub(crate) fn peers(&self, usual: &[Peer]) -> Vec<Peer> {
        if self.peer.is_empty() {
            return usual.to_vec();
        }
        let named = |choice: &Choice| match choice {
            Choice::None => None,
            Choice::Peer(peer) => Some(*peer),
        };
        self.peer.iter().filter_map(named).collect()
    }
}

/// Reads the name of a peer. The error lists all names.
fn parse_peer(name: &str) -> Result<Choice, String> {
    if name == "none" {
        return Ok(Choice::None);
    }
    let peer = Peer::ALL.into_iter().find(|peer| peer.name() == name).map(Choice::Peer);
    peer.ok_or_else(|| format!("it is none, or one of {}", Peer::ALL.map(Peer::name).join(", ")))
}

/// The options of `coldpress-bench fault`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FaultArgs {
    /// Data of the workload, compressible 2.5 to 1
    #[arg(long, value_name = "SIZE", default_value = "256M", value_parser = parse_size)]
    pub(crate) data: Bytes,

    /// Its budget; large enough that all data stay in memory, for there is no disk
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = parse_budget)]
    pub(crate) memory: Bytes,

    /// Random accesses in a round
    #[arg(long, value_name = "N", default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) accesses: u32,

    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The options of `coldpress-bench fit`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FitArgs {
    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    /// The budget, far above the 150 MB that a job takes
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_budget)]
    pub(crate) memory: Bytes,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The options of `coldpress-bench start`.
#[derive(Clone, Debug, Args)]
pub(crate) struct StartArgs {
    #[command(flatten)]
    pub(crate) against: AgainstArgs,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// The options of `coldpress-bench slab`.
#[derive(Clone, Debug, Args)]
pub(crate) struct SlabArgs {
    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl SlabArgs {
    /// Returns the number of rounds.
    pub(super) fn turns(&self) -> u32 {
        self.rounds.or(15, &self.common)
    }
}

/// The options of `coldpress-bench frames`.
#[derive(Clone, Debug, Args)]
pub(crate) struct FramesArgs {
    /// What to measure; several are possible, and all is the default
    #[arg(long, value_name = "PART", value_enum)]
    pub(crate) part: Vec<Part>,

    /// A recorded trace of frame allocations, several are possible. Seven programs run, so they
    /// are repeated. Default: traces made by a model
    #[arg(long, value_name = "FILE")]
    pub(crate) trace: Vec<PathBuf>,

    #[command(flatten)]
    pub(crate) rounds: Rounds,

    #[command(flatten)]
    pub(crate) common: Common,
}

impl FramesArgs {
    /// Returns the number of rounds of each measurement of time.
    pub(super) fn turns(&self) -> u32 {
        self.rounds.or(9, &self.common)
    }
}

/// A part of `coldpress-bench frames`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Single frames, allocated and freed
    #[value(name = "order-0")]
    Order0,
    /// Descriptors of 64, 56, 32 and 8 bytes
    Descriptors,
    /// Huge pages with one zone and with two
    Huge,
}

impl Part {
    /// All parts.
    pub(super) const ALL: [Self; 3] = [Self::Order0, Self::Descriptors, Self::Huge];

    /// Returns the name of the part on the command line.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Order0 => "order-0",
            Self::Descriptors => DESCRIPTORS,
            Self::Huge => "huge",
        }
    }
}

/// The options of `coldpress-bench pools`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PoolsArgs {
    /// The pools; all is the default
    #[arg(long, value_name = "NAME", value_delimiter = ',', value_parser = pool_parser())]
    pub(crate) pool: Vec<Kind>,

    /// The tables; all is the default
    #[arg(long, value_name = "TABLE", value_delimiter = ',', value_enum)]
    pub(crate) tables: Vec<PoolTable>,

    /// Traces of compressed sizes, CORPUS.CODEC.u16 or CORPUS.CODEC.u16.zst, or folders of them:
    /// a 16-bit number a page, little-endian; 0 for zeros, 1 for one word repeated, 65535 to leave
    /// the page out. Default: models of a heap and of English text
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

/// The options of `coldpress-bench codecs`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CodecsArgs {
    /// Pages to measure: a file of whole pages of 4 KiB, which zstd may have compressed (.zst);
    /// several are possible. Default: pages of python3, perl and node, as far as they are
    /// installed, of a program of our own, and text by a model
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub(crate) pages: Vec<PathBuf>,

    /// A running process whose pages to measure; several are possible
    #[arg(long, value_name = "PID", num_args = 1..)]
    pub(crate) pid: Vec<u32>,

    /// Pages of each program that are measured, and as many for training
    #[arg(long, value_name = "N", default_value_t = 2048,
        value_parser = clap::value_parser!(u32).range(16..=1_000_000))]
    pub(crate) count: u32,

    /// Draw bytes and load times of all codecs into FILE
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,

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

/// The options of `coldpress-bench all`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AllArgs {
    /// Directory for the figures; each processor gets a folder, each date and commit two files
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,

    /// The source of PostgreSQL 15 for `build`, which is left out without it
    #[arg(long, value_name = "DIR", default_value = SOURCE)]
    pub(crate) source: PathBuf,
}

/// The options of `coldpress-bench workload`.
#[derive(Debug, Args)]
pub(crate) struct WorkloadArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) workload: Workload,
}

/// What the benchmarks run. Each prints one line of JSON.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Workload {
    /// Fills memory, then touches pages at random
    Fault {
        /// Bytes to fill
        #[arg(long, value_parser = parse_size)]
        data: Bytes,
        /// Pages to touch
        #[arg(long)]
        accesses: u32,
        /// Stay on one processor
        #[arg(long)]
        pinned: bool,
    },
    /// Touches fresh memory page by page
    FirstTouch {
        /// Bytes to touch
        #[arg(long, value_parser = parse_size)]
        data: Bytes,
    },
    /// Fills memory with pages of a program, then touches them in many orders
    Touch(TouchArgs),
    /// Runs jobs like those of a compiler, so many at a time
    Jobs(JobsArgs),
    /// Runs one of them
    Job(JobArgs),
    /// Fills memory, then forks
    Forks(ForksArgs),
    /// Allocates and frees for about a second
    Allocate,
    /// Runs a shell script that starts many processes
    Script,
    /// Builds maps and records, says that it is ready, and waits for the end of its input
    Heap,
    /// Runs a slab allocator's model with one layout of descriptors
    Descriptors {
        /// Bytes of a descriptor
        #[arg(long)]
        layout: usize,
        /// The plan
        #[arg(long)]
        plan: String,
        /// How often; 0 makes everything ready and ends
        #[arg(long)]
        passes: u32,
    },
}

/// Returns the options as they are when none is given.
pub(super) fn defaults<T: Args>() -> T {
    #[derive(Parser)]
    struct Alone<T: Args> {
        #[command(flatten)]
        args: T,
    }
    Alone::parse_from(["bench"]).args
}

/// Reads a size that `coldpress run --memory` takes.
pub(super) fn parse_budget(text: &str) -> Result<Bytes, String> {
    let size = parse_size(text)?;
    if size < BUDGET_FLOOR {
        return Err(format!("a budget is at least {}", show(BUDGET_FLOOR)));
    }
    Ok(size)
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

    #[test]
    fn parts_and_peers_are_named_as_on_the_command_line() {
        for peer in Peer::ALL {
            assert_eq!(parse_peer(&peer.name()), Ok(Choice::Peer(peer)));
        }
        assert!(parse_peer("zram").is_err_and(|error| error.contains("zram-lz4")));
        for part in Part::ALL {
            assert_eq!(Part::from_str(part.name(), false), Ok(part));
        }
        for table in PoolTable::ALL {
            assert_eq!(PoolTable::from_str(table.name(), false), Ok(table));
        }
    }

    #[test]
    fn the_data_of_the_fault_bench_need_the_pool_and_fit_it() {
        let args: FaultArgs = defaults();
        assert!(args.data > args.memory);
        // A full pool holds 0.8 times 2.5 of the budget; the rest, less limbo, is resident.
        let room = args.memory.0 as f64 * (0.8 * 2.5 + 0.2 - 1.0 / 16.0);
        assert!((args.data.0 as f64) < room);
    }
}
