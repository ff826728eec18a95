//! The command line. Every option of `run` can also be given as `COLDPRESS_<OPTION>`.

mod advise;
mod attach;
mod ctl;
pub(crate) mod help;
mod report;
mod top;
mod why;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::builder::{FalseyValueParser, OsStringValueParser, Resettable, TypedValueParser};
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{
    Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand,
    ValueEnum, ValueHint,
};
use coldpress_codec::CodecChoice;
use coldpress_common::size::parse_size;
use coldpress_mem::pools::PoolKind;
use coldpress_runtime::knobs::Knob;
use coldpress_sys::Bytes;

use crate::budget::Ask;
use crate::export::Target;
use crate::knobs::{self, Setting, parse_value};
use crate::view;
pub(crate) use advise::AdviseArgs;
pub(crate) use attach::{AttachArgs, DetachArgs, as_run};
pub(crate) use ctl::{CtlArgs, CtlVerb};
pub(crate) use report::ReportArgs;
pub(crate) use top::TopArgs;
pub(crate) use why::WhyArgs;

/// The place of `--help` among the options: behind all others.
const HELP_LAST: usize = 1000;

/// Run programs in less memory than they ask for.
#[derive(Debug, Parser)]
#[command(
    name = "coldpress",
    version,
    after_help = help::MORE,
    after_long_help = help::DETAILS,
    arg_required_else_help = true,
    disable_help_flag = true,
    subcommand_value_name = "COMMAND"
)]
pub(crate) struct Cli {
    /// Print a short help; `coldpress help` has more
    #[arg(
        id = "help",
        short,
        long,
        global = true,
        display_order = HELP_LAST,
        action = ArgAction::HelpShort
    )]
    _help: Option<bool>,

    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a program within a memory budget
    Run(RunArgs),
    /// Check whether programs can be run here, and say what mends it
    Doctor(DoctorArgs),
    /// See and turn the knobs of a run while it goes on
    Ctl(Deferred<CtlArgs>),
    /// Watch runs and their processes, and turn their knobs
    Top(Deferred<TopArgs>),
    /// Say why memory of a process stays in place
    Why(Deferred<WhyArgs>),
    /// Make a report of a run to read, from what --stats has written
    Report(Deferred<ReportArgs>),
    /// Find the smallest budget in which a program hardly takes longer
    Advise(Deferred<AdviseArgs>),
    /// Hold programs that run already within a memory budget
    Attach(Deferred<AttachArgs>),
    /// Leave a program that was attached to
    Detach(DetachArgs),
    /// What is run before a program, and by `doctor`, to see whether it would be managed
    #[command(hide = true)]
    Trial(TrialArgs),
    /// What begins in the place of a program that is to find its own number in variables
    #[command(hide = true)]
    InPlace(InPlaceArgs),
    /// What puts the library into a program that runs, or takes it out
    #[command(hide = true)]
    Inject(InjectArgs),
}

/// Options that are built only when needed, because building them takes time at each start.
#[derive(Debug)]
pub(crate) struct Deferred<T>(pub(crate) T);

impl<T: Args> Args for Deferred<T> {
    fn augment_args(command: clap::Command) -> clap::Command {
        // The doc comment on the options themselves is for readers of the code.
        command.defer(|command| {
            let about = command.get_about().cloned().unwrap_or_default();
            let long = command.get_long_about().cloned().unwrap_or_else(|| about.clone());
            T::augment_args(command).about(about).long_about(long)
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        command.defer(T::augment_args_for_update)
    }
}

impl<T: FromArgMatches> FromArgMatches for Deferred<T> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        T::from_arg_matches(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// The options of `coldpress run`.
#[derive(Debug, Args)]
#[command(
    after_help = help::RUN_MORE,
    after_long_help = help::RUN_DETAILS,
    override_usage = "coldpress run [OPTIONS] [--] PROGRAM [ARGS]..."
)]
pub(crate) struct RunArgs {
    /// Memory for PROGRAM and its children
    ///
    /// It is at least 16M. With auto it is 90% of the cgroup's limit, also when that changes.
    /// Without such a limit, auto is half of the machine's memory. It gives up to half of that back
    /// while others wait for memory.
    #[arg(
        short,
        long,
        value_name = "SIZE",
        env = "COLDPRESS_MEMORY",
        default_value = "auto",
        value_parser = Ask::parse
    )]
    pub(crate) memory: Ask,

    /// Take memory that is not touched for long
    ///
    /// It is taken although the budget would have room for it. The program waits for such memory no
    /// more than PERCENT of the time, 0.01 to 50. Without a number this is 0.5.
    #[arg(
        long,
        value_name = "PERCENT",
        env = "COLDPRESS_IDLE",
        num_args = 0..=1,
        require_equals = true,
        default_value = "off",
        default_missing_value = "on",
        hide_default_value = true,
        value_parser = |text: &str| parse_value(Knob::Idle, text)
    )]
    pub(crate) idle: u64,

    /// How cold pages are compressed
    ///
    /// By wk, lz4, lzo, zstd or zstd:LEVEL, with LEVEL -7 to 19. Plain zstd is zstd:1. With auto,
    /// by wk, and by zstd where wk makes too little of them.
    #[arg(long, value_name = "CODEC", env = "COLDPRESS_CODEC", default_value = "wk")]
    pub(crate) codec: CodecChoice,

    /// Where compressed pages are kept: zsmalloc, xvmalloc, xcfmalloc or segment
    #[arg(
        long,
        value_name = "POOL",
        env = "COLDPRESS_POOL",
        default_value = "zsmalloc",
        hide_short_help = true
    )]
    pub(crate) pool: PoolKind,

    /// Directory for the file of the coldest pages, or none
    ///
    /// The file is encrypted and has no name. With none, all pages stay in memory. The default is
    /// /var/tmp.
    #[arg(
        long,
        value_name = "DIR",
        env = "COLDPRESS_DISK",
        value_parser = disk_parser(),
        value_hint = ValueHint::DirPath
    )]
    pub(crate) disk: Option<DiskChoice>,

    /// The most that this file may grow to
    ///
    /// It holds for each process. The default is the free space, less 5%.
    #[arg(
        long,
        value_name = "SIZE",
        env = "COLDPRESS_DISK_SIZE",
        hide_short_help = true,
        value_parser = parse_size
    )]
    pub(crate) disk_size: Option<Bytes>,

    /// The most that compressed pages may take of the budget, in percent
    ///
    /// It is a share of what other processes leave of the budget, 1 to 90.
    #[arg(
        long,
        value_name = "N",
        env = "COLDPRESS_MAX_POOL_PERCENT",
        default_value = "50",
        hide_short_help = true,
        value_parser = |text: &str| parse_value(Knob::MaxPoolPercent, text)
    )]
    pub(crate) max_pool_percent: u64,

    /// Turn a knob; `coldpress help ctl` lists them
    ///
    /// It may be given again, and wins over the options of single knobs. As a variable it holds
    /// several: COLDPRESS_SET=NAME=VALUE,NAME=VALUE.
    #[arg(
        long,
        value_name = "NAME=VALUE",
        env = "COLDPRESS_SET",
        value_delimiter = ',',
        value_parser = knobs::parse
    )]
    pub(crate) set: Vec<Setting>,

    /// What is shown as the machine's memory
    ///
    /// Many programs size themselves by it. With off they see what there is. SIZE is shown as it
    /// is, and 2x is two budgets. With auto it depends on who asks: 8 budgets for V8, 6 for a JVM.
    /// What goes to disk by itself is shown one budget, and all others two.
    #[arg(
        long,
        value_name = "SIZE",
        env = "COLDPRESS_SHOW_MEMORY",
        default_value = "off",
        value_parser = view::Ask::parse
    )]
    pub(crate) show_memory: view::Ask,

    /// Write at the end what happened, as JSON
    #[arg(
        long,
        value_name = "FILE",
        env = "COLDPRESS_STATS",
        value_hint = ValueHint::FilePath
    )]
    pub(crate) stats: Option<PathBuf>,

    /// Write at the end a report to read, as one page of HTML
    ///
    /// It shows memory and waits over time, and says what another budget would have cost.
    /// `coldpress report` makes the same page of what --stats has written.
    #[arg(
        long,
        value_name = "FILE",
        env = "COLDPRESS_REPORT",
        value_hint = ValueHint::FilePath
    )]
    pub(crate) report: Option<PathBuf>,

    /// Export metrics for monitoring systems: FILE, unix:PATH or HOST:PORT
    ///
    /// FILE is written each second, for the textfile collector of node_exporter. A socket answers
    /// HTTP, in OpenMetrics for who asks for it. Without HOST, as :9100, it is 127.0.0.1.
    #[arg(
        long,
        value_name = "TARGET",
        env = "COLDPRESS_METRICS",
        hide_short_help = true,
        value_parser = OsStringValueParser::new().map(Target::parse),
        value_hint = ValueHint::FilePath
    )]
    pub(crate) metrics: Option<Target>,

    /// Record what memory coldpress itself takes and frees
    ///
    /// `coldpress-bench frames --trace` reads it. The first process managed writes FILE, others
    /// write FILE.2, FILE.3 and so on.
    #[arg(
        long,
        value_name = "FILE",
        env = "COLDPRESS_RECORD",
        hide_short_help = true,
        value_hint = ValueHint::FilePath
    )]
    pub(crate) record: Option<PathBuf>,

    /// Tell systemd that the service is ready once PROGRAM has begun
    ///
    /// This is for units of Type=notify whose program does not tell that itself. The unit needs
    /// NotifyAccess=all. How the run stands is told either way, for `systemctl status`.
    #[arg(
        long,
        env = "COLDPRESS_READY",
        hide_short_help = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) ready: bool,

    /// Stay until the last process of the run has ended
    ///
    /// Signals are passed on to those left. This is for servers that fork away.
    #[arg(short, long, env = "COLDPRESS_WAIT", value_parser = FalseyValueParser::new())]
    pub(crate) wait: bool,

    /// Print nothing of our own but errors
    #[arg(short, long, env = "COLDPRESS_QUIET", value_parser = FalseyValueParser::new())]
    pub(crate) quiet: bool,

    /// Say what is done and found; --quiet wins over it
    #[arg(short, long, env = "COLDPRESS_VERBOSE", value_parser = FalseyValueParser::new())]
    pub(crate) verbose: bool,

    /// Run a program also when it cannot be managed
    ///
    /// Such a program is setuid or of 32 bits, or has no access to userfaultfd, for example. It
    /// runs without a budget, with one warning.
    #[arg(long, env = "COLDPRESS_ALLOW_UNMANAGED", value_parser = FalseyValueParser::new())]
    pub(crate) allow_unmanaged: bool,

    /// Keep what root may do to root's programs
    ///
    /// Programs of other users in the run stay unmanaged.
    #[arg(
        long,
        env = "COLDPRESS_NO_LEND",
        hide_short_help = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) no_lend: bool,

    /// Manage a program also when its forks are not seen
    ///
    /// Such a program makes its system calls in a way that coldpress does not know. When it forks,
    /// the child ends by SIGSEGV where it touches memory that was away.
    #[arg(
        long,
        env = "COLDPRESS_UNSAFE_FORK",
        hide_short_help = true,
        value_parser = FalseyValueParser::new()
    )]
    pub(crate) unsafe_fork: bool,

    /// Run nothing that is not managed
    ///
    /// A trial comes first, under the rights, filters and limits that hold here. It takes a page
    /// away and brings it back. Later, the run ends when a process that holds 4 MiB or more is not
    /// managed. In both cases the exit status is 125.
    #[arg(long, env = "COLDPRESS_REQUIRE_MANAGED", value_parser = FalseyValueParser::new())]
    pub(crate) require_managed: bool,

    /// The program and its arguments; put "--" in front to be safe
    #[arg(
        required = true,
        trailing_var_arg = true,
        value_name = "PROGRAM",
        hide_short_help = true,
        value_hint = ValueHint::CommandWithArguments
    )]
    pub(crate) command: Vec<OsString>,
}

/// Reads this process's command line, and the variables that stand for options.
pub(crate) fn parse() -> Result<Cli, clap::Error> {
    let matches = command().try_get_matches()?;
    Cli::from_arg_matches(&matches)
}

/// Returns the definition of the command line. An empty variable counts as unset. No help names the
/// variable of an option, as the rule for all of them stands at its end.
pub(crate) fn command() -> clap::Command {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let without = |option: Arg| match option.get_env() {
        Some(name) if is_empty(name) => option.env(Resettable::Reset),
        _ => option.hide_env(true),
    };
    ["run", "doctor"].into_iter().fold(Cli::command(), |command, name| {
        command.mut_subcommand(name, |command| command.mut_args(without))
    })
}

/// Returns the variable that holds the value `error` is about, unless the command line has that
/// value.
pub(crate) fn variable_of(error: &clap::Error) -> Option<String> {
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    let option = option.split([' ', '=', '[']).next()?;
    let mut words = std::env::args().skip(1).take_while(|word| word != "--");
    if words.any(|word| word.starts_with(option)) {
        return None;
    }
    let command = command();
    let mut options = command.find_subcommand("run")?.get_arguments();
    let found = options.find(|it| it.get_long() == option.strip_prefix("--"))?;
    let name = found.get_env()?;
    std::env::var_os(name).map(|_| name.to_string_lossy().into_owned())
}

/// The options of `run` that apply to a whole run, by the names of their fields.
const OF_A_RUN: [&str; 18] = [
    "memory",
    "idle",
    "codec",
    "pool",
    "disk",
    "disk_size",
    "max_pool_percent",
    "set",
    "show_memory",
    "stats",
    "report",
    "metrics",
    "record",
    "ready",
    "wait",
    "no_lend",
    "unsafe_fork",
    "require_managed",
];

/// Returns the options on this process's command line that apply to a whole run, as a user writes
/// them. Options given as variables apply to more than this command, and are left out.
pub(crate) fn given_for_a_run() -> Vec<String> {
    given_in(std::env::args_os())
}

fn given_in(words: impl IntoIterator<Item = OsString>) -> Vec<String> {
    let Ok(matches) = command().try_get_matches_from(words) else { return Vec::new() };
    let Some(run) = matches.subcommand_matches("run") else { return Vec::new() };
    let is_given = |id: &str| run.value_source(id) == Some(ValueSource::CommandLine);
    let given = OF_A_RUN.into_iter().filter(|id| is_given(id));
    given.map(|id| format!("--{}", id.replace('_', "-"))).collect()
}

/// Reads the command line of a run. A value that `run` does not take ends this process with the
/// message of `run`.
fn of_run(words: Vec<OsString>) -> RunArgs {
    let matches = command().get_matches_from(words);
    match Cli::from_arg_matches(&matches).map(|cli| cli.command) {
        Ok(Command::Run(args)) => args,
        _ => unreachable!("the words are those of a run"),
    }
}

/// The words of `coldpress inject`.
#[derive(Debug, Args)]
pub(crate) struct InjectArgs {
    /// What to do to which process, the library's names, and variables
    #[arg(allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

/// The options of `coldpress doctor`.
#[derive(Debug, Args)]
#[command(after_long_help = help::DOCTOR_DETAILS)]
pub(crate) struct DoctorArgs {
    /// Print one JSON document on standard output
    #[arg(long)]
    pub(crate) json: bool,

    /// Directory to check for the coldest pages, as of `run`
    #[arg(
        long,
        value_name = "DIR",
        env = "COLDPRESS_DISK",
        value_parser = disk_parser(),
        value_hint = ValueHint::DirPath
    )]
    pub(crate) disk: Option<DiskChoice>,
}

/// The arguments of `coldpress trial`.
#[derive(Debug, Args)]
pub(crate) struct TrialArgs {
    #[arg(value_enum)]
    pub(crate) part: TrialPart,
}

/// A part of a trial that is a program of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum TrialPart {
    /// Hold memory until standard input ends.
    Memory,
    /// Make each call once.
    Calls,
}

/// The arguments of `coldpress in-place`.
#[derive(Debug, Args)]
pub(crate) struct InPlaceArgs {
    #[arg(value_delimiter = ',')]
    pub(crate) variables: Vec<String>,
    /// The path of the program, the name that it is called by, and its arguments.
    #[arg(last = true, required = true)]
    pub(crate) words: Vec<OsString>,
}

/// The destination of the coldest pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DiskChoice {
    /// Nowhere: memory only.
    None,
    /// To an unnamed file in this directory.
    Directory(PathBuf),
}

/// Reads `none` or a directory; any bytes can be a path.
fn disk_parser() -> impl TypedValueParser<Value = DiskChoice> {
    OsStringValueParser::new().map(|text| match text.to_str() {
        Some("none") => DiskChoice::None,
        _ => DiskChoice::Directory(PathBuf::from(text)),
    })
}

#[cfg(test)]
mod tests {
    use coldpress_codec::CodecId;

    use super::*;
    use coldpress_common::size::Size;

    fn run_args(args: &[&str]) -> RunArgs {
        let all = ["coldpress", "run"].iter().chain(args);
        match Cli::try_parse_from(all).unwrap().command {
            Command::Run(args) => args,
            _ => panic!("not a run"),
        }
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_that_are_made_late_come_with_their_help() {
        let error = command().try_get_matches_from(["coldpress", "ctl", "--help"]).unwrap_err();
        let help = error.to_string();
        assert!(help.starts_with("See and turn the knobs"), "{help}");
        assert!(help.contains("\nUsage: coldpress"), "{help}");
    }

    #[test]
    fn the_programs_own_options_are_left_alone() {
        for args in [
            &["--memory", "64M", "ls", "-q", "--memory", "1", "--", "--help"][..],
            &["--memory", "64M", "--", "ls", "-q", "--memory", "1", "--", "--help"],
        ] {
            let parsed = run_args(args);
            assert_eq!(parsed.command, ["ls", "-q", "--memory", "1", "--", "--help"]);
            assert_eq!(parsed.memory, Ask::Size(Size::Bytes(Bytes::mib(64))));
            assert!(!parsed.quiet);
        }
        assert_eq!(run_args(&["--", "-odd"]).command, ["-odd"]);
    }

    #[test]
    fn an_unknown_option_is_not_taken_for_the_program() {
        assert!(Cli::try_parse_from(["coldpress", "run", "--memroy", "64M", "ls"]).is_err());
        assert!(Cli::try_parse_from(["coldpress", "run", "-x", "ls"]).is_err());
        assert!(Cli::try_parse_from(["coldpress", "run"]).is_err());
        assert!(Cli::try_parse_from(["coldpress", "run", "--"]).is_err());
    }

    #[test]
    fn options_for_a_whole_run_are_known_when_they_are_given() {
        let given = |words: &[&str]| {
            let all = ["coldpress", "run"].iter().chain(words);
            given_in(all.map(OsString::from))
        };
        assert_eq!(given(&["ls", "--memory", "1G"]), [""; 0]);
        let words = ["-m", "64M", "-v", "--disk-size=1G", "--set", "writeback=off", "--", "ls"];
        assert_eq!(given(&words), ["--memory", "--disk-size", "--set"]);
        let command = Cli::command();
        let run = command.find_subcommand("run").unwrap();
        for id in OF_A_RUN {
            assert!(run.get_arguments().any(|argument| argument.get_id() == id), "{id}");
        }
    }

    #[test]
    fn values_are_read() {
        let args = run_args(&["--codec", "zstd:3", "--disk", "none", "--disk-size", "1G", "ls"]);
        assert_eq!(args.codec, CodecChoice::Always(CodecId::Zstd { level: 3 }));
        assert_eq!(args.disk, Some(DiskChoice::None));
        assert_eq!(args.disk_size, Some(Bytes::mib(1024)));
        assert_eq!(args.memory, Ask::Auto);
        let args = run_args(&["--disk", "./none", "--max-pool-percent", "90", "ls"]);
        assert_eq!(args.disk, Some(DiskChoice::Directory("./none".into())));
        assert_eq!((args.max_pool_percent, args.idle), (90, 0));
        assert_eq!(run_args(&["--idle", "ls"]).idle, 50);
        assert_eq!(run_args(&["--idle=2%", "--", "ls"]).idle, 200);
        assert!(Cli::try_parse_from(["coldpress", "run", "--idle=60", "ls"]).is_err());
        let args = run_args(&["--set", "writeback=off,same_filled=0", "--set=enabled=on", "ls"]);
        assert_eq!(args.set, [(Knob::Writeback, 0), (Knob::SameFilled, 0), (Knob::Enabled, 1)]);
        for percent in ["0", "91", "x"] {
            let text = format!("--max-pool-percent={percent}");
            assert!(Cli::try_parse_from(["coldpress", "run", &text, "ls"]).is_err(), "{percent}");
        }
    }
}
