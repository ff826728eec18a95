//! Risk: a guest of QEMU's reads wrong bytes, or stops, when its memory is within a budget, also
//! while a balloon takes from it and gives back; or guests hold more than their budget; or memory
//! that is shared, which stays, is not told.
//!
//! The guests are Linux with a program that fills most of their memory and checks every word again
//! and again (`fixtures/guest.c`). `make machines` fetches the kernel and names its folder in
//! COLDPRESS_GUEST. Without the variable the guests are skipped. A program that forbids itself
//! nearly every call, as other monitors of virtual machines do, runs always.

#[path = "machines/control.rs"]
mod control;
#[path = "machines/guest.rs"]
mod guest;

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use coldpress_sys::Bytes;
use coldpress_tests::guest::Accelerator;
use coldpress_tests::harness::{Fraction, Job, Live, Run, check};
use coldpress_tests::machine::{self, Scratch, fixture, require};
use control::Control;
use guest::{Guest, TCG, Work};

/// Time limit of a guest, and of each of its steps: longer, it hangs.
const HANG: Duration = Duration::from_secs(120);
/// Time limit of a start without coldpress, to find out whether an accelerator works.
const START_MAX: Duration = Duration::from_secs(20);
/// Time limit for the kernel of a guest to tell what it does not use; it does so after two seconds
/// (`PAGE_REPORTING_DELAY` of mm/page_reporting.c).
const REPORT_MAX: Duration = Duration::from_secs(20);

/// The memory of the guest that uses the balloon, in MiB, and what it does there.
const MIB: usize = 256;
const WORK: Work = Work { held: 160, rounds: 4, freed: 64 };
/// Its budget: a third of its memory, with all that QEMU itself holds.
const BUDGET: Bytes = Bytes::mib(80);
/// A small guest, in MiB, and what it does.
const SMALL_MIB: usize = 192;
const SMALL_WORK: Work = Work { held: 96, rounds: 3, freed: 0 };
/// How many of them run side by side.
const COUNT: usize = 4;
/// The seccomp filter that libvirt has QEMU put on itself.
const SANDBOX: &str = "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny";

/// Returns the pages that the run of `live` has out of place.
fn stored_pages(live: &Live) -> usize {
    let root = live.root().to_string();
    let mut command = Command::new(machine::coldpress());
    let output = command.args(["ctl", &root, "get", "stored_pages"]).output();
    let output = output.expect("the command is there");
    let text = String::from_utf8_lossy(&output.stdout);
    let number = text.trim().rsplit(' ').next().and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("no number: {text} {output:?}"))
}

/// Asserts that more than half of the pages that the guest has freed are no longer stored.
fn assert_given_up(before: usize, after: usize, freed: usize) {
    println!("stored pages: {before} before, {after} after");
    assert!(before.saturating_sub(after) > freed * 256 / 2, "{before} before, {after} after");
}

/// Asserts that the guest was right, and its memory stored.
fn assert_right(run: &Run, work: Work) {
    println!("{run}\n{}", run.stderr);
    let said = String::from_utf8_lossy(&run.stdout);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(said.contains(&work.right()), "{said}; {}", run.stderr);
    run.assert_stored();
    assert_eq!(run.stats().count("managed_processes"), 1);
}

/// Runs a guest in a third of its memory. The balloon takes what the guest frees, and gives it
/// back.
fn balloon(guest: &Guest, accelerator: Accelerator) {
    let job = guest.job(MIB, accelerator, WORK).args(["-device", "virtio-balloon-pci"]);
    let live = Live::start(&job, Some(BUDGET));
    let mut control = Control::connect(&guest.socket());
    live.wait_for_output("guest: freed", HANG);
    let before = stored_pages(&live);
    let left = Bytes::mib(MIB - WORK.freed);
    control.balloon(left);
    live.wait_for_output("guest: small", HANG);
    assert_eq!(control.left(), left);
    assert_given_up(before, stored_pages(&live), WORK.freed);
    control.balloon(Bytes::mib(MIB));
    let run = live.finish(HANG);
    assert_right(&run, WORK);
    run.assert_within_budget();
}

#[test]
fn a_guest_and_its_balloon_live_in_a_third_of_its_memory() {
    let Some(guest) = Guest::new() else { return };
    balloon(&guest, TCG);
}

#[test]
fn a_guest_of_kvm_lives_in_a_third_of_its_memory() {
    let Some(guest) = Guest::new() else { return };
    let work = Work { held: 1, rounds: 1, freed: 0 };
    let live = Live::start(&guest.job(SMALL_MIB, Accelerator::Kvm, work), None);
    let has_ended = live.wait_output_end(START_MAX);
    if !has_ended || !String::from_utf8_lossy(&live.output()).contains(&work.right()) {
        return println!("skipped: KVM starts no guest with Debian's kernel here");
    }
    drop(live);
    balloon(&guest, Accelerator::Kvm);
}

#[test]
fn what_a_guest_reports_as_free_is_given_up() {
    let Some(guest) = Guest::new() else { return };
    // The guest waits for the balloon as long as this test needs it to.
    let backend = format!("memory-backend-ram,id=ram,size={MIB}M");
    let job = guest
        .job(MIB, TCG, WORK)
        .args(["-device", "virtio-balloon-pci,free-page-reporting=on"])
        .args(["-object", &backend, "-machine", "memory-backend=ram"])
        .args(["-sandbox", SANDBOX]);
    let live = Live::start(&job, Some(BUDGET));
    let mut control = Control::connect(&guest.socket());
    live.wait_for_output("guest: freed", HANG);
    let (before, begun) = (stored_pages(&live), Instant::now());
    let given_up = || before.saturating_sub(stored_pages(&live)) > WORK.freed * 256 / 2;
    while !given_up() && begun.elapsed() < REPORT_MAX {
        thread::sleep(Duration::from_millis(200));
    }
    assert_given_up(before, stored_pages(&live), WORK.freed);
    control.balloon(Bytes::mib(MIB - WORK.freed));
    live.wait_for_output("guest: small", HANG);
    control.balloon(Bytes::mib(MIB));
    let run = live.finish(HANG);
    assert_right(&run, WORK);
    run.assert_within_budget();
}

#[test]
fn shared_memory_of_a_guest_is_counted_and_told() {
    let Some(guest) = Guest::new() else { return };
    for backend in ["memory-backend-ram,share=on", "memory-backend-memfd"] {
        let backend = format!("{backend},id=ram,size={SMALL_MIB}M");
        let job = guest
            .job(SMALL_MIB, TCG, SMALL_WORK)
            .args(["-object", &backend, "-machine", "memory-backend=ram"])
            .shares();
        let run = job.managed(Bytes::mib(SMALL_MIB / 2));
        println!("{backend}");
        assert_right(&run, SMALL_WORK);
        let told = run.complaints(&["warning", "cannot be kept", "of shared memory"]);
        assert_eq!(told.len(), 1, "{}", run.stderr);
        let shared = run.stats().at("at_peak", "shared_bytes") as usize;
        assert!(shared > Bytes::mib(SMALL_WORK.held).0, "{shared}: {}", run.stderr);
    }
}

#[test]
fn four_guests_share_one_budget() {
    let Some(guest) = Guest::new() else { return };
    let job = Job::new("guests", "sh")
        .arg(fixture("guests.sh"))
        .arg(guest.folder())
        .args([COUNT.to_string(), SMALL_MIB.to_string()])
        .args(Guest::words(TCG, SMALL_WORK));
    let plain = job.plain();
    println!("{plain}");
    let said = String::from_utf8_lossy(&plain.stdout);
    assert_eq!(said.matches(&SMALL_WORK.right()).count(), COUNT, "{said} {}", plain.stderr);
    // A third of what the guests have, with all that their QEMUs hold.
    let run = job.managed(Bytes::mib(COUNT * SMALL_MIB / 3));
    println!("{run}\n{}", run.stderr);
    run.assert_same(&plain);
    run.assert_stored();
    run.assert_within_budget();
    assert!(run.stats().count("managed_processes") >= COUNT as u64, "{}", run.stderr);
}

/// Firecracker and Cloud Hypervisor are static, or forbid their threads all calls but those that
/// they make.
#[test]
fn a_static_program_that_forbids_itself_nearly_every_call_is_managed() {
    let Some(compiler) = require("musl-gcc") else { return };
    let scratch = Scratch::new("strict");
    let program = scratch.path("strict");
    let mut command = Command::new(compiler);
    command.args(["-static", "-O2", "-o"]).arg(&program).arg(fixture("strict.c"));
    assert!(command.status().expect("the compiler starts").success(), "{command:?}");
    check(&Job::new("strict", program).arg("64"), &[Fraction::Half, Fraction::Quarter]);
}
