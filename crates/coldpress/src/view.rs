//! The memory that programs are shown as the machine's. Many programs size themselves by it: a
//! heap, a cache, a buffer to sort in. The preload library has the other half (`preload/view.rs` of
//! the runtime): a process that opens a file about memory gets one of the files that are kept here.
//!
//! The total stays the same for the whole run, because programs ask once. The free part follows
//! what the run holds, in memory and away, but is never less than a sixteenth: a program that goes
//! by less would do nothing but collect garbage, or never start at all. The files are of fixed
//! width, so a process that reads one while it is written over gets lines of before and after.

use std::fmt::Write as _;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::{env, io};

use coldpress_common::cgroup;
use coldpress_common::failure::{Failure, Result};
use coldpress_common::size::{parse_size, show};
use coldpress_runtime::ledger::BUDGET_FLOOR;
use coldpress_runtime::wire;
use coldpress_sys::{Bytes, PageCount};
use serde_json::Value;

/// The numbers of budgets to show, by the program that asks: one that spills by itself, most
/// programs, a JVM, and V8.
const TIMES: [usize; 4] = [1, 2, 6, 8];
/// The variable by which Go's runtime learns how much it may hold (package runtime): it collects
/// garbage all the time rather than hold more, and does not fail.
const GO_VARIABLE: &str = "GOMEMLIMIT";
/// The least free part of the total that is shown: a sixteenth.
const FREE_PART: usize = 16;
/// The number of steps in which the files follow what is held.
const STEPS: usize = 512;
/// The file of the first node, and that of a second one: where the second exists, no file is kept
/// for nodes.
const NODES: [&str; 2] =
    ["/sys/devices/system/node/node0/meminfo", "/sys/devices/system/node/node1/meminfo"];
/// The names in meminfo of anonymous memory. All that is held is shown as such.
const HELD: [&str; 4] = ["Active", "Active(anon)", "AnonPages", "Committed_AS"];
/// The names in meminfo that are shown as zero.
const NONE: [&str; 29] = [
    "Buffers",
    "Cached",
    "SwapCached",
    "Inactive",
    "Inactive(anon)",
    "Active(file)",
    "Inactive(file)",
    "SwapTotal",
    "SwapFree",
    "Zswap",
    "Zswapped",
    "Dirty",
    "Writeback",
    "KReclaimable",
    "Slab",
    "SReclaimable",
    "SUnreclaim",
    "Shmem",
    "Mapped",
    "AnonHugePages",
    "ShmemHugePages",
    "ShmemPmdMapped",
    "FileHugePages",
    "FilePmdMapped",
    "FilePages",
    "Unevictable",
    "Mlocked",
    "PageTables",
    "KernelStack",
];

/// The memory to show, as a user asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The real memory.
    #[default]
    Off,
    /// The number of budgets that suits the program that asks.
    Auto,
    /// This size.
    Size(Bytes),
    /// This number of thousandths of the budget.
    Thousandths(usize),
}

impl Ask {
    /// Reads `off`, `auto`, a size, or a number of budgets, as `1x` or `1.5x`.
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
        match text {
            "off" => return Ok(Self::Off),
            "auto" => return Ok(Self::Auto),
            _ => {}
        }
        let Some(number) = text.strip_suffix(['x', 'X']) else {
            let bytes = parse_size(text)?;
            let is_enough = bytes >= BUDGET_FLOOR;
            let least = || format!("{text} is less than the {} that is shown", show(BUDGET_FLOOR));
            return is_enough.then_some(Self::Size(bytes)).ok_or_else(least);
        };
        let times = number.parse::<f64>().ok().filter(|times| (1.0..=1000.0).contains(times));
        let times = times.ok_or_else(|| {
            format!("\"{text}\" is not a number of budgets: write 1x to 1000x, as 2x or 1.5x")
        })?;
        Ok(Self::Thousandths((times * 1000.0).round() as usize))
    }

    /// Returns the text form, which can be parsed again.
    pub(crate) fn text(self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::Auto => "auto".to_owned(),
            Self::Size(bytes) => bytes.0.to_string(),
            Self::Thousandths(times) => format!("{}x", times as f64 / 1000.0),
        }
    }

    /// Returns the JSON form: bytes as a number, anything else as text that can be parsed again.
    pub(crate) fn value(self) -> Value {
        match self {
            Self::Size(bytes) => Value::from(bytes.0),
            _ => Value::from(self.text()),
        }
    }

    /// Returns the kind of view that programs get.
    pub(crate) fn view(self) -> wire::View {
        match self {
            Self::Off => wire::View::Truth,
            Self::Auto => wire::View::ByAsker,
            Self::Size(_) | Self::Thousandths(_) => wire::View::Fixed,
        }
    }

    /// Returns the totals to show with a `budget`, each with the number in the names of its files.
    fn totals(self, budget: Bytes) -> Vec<(usize, Bytes)> {
        match self {
            Self::Off => Vec::new(),
            Self::Auto => {
                TIMES.iter().map(|times| (*times, Bytes(budget.0.saturating_mul(*times)))).collect()
            }
            Self::Size(bytes) => vec![(0, bytes)],
            Self::Thousandths(times) => {
                let bytes = budget.0 as u128 * times as u128 / 1000;
                vec![(0, Bytes(usize::try_from(bytes).unwrap_or(usize::MAX)))]
            }
        }
    }
}

/// Returns the real memory: the machine's, or what this process's cgroup may have of it.
pub(crate) fn most() -> io::Result<Bytes> {
    let limit = cgroup::own_limit().map_or(Bytes(usize::MAX), |limit| limit.bytes);
    Ok(cgroup::machine_memory()?.min(limit))
}

/// Returns variables for the program. Go's runtime asks for no size, so this sets a soft limit for
/// it where the user has set none. A view variable that differs from the option no longer holds for
/// inner runs.
pub(crate) fn environment(ask: Ask, budget: Bytes) -> Vec<(&'static str, String)> {
    let is_set = |name: &str| env::var_os(name).is_some();
    let mut variables = Vec::new();
    if ask != Ask::Off && !is_set(GO_VARIABLE) {
        variables.push((GO_VARIABLE, go_limit(budget)));
    }
    if is_set(wire::VIEW_VARIABLE) {
        variables.push((wire::VIEW_VARIABLE, ask.text()));
    }
    variables
}

/// Makes `command`, inside a run with such a `budget`, see the truth all the same.
pub(crate) fn refuse(command: &mut Command, budget: Option<Bytes>) {
    command.env(wire::VIEW_VARIABLE, Ask::Off.text());
    if budget.is_some_and(|budget| env::var(GO_VARIABLE).is_ok_and(|it| it == go_limit(budget))) {
        command.env_remove(GO_VARIABLE);
    }
}

fn go_limit(budget: Bytes) -> String {
    (budget.0 / 10 * 9).to_string()
}

/// A total that is shown, and the files that show it.
struct Shown {
    total: Bytes,
    machine: File,
    node: Option<File>,
    usage: File,
}

/// The files that are shown in a run.
pub(crate) struct View {
    shown: Vec<Shown>,
    /// The memory that was held when the files were written.
    held: Bytes,
}

impl View {
    /// Makes the files in the directory of the run, for programs that may hold `budget`. Returns
    /// `None` when the truth is shown.
    pub(crate) fn create(ask: Ask, budget: Bytes, directory: &Path) -> Result<Option<Self>> {
        if ask == Ask::Off {
            return Ok(None);
        }
        let view = most().and_then(|most| Self::make(ask, budget, most, directory));
        let view = view.map_err(|error| {
            let cause = format!("cannot keep what is shown as the machine's memory: {error}");
            Failure::ours(cause, "run it with --show-memory off")
        })?;
        Ok(Some(view))
    }

    fn make(ask: Ask, budget: Bytes, most: Bytes, directory: &Path) -> io::Result<Self> {
        let create = |name: &str| {
            let file = File::create(directory.join(name))?;
            // Programs may run as any user, and the umask may take bits away.
            file.set_permissions(Permissions::from_mode(0o444))?;
            io::Result::Ok(file)
        };
        let has_one_node = Path::new(NODES[0]).exists() && !Path::new(NODES[1]).exists();
        let mut shown = Vec::new();
        for (name, total) in ask.totals(budget) {
            let total = total.min(most).pages_down().bytes();
            create(&format!("limit.{name}"))?
                .write_all_at(format!("{}\n", total.0).as_bytes(), 0)?;
            let node = has_one_node.then(|| create(&format!("node.{name}"))).transpose()?;
            let [machine, usage] =
                ["meminfo", "usage"].map(|kind| create(&format!("{kind}.{name}")));
            shown.push(Shown { total, machine: machine?, node, usage: usage? });
        }
        let view = Self { shown, held: Bytes(0) };
        view.write();
        Ok(view)
    }

    /// Notes that all processes hold `used` pages in memory, and have `saved` that many bytes
    /// besides. Writes the files again if that changes what is shown by a step.
    pub(crate) fn show(&mut self, used: PageCount, saved: u64) {
        let held = Bytes(used.bytes().0.saturating_add(saved as usize));
        let least = self.shown.iter().map(|shown| shown.total.0 / STEPS).min();
        if held.0.abs_diff(self.held.0) >= least.unwrap_or(0) {
            self.held = held;
            self.write();
        }
    }

    /// Writes the files. What cannot be read or written stays as it was last shown.
    fn write(&self) {
        let read = |path: &str| fs::read_to_string(path).ok();
        let machine = read("/proc/meminfo");
        let has_node = self.shown.iter().any(|shown| shown.node.is_some());
        let node = if has_node { read(NODES[0]) } else { None };
        let write = |file: &File, text: &str| {
            file.write_all_at(text.as_bytes(), 0)?;
            file.set_len(text.len() as u64)
        };
        for Shown { total, machine: machine_file, node: node_file, usage } in &self.shown {
            let files = [(Some(machine_file), &machine), (node_file.as_ref(), &node)];
            for (file, text) in files {
                if let (Some(file), Some(text)) = (file, text) {
                    let _ = write(file, &shown_of(text, *total, self.held));
                }
            }
            let held = most_held(*total, self.held);
            let _ = write(usage, &format!("{:<20}\n", held.0));
        }
    }
}

/// Returns how much of `held` to show where there are `total`.
fn most_held(total: Bytes, held: Bytes) -> Bytes {
    held.min(Bytes(total.0 - total.0 / FREE_PART)).pages_down().bytes()
}

/// Returns the text to show instead of `text`, which is of /proc/meminfo or of a node: there are
/// `total` bytes, of which `held` are held.
fn shown_of(text: &str, total: Bytes, held: Bytes) -> String {
    let kib_of = |name: &str| {
        let value = text.lines().find_map(|line| parts(line).filter(|it| it.1 == name));
        value.map(|(_, _, kib)| Bytes(kib.saturating_mul(1024)))
    };
    let held = most_held(total, held);
    let free = Bytes(total.0 - held.0);
    // The machine itself may have less available.
    let available = kib_of("MemAvailable").or_else(|| kib_of("MemFree")).unwrap_or(free);
    let free = free.min(available);
    let mut shown = String::with_capacity(text.len());
    for line in text.lines() {
        let Some((before, name, _)) = parts(line) else {
            let _ = writeln!(shown, "{line}");
            continue;
        };
        let bytes = match name {
            "MemTotal" | "CommitLimit" => total,
            "MemFree" | "MemAvailable" => free,
            "MemUsed" => held,
            name if HELD.contains(&name) => held,
            name if NONE.contains(&name) => Bytes(0),
            _ => {
                let _ = writeln!(shown, "{line}");
                continue;
            }
        };
        let name = format!("{name}:");
        let _ = writeln!(shown, "{before}{name:<15} {:>8} kB", bytes.0 / 1024);
    }
    shown
}

/// Splits a line `[Node 0 ]NAME: KIB kB` into its parts.
fn parts(line: &str) -> Option<(&str, &str, usize)> {
    let (names, value) = line.split_once(':')?;
    let at = names.rfind(' ').map_or(0, |space| space + 1);
    let kib = value.trim().strip_suffix(" kB")?.trim_end().parse().ok()?;
    Some((&names[..at], &names[at..], kib))
}

#[cfg(test)]
mod tests {
    //! The risk: a program is shown more than there is, or another number each time that it looks.

    use super::*;

    const MEMINFO: &str = "MemTotal:       24609824 kB\nMemFree:        20000000 kB\n\
         MemAvailable:   21000000 kB\nBuffers:            1000 kB\nActive:             2000 kB\n\
         HugePages_Total:       0\nHugepagesize:       2048 kB\n";

    #[test]
    fn what_is_asked_can_be_told_and_asked_again() {
        for (text, ask) in [
            ("off", Ask::Off),
            ("auto", Ask::Auto),
            ("1x", Ask::Thousandths(1000)),
            ("1.5x", Ask::Thousandths(1500)),
            ("1073741824", Ask::Size(Bytes::mib(1024))),
        ] {
            assert_eq!((Ask::parse(text), ask.text().as_str()), (Ok(ask), text));
        }
        assert_eq!(Ask::parse("2G"), Ok(Ask::Size(Bytes::mib(2048))));
        for wrong in ["0.5x", "x", "-1x", "1001x", "much", "NaNx", "0", "15M"] {
            assert!(Ask::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_free_goes_by_what_is_held_and_is_never_nothing() {
        let total = Bytes::mib(512);
        let lines = |held| {
            let text = shown_of(MEMINFO, total, held);
            text.lines().map(str::to_owned).collect::<Vec<_>>()
        };
        let shown = lines(Bytes::mib(100));
        assert_eq!(shown[0], "MemTotal:         524288 kB");
        assert_eq!(shown[1], "MemFree:          421888 kB");
        assert_eq!(shown[2], "MemAvailable:     421888 kB");
        assert_eq!(shown[3], "Buffers:               0 kB");
        assert_eq!(shown[4], "Active:           102400 kB");
        assert_eq!(shown[5..], ["HugePages_Total:       0", "Hugepagesize:       2048 kB"]);
        assert_eq!(lines(Bytes::mib(9000))[2], "MemAvailable:      32768 kB");
        // Lines are as wide as the kernel's, whatever is shown.
        for (ours, theirs) in shown.iter().zip(MEMINFO.lines()) {
            assert_eq!(ours.len(), theirs.len(), "{ours}");
        }
        let text = shown_of(MEMINFO, Bytes::mib(23_000), Bytes(0));
        assert!(text.contains("MemAvailable:   21000000 kB"), "the machine has no more: {text}");
    }

    #[test]
    fn lines_of_a_node_are_known_too() {
        let text = "Node 0 MemTotal:       24609824 kB\nNode 0 MemUsed:          100 kB\n";
        let shown = shown_of(text, Bytes::mib(64), Bytes::mib(16));
        assert_eq!(
            shown,
            "Node 0 MemTotal:          65536 kB\nNode 0 MemUsed:           16384 kB\n"
        );
    }

    #[test]
    fn files_are_made_for_each_that_may_ask_and_none_is_above_what_there_is() {
        let place = tempfile::tempdir().unwrap();
        let (budget, most) = (Bytes::mib(100), Bytes::mib(300));
        let mut view = View::make(Ask::Auto, budget, most, place.path()).unwrap();
        let limit = |name: &str| fs::read_to_string(place.path().join(name)).unwrap();
        let limits = ["limit.1", "limit.2", "limit.8"].map(limit);
        let wanted = [100, 200, 300].map(|mib: usize| format!("{}\n", mib << 20));
        assert_eq!(limits, wanted);
        let length = limit("meminfo.2").len();
        view.show(Bytes::mib(30).pages_down(), 20 << 20);
        assert!(limit("usage.2").starts_with("52428800 "));
        assert_eq!(limit("meminfo.2").len(), length);
        assert!(limit("meminfo.2").starts_with("MemTotal:         204800 kB\n"));
        view.show(Bytes::mib(900).pages_down(), 0);
        assert_eq!(limit("usage.1").trim_end(), (Bytes::mib(100).0 / 16 * 15).to_string());
        let mode = fs::metadata(place.path().join("usage.1")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o444);
    }
}
