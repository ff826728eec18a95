//! Risk: on another kernel than those of developers a page is lost, a budget is not kept, a limit
//! of a cgroup of version 2 is not seen, or a kernel that lacks what is needed ends a program
//! instead of being named.
//!
//! `make kernels` fetches kernels of Debian's and names their folder in COLDPRESS_KERNELS. Each is
//! booted in QEMU, and runs there programs of other tests, in smaller forms, as translated code is
//! some ten times as slow, and tests as they were built here. Without the variable all is skipped.
//! COLDPRESS_KERNEL names one kernel that alone is booted.

#[path = "kernels/guest.rs"]
mod guest;

use guest::{Guest, Kernel, Step};

/// What each kernel that can manage programs is asked, for what a kernel may do otherwise. The
/// programs check all of their bytes.
const PROGRAMS: [Step; 3] = [
    // Faults, moves, unmaps and protection by several threads.
    Step::program("torture", "--seconds 10 --bytes 100M --threads 4", 20),
    // Memory that the kernel fills, pins or reads in system calls.
    Step::program("syscalls", "--arena 32M --pressure 64M", 20),
    // Events of forks, and pages of relatives.
    Step::program("forker", "--bytes 20M --rounds 1", 16),
];
/// What a cgroup of version 2 is asked.
const GROUPS: [Step; 3] = [
    // Its limit as the budget, changed meanwhile.
    Step::test("limits", "a_budget_by_a_limit_follows_it"),
    // A run in a cgroup that holds hardly more than the budget, by the kernel's own account.
    Step::test("budget", "first_touch_is_never_killed_in_a_cgroup"),
    // The account of what is held, as the kernel has it.
    Step::test("limits", "a_budget_above_the_limit_is_told_at_the_start"),
];
/// Says how the kernel chooses what it takes from a cgroup that meets its limit.
const MGLRU: Step = Step::command("mglru", "cat /sys/kernel/mm/lru_gen/enabled");
const DOCTOR: Step = Step::command("doctor", "$COLDPRESS_BIN doctor");

/// Checks that all steps pass on a kernel with so many processors.
fn check(kernel: Kernel, processors: usize, steps: &[&[Step]]) {
    let Some(guest) = Guest::new(kernel) else { return };
    let steps = steps.concat();
    let console = guest.run(processors, &steps);
    for step in &steps {
        console.assert_passed(step);
    }
}

/// Checks that a kernel is refused with a reason, and the program not begun.
fn refuse(kernel: Kernel) {
    let Some(guest) = Guest::new(kernel) else { return };
    let run = Step::command("run", "$COLDPRESS_BIN run --memory 64M -- echo begun");
    let console = guest.run(2, &[DOCTOR, run]);
    console.assert_status(&DOCTOR, 1);
    console.assert_status(&run, 125);
    let reason = "is older than 6.8, which can move pages out; boot Linux 6.8 or newer";
    assert_eq!(console.text.matches(reason).count(), 2, "{}", console.text);
    assert!(!console.text.contains("begun"), "{}", console.text);
}

#[test]
fn linux_5_10_is_refused_with_a_reason() {
    refuse(Kernel::Linux5_10);
}

#[test]
fn linux_6_1_is_refused_with_a_reason() {
    refuse(Kernel::Linux6_1);
}

#[test]
fn programs_keep_their_bytes_and_budgets_on_linux_6_12() {
    check(Kernel::Linux6_12, 4, &[&[MGLRU, DOCTOR], &PROGRAMS, &GROUPS]);
}

#[test]
fn programs_keep_their_bytes_and_budgets_on_the_newest_linux() {
    check(Kernel::Newest, 8, &[&[MGLRU, DOCTOR], &PROGRAMS, &GROUPS]);
}

#[test]
fn limits_are_kept_without_mglru() {
    let off = Step::command("mglru", "echo n >/sys/kernel/mm/lru_gen/enabled");
    check(Kernel::Newest, 2, &[&[off], &PROGRAMS[..1], &GROUPS]);
}
