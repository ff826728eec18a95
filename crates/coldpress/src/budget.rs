//! The budget of a run: what the user asks for, and what that comes to on this machine now.
//!
//! A size stands for itself. A share, and `auto`, depend on the memory there is: the machine's, or
//! the limit of a cgroup. A container's limit may change while the container runs, and the budget
//! changes with it. Limits are read again rather than watched, because inotify does not report
//! writes through another mount of the hierarchy, such as those from outside a container. Under
//! `auto`, a run gives up a part of the budget while others wait for memory (`broker/psi.rs`).

use std::fmt;

use coldpress_common::cgroup::{self, Limit};
use coldpress_common::failure::{Failure, Result};
use coldpress_common::size::{Size, parse_size_or_share, show};
use coldpress_runtime::ledger::BUDGET_FLOOR;
use coldpress_sys::Bytes;
use serde_json::Value;

/// A budget as the user asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// 90 % of the cgroup's limit, else half of the machine's memory.
    Auto,
    /// A size, or a share of the memory there is.
    Size(Size),
}

impl Ask {
    /// Reads `auto`, a size or a share.
    pub(crate) fn parse(text: &str) -> std::result::Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => parse_size_or_share(text).map(Self::Size),
        }
    }

    /// Returns the JSON form: bytes as a number, anything else as text that can be parsed again.
    pub(crate) fn value(self) -> Value {
        match self {
            Self::Auto => Value::from("auto"),
            Self::Size(Size::Bytes(bytes)) => Value::from(bytes.0),
            Self::Size(share) => Value::from(share.to_string()),
        }
    }
}

/// A budget and its origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Budget {
    /// The budget that was asked for.
    pub(crate) ask: Ask,
    /// All memory the process tree may hold.
    pub(crate) bytes: Bytes,
    /// The origin of the budget.
    pub(crate) origin: Origin,
    /// The part that the run gives up while others wait for memory, in percent.
    pub(crate) given_percent: u32,
}

/// The origin of a budget.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The user named it.
    Asked,
    /// 90 % of this limit.
    Cgroup(Limit),
    /// Half of the machine's memory, which is given here.
    Machine(Bytes),
}

impl Budget {
    /// Returns what `ask` comes to on this machine now. Fails below [`BUDGET_FLOOR`], or when the
    /// size of the machine's memory is unknown.
    pub(crate) fn find(ask: Ask) -> Result<Self> {
        let budget = Self::read(ask)?;
        if budget.bytes < BUDGET_FLOOR {
            return Err(budget.below_floor());
        }
        Ok(budget)
    }

    /// Returns a budget of exactly `bytes`, for a run of our own.
    pub(crate) fn fixed(bytes: Bytes) -> Self {
        let ask = Ask::Size(Size::Bytes(bytes));
        Self { ask, bytes, origin: Origin::Asked, given_percent: 0 }
    }

    /// Returns the budget as it is now, if it has changed: because of a limit, or of the percentage
    /// that `auto` gives up. The result is never below the floor.
    pub(crate) fn changed(&self, given_percent: u32) -> Option<Self> {
        if self.is_fixed() {
            return None;
        }
        // While a limit cannot be read, the budget stays as it was.
        let mut now = Self::read(self.ask).ok()?;
        if self.ask == Ask::Auto {
            now.given_percent = given_percent;
            now.bytes = Bytes(now.bytes.0 - now.bytes.0 / 100 * given_percent as usize);
        }
        now.bytes = now.bytes.max(BUDGET_FLOOR);
        (now.bytes != self.bytes).then_some(now)
    }

    fn read(ask: Ask) -> Result<Self> {
        // A plain number depends on nothing that has to be read.
        if let Ask::Size(Size::Bytes(bytes)) = ask {
            return Ok(Self::fixed(bytes));
        }
        let machine = cgroup::machine_memory().map_err(|error| {
            Failure::ours(format!("cannot read /proc/meminfo: {error}"), "mount /proc")
        })?;
        Ok(Self::of(ask, cgroup::own_limit(), machine))
    }

    /// Returns what `ask` comes to within `limit` on a machine with `machine` bytes of memory. A
    /// limit above that memory counts as none.
    fn of(ask: Ask, limit: Option<Limit>, machine: Bytes) -> Self {
        let limit = limit.filter(|limit| limit.bytes < machine);
        let (bytes, origin) = match (ask, limit) {
            (Ask::Size(size), limit) => {
                (size.of(limit.map_or(machine, |limit| limit.bytes)), Origin::Asked)
            }
            // Ten percent are left for memory that cannot be managed: page tables, files, the
            // kernel's own.
            (Ask::Auto, Some(limit)) => (Bytes(limit.bytes.0 / 10 * 9), Origin::Cgroup(limit)),
            (Ask::Auto, None) => (Bytes(machine.0 / 2), Origin::Machine(machine)),
        };
        Self { ask, bytes, origin, given_percent: 0 }
    }

    /// Returns what is wrong with a budget that the user named and the kernel will not give.
    pub(crate) fn complaint(&self) -> Option<String> {
        if !self.is_fixed() {
            return None;
        }
        self.complaint_within(cgroup::own_limit(), cgroup::machine_memory().ok()?)
    }

    /// Returns whether the budget is a plain number, independent of any limit.
    fn is_fixed(&self) -> bool {
        matches!(self.ask, Ask::Size(Size::Bytes(_)))
    }

    fn complaint_within(&self, limit: Option<Limit>, machine: Bytes) -> Option<String> {
        let limit = limit.filter(|limit| limit.bytes < machine);
        let most = limit.as_ref().map_or(machine, |limit| limit.bytes);
        (self.bytes > most).then(|| {
            let of = limit.map_or("that this machine has".to_owned(), |limit| {
                format!("that the cgroup may have ({})", limit.file.display())
            });
            format!(
                "the budget of {} is more than the {} {of}: the kernel kills before it is reached; \
                 name a smaller one, or auto",
                show(self.bytes),
                show(most)
            )
        })
    }

    fn below_floor(&self) -> Failure {
        let way_out = match self.origin {
            Origin::Asked => format!("ask for at least --memory {}M", BUDGET_FLOOR.0 >> 20),
            _ => "raise the limit, or name a budget with --memory".to_owned(),
        };
        Failure::ours(
            format!(
                "a budget of {} ({} bytes, {}) is below the floor of {}",
                show(self.bytes),
                self.bytes.0,
                self.origin,
                show(BUDGET_FLOOR)
            ),
            way_out,
        )
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", show(self.bytes), self.origin)?;
        match self.given_percent {
            0 => Ok(()),
            given => write!(f, ", less {given} % for others, who wait for memory"),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("as asked"),
            Self::Cgroup(limit) => {
                let size = show(limit.bytes);
                write!(f, "90 % of the cgroup's limit of {size} ({})", limit.file.display())
            }
            Self::Machine(total) => write!(f, "half of the machine's {}", show(*total)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(bytes: Bytes) -> Limit {
        Limit { bytes, file: "/sys/fs/cgroup/memory.max".into() }
    }

    #[test]
    fn a_limit_below_the_machine_gives_ninety_percent() {
        let budget = Budget::of(Ask::Auto, Some(limit(Bytes::mib(1000))), Bytes::mib(8192));
        assert_eq!(budget.bytes, Bytes(1000 * (1 << 20) / 10 * 9));
        assert!(budget.origin.to_string().contains("memory.max"), "{}", budget.origin);
    }

    #[test]
    fn without_a_real_limit_half_of_the_machine_is_taken() {
        let machine = Bytes::mib(8192);
        for limit in [None, Some(limit(Bytes(usize::MAX / 2))), Some(limit(machine))] {
            let budget = Budget::of(Ask::Auto, limit, machine);
            assert_eq!(budget.bytes, Bytes::mib(4096));
            assert_eq!(budget.origin, Origin::Machine(machine));
        }
    }

    #[test]
    fn a_share_is_one_of_the_limit() {
        let ask = Ask::parse("25%").unwrap();
        let machine = Bytes::mib(8192);
        assert_eq!(Budget::of(ask, None, machine).bytes, Bytes::mib(2048));
        let limited = Budget::of(ask, Some(limit(Bytes::mib(400))), machine);
        assert_eq!((limited.bytes, limited.origin), (Bytes::mib(100), Origin::Asked));
    }

    #[test]
    fn what_was_asked_can_be_shown_and_asked_again() {
        for (text, shown) in [("auto", "auto"), ("12.5%", "12.5%"), ("1K", "1024")] {
            let ask = Ask::parse(text).unwrap();
            let value = ask.value();
            let again = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            assert_eq!((again.as_str(), Ask::parse(&again)), (shown, Ok(ask)));
        }
        assert!(Ask::parse("automatic").is_err());
    }

    #[test]
    fn only_what_depends_on_a_limit_changes() {
        let was = |ask| Budget { ask, bytes: Bytes(7), origin: Origin::Asked, given_percent: 0 };
        let fixed = Ask::Size(Size::Bytes(Bytes(9)));
        assert_eq!((was(fixed).changed(0), was(fixed).changed(50)), (None, None));
        // Whatever memory this machine has, it is not 7 bytes.
        let now = was(Ask::Auto).changed(0).unwrap();
        assert!(now.bytes >= BUDGET_FLOOR && now.changed(0).is_none(), "{now:?}");
        let share = was(Ask::parse("50%").unwrap()).changed(0).unwrap();
        assert_eq!(share.changed(50), None);
    }

    #[test]
    fn a_part_of_auto_is_given_up_and_comes_back() {
        let all = Budget::read(Ask::Auto).unwrap();
        let less = all.changed(20).unwrap();
        assert_eq!(less.bytes, Bytes(all.bytes.0 - all.bytes.0 / 100 * 20).max(BUDGET_FLOOR));
        assert!(less.to_string().ends_with(", less 20 % for others, who wait for memory"));
        assert_eq!(less.changed(20), None);
        assert_eq!(less.changed(0), Some(all));
    }

    #[test]
    fn a_budget_that_the_kernel_will_not_give_is_told() {
        let machine = Bytes::mib(8192);
        let complaint = |text, limit| {
            let ask = Ask::parse(text).unwrap();
            Budget::of(ask, None, machine).complaint_within(limit, machine)
        };
        let told = complaint("1G", Some(limit(Bytes::mib(150)))).unwrap();
        for part in ["1 GiB", "150 MiB", "memory.max", "auto"] {
            assert!(told.contains(part), "{told}");
        }
        assert!(complaint("9T", None).unwrap().contains("8 GiB that this machine has"));
        assert_eq!(complaint("8G", Some(limit(Bytes(usize::MAX / 2)))), None);
        assert_eq!(complaint("150M", Some(limit(Bytes::mib(150)))), None);
        let named =
            |text| Budget { ask: Ask::parse(text).unwrap(), ..Budget::fixed(Bytes(usize::MAX)) };
        assert_eq!(named("100%").complaint(), None);
        assert!(named("9T").complaint().is_some());
    }

    #[test]
    fn the_floor_is_named_with_both_numbers() {
        let ask = Ask::Size(Size::Bytes(Bytes(4096)));
        let failure = Budget::find(ask).unwrap_err().to_string();
        for part in ["4096 bytes", "16 MiB", "--memory 16M"] {
            assert!(failure.contains(part), "{failure}");
        }
    }
}
