//! Swap of one kind, on as long as its guard lives. Sources: Linux,
//! Documentation/admin-guide/blockdev/zram.rst and mm/zswap.rst.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use coldpress_sys::Bytes;
use rustix::fs::FallocateFlags;
use tempfile::NamedTempFile;

use super::{named, put_back, read, write};

const SWAPS: &str = "/proc/swaps";
const ZRAM_CONTROL: &str = "/sys/class/zram-control";
const ZSWAP: &str = "/sys/module/zswap/parameters";

/// The place of `mem_used_total` among the numbers in `mm_stat` of a zram device.
const MEM_USED_TOTAL: usize = 2;
/// The share of the machine's memory that zswap may take, in percent: a run is limited by its
/// cgroup.
const ZSWAP_PERCENT: &str = "50";

/// A kind of swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A zram device with this codec.
    Zram(&'static str),
    /// A swap file, behind zswap with this codec.
    Zswap(&'static str),
    /// A swap file alone.
    File,
}

impl Peer {
    /// The peers that benchmarks compare with.
    pub(crate) const ALL: [Self; 4] =
        [Self::Zram("lz4"), Self::Zram("lzo-rle"), Self::Zswap("lzo"), Self::File];

    /// Returns the name of the peer.
    pub(crate) fn name(self) -> String {
        match self {
            Self::Zram(codec) => format!("zram-{codec}"),
            Self::Zswap(codec) => format!("zswap-{codec}"),
            Self::File => "swapfile".to_owned(),
        }
    }

    /// Returns whether pages stay in memory, compressed, in a pool beside the memory of the cgroup.
    pub(crate) fn has_pool(self) -> bool {
        self != Self::File
    }
}

/// Swap that is on. Dropping it turns the swap off and puts everything back: fields drop in this
/// order.
pub(crate) struct Swap {
    _on: On,
    _knobs: Option<Knobs>,
    store: Store,
}

/// The place of the swapped pages.
enum Store {
    Zram(Device),
    /// A swap file, which is removed when it is dropped.
    File {
        _file: NamedTempFile,
        has_zswap: bool,
    },
}

impl Swap {
    /// Turns on swap for `size` of pages; a file goes to `directory`. Fails, with all put back,
    /// when the machine lacks something, or when any other swap is on.
    pub(crate) fn on(peer: Peer, size: Bytes, directory: &Path) -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "swap needs root"));
        }
        if let Some(other) = others(&read(Path::new(SWAPS))?) {
            let text = format!("{other} is swapped to; end that with `swapoff {other}`");
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
        }
        let (store, path, knobs) = match peer {
            Peer::Zram(codec) => {
                let device = Device::add()?;
                device.prepare(codec, size)?;
                let path = device.path();
                (Store::Zram(device), path, None)
            }
            Peer::Zswap(_) | Peer::File => {
                let file = file(size, directory)?;
                let path = file.path().to_owned();
                let knobs = match peer {
                    Peer::Zswap(codec) => Knobs::zswap(codec)?,
                    _ => Knobs::no_zswap()?,
                };
                let has_zswap = matches!(peer, Peer::Zswap(_));
                (Store::File { _file: file, has_zswap }, path, Some(knobs))
            }
        };
        tool("mkswap", &path)?;
        let on = On::new(path)?;
        Ok(Self { _on: on, _knobs: knobs, store })
    }

    /// Returns the memory that holds compressed pages now, beside the memory of the cgroup.
    pub(crate) fn pool(&self) -> io::Result<Bytes> {
        match &self.store {
            Store::Zram(device) => device.used(),
            Store::File { has_zswap: true, .. } => {
                let file = Path::new("/proc/meminfo");
                kib_of(&read(file)?, "Zswap:")
                    .ok_or_else(|| named(file, &io::Error::other("no line Zswap")))
            }
            Store::File { has_zswap: false, .. } => Ok(Bytes(0)),
        }
    }
}

/// Returns the first path of `/proc/swaps`, behind the header.
fn others(swaps: &str) -> Option<&str> {
    swaps.lines().nth(1)?.split_ascii_whitespace().next()
}

/// Returns the size behind `name` in a text like `/proc/meminfo`, which gives KiB.
fn kib_of(text: &str, name: &str) -> Option<Bytes> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: usize = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kib.checked_mul(1024).map(Bytes)
}

/// Makes a file without holes, which no other user can read.
fn file(size: Bytes, directory: &Path) -> io::Result<NamedTempFile> {
    let file = tempfile::Builder::new().prefix("coldpress-bench-").tempfile_in(directory)?;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, size.0 as u64)
        .map_err(|error| named(file.path(), &error.into()))?;
    Ok(file)
}

/// Runs a command of util-linux with one argument. Fails with the command's message.
fn tool(name: &str, argument: &Path) -> io::Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.arg(argument).env("PATH", format!("{path}:/usr/sbin:/sbin")).process_group(0);
    let output = command.output().map_err(|error| named(Path::new(name), &error))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let line = said.trim().lines().last().unwrap_or("it failed");
    Err(io::Error::other(format!("{name} {}: {line}", argument.display())))
}

/// A path that the kernel swaps to.
struct On(PathBuf);

impl On {
    fn new(path: PathBuf) -> io::Result<Self> {
        tool("swapon", &path)?;
        Ok(Self(path))
    }
}

impl Drop for On {
    fn drop(&mut self) {
        put_back(tool("swapoff", &self.0));
    }
}

/// A zram device of our own.
struct Device {
    number: u32,
}

impl Device {
    /// Adds a zram device. Fails where the kernel has no zram.
    fn add() -> io::Result<Self> {
        let file = Path::new(ZRAM_CONTROL).join("hot_add");
        let number = read(&file)?.trim().parse();
        let number = number.map_err(|_| named(&file, &io::Error::other("no number")))?;
        Ok(Self { number })
    }

    fn prepare(&self, codec: &str, size: Bytes) -> io::Result<()> {
        write(&self.control("comp_algorithm"), codec)?;
        write(&self.control("disksize"), &size.0.to_string())
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/dev/zram{}", self.number))
    }

    fn control(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/sys/block/zram{}", self.number)).join(name)
    }

    fn used(&self) -> io::Result<Bytes> {
        let file = self.control("mm_stat");
        let text = read(&file)?;
        let number = text.split_ascii_whitespace().nth(MEM_USED_TOTAL);
        number
            .and_then(|number| number.parse().ok().map(Bytes))
            .ok_or_else(|| named(&file, &io::Error::other("no third number")))
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        put_back(write(&self.control("reset"), "1"));
        let file = Path::new(ZRAM_CONTROL).join("hot_remove");
        put_back(write(&file, &self.number.to_string()));
    }
}

/// The settings of the kernel that were changed, each with its former value.
#[derive(Default)]
struct Knobs(Vec<(PathBuf, String)>);

impl Knobs {
    /// Turns zswap on.
    fn zswap(codec: &str) -> io::Result<Self> {
        let mut knobs = Self::default();
        for (name, text) in
            [("compressor", codec), ("max_pool_percent", ZSWAP_PERCENT), ("enabled", "Y")]
        {
            knobs.turn(Path::new(ZSWAP).join(name), text)?;
        }
        Ok(knobs)
    }

    /// Turns zswap off, where the kernel has it.
    fn no_zswap() -> io::Result<Self> {
        let mut knobs = Self::default();
        let file = Path::new(ZSWAP).join("enabled");
        if file.exists() {
            knobs.turn(file, "N")?;
        }
        Ok(knobs)
    }

    fn turn(&mut self, file: PathBuf, text: &str) -> io::Result<()> {
        let before = read(&file)?.trim().to_owned();
        write(&file, text)?;
        self.0.push((file, before));
        Ok(())
    }
}

impl Drop for Knobs {
    fn drop(&mut self) {
        for (file, before) in self.0.iter().rev() {
            put_back(write(file, before));
        }
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a machine that is left with swap on, a device, or settings of ours. The method:
    //! with the rights for it, each kind is used for real; without them, the test says that it is
    //! skipped.
    use super::super::{Group, run};
    use super::*;
    use crate::interrupt::Signals;
    use std::fs;

    /// Returns what the kernel reports of its swap.
    fn state() -> Vec<String> {
        let text = |path: &Path| fs::read_to_string(path).unwrap_or_default();
        let knobs = ["enabled", "compressor", "max_pool_percent"];
        let knobs = knobs.iter().map(|name| text(&Path::new(ZSWAP).join(name)));
        let mut devices: Vec<String> = fs::read_dir("/sys/block")
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.starts_with("zram"))
            .collect();
        devices.sort();
        [text(Path::new(SWAPS))].into_iter().chain(knobs).chain(devices).collect()
    }

    /// Returns the root group of version 1, or that of version 2.
    fn root() -> PathBuf {
        let first = PathBuf::from("/sys/fs/cgroup/memory");
        if first.exists() { first } else { PathBuf::from("/sys/fs/cgroup") }
    }

    #[test]
    fn each_kind_takes_pages_and_all_is_put_back() {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let _signals = Signals::keep();
        for peer in Peer::ALL {
            let before = state();
            let swap = match Swap::on(peer, Bytes::mib(64), directory.path()) {
                Ok(swap) => swap,
                Err(error) => {
                    eprintln!("skipped: {}: {error}", peer.name());
                    assert_eq!(state(), before);
                    continue;
                }
            };
            let group = match Group::new(&root(), Bytes::mib(8)) {
                Ok(group) => group,
                Err(error) => {
                    eprintln!("skipped: {error}");
                    continue;
                }
            };
            let error = Swap::on(peer, Bytes::mib(64), directory.path()).err().unwrap();
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy, "{error}");
            // Some 12 MB of text in a shell's variable.
            let text = "x=$(yes 'some words of text, which compress' | head -c 3000000); \
                        y=$x$x$x$x; echo ${#y}; sleep 0.3";
            let mut program = Command::new("sh");
            program.args(["-c", text]);
            let ran = run(program, Some((&group, &swap))).unwrap();
            assert!(group.used() <= Bytes::mib(8));
            if ran.kills == 0 {
                assert_eq!(ran.output, b"12000000\n", "{}", peer.name());
            }
            let has_pool = ran.pool > Bytes(0);
            assert_eq!(has_pool, peer != Peer::File, "{}: {:?}", peer.name(), ran.pool);
            drop((group, swap));
            assert_eq!(state(), before, "{}", peer.name());
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_texts_of_the_kernel_are_read() {
        let head = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n";
        assert_eq!(others(head), None);
        let swaps = format!("{head}/dev/sda2   partition\t1048572\t0\t-2\n");
        assert_eq!(others(&swaps), Some("/dev/sda2"));
        let text = "SwapFree: 4 kB\nZswap:             12 kB\nZswapped: 9 kB\n";
        assert_eq!(kib_of(text, "Zswap:"), Some(Bytes(12 * 1024)));
        assert_eq!(kib_of(text, "Zswa:"), None);
    }
}
