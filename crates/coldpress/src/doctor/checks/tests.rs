//! The risk: on a machine that cannot run programs, the user learns the wrong thing, or nothing.
//! The hosts here are those of the field: an ordinary user, containers, old kernels, Alpine.

use coldpress_common::cgroup::Limit;
use coldpress_sys::SysError;

use super::*;
use crate::doctor::Level;
use crate::doctor::place::Container;

fn error(call: &'static str, errno: Errno) -> SysError {
    SysError { call, errno: errno.raw_os_error() }
}

/// Returns the record of root on a current kernel.
fn good_faults() -> Faults {
    Faults {
        kernel_release: "6.18.44-generic".to_owned(),
        device: Ok(FEATURES_NEEDED | 1),
        syscall: Ok(FEATURES_NEEDED | 1),
        has_capability: true,
        place: place(Container::None),
        page_scan: Ok(()),
    }
}

/// Returns a place without a filter, with the settings of most machines.
fn place(container: Container) -> SpillPlace {
    SpillPlace {
        container,
        is_filtered: false,
        selinux: false,
        ptrace_scope: Some("1".to_owned()),
        io_uring_disabled: Some("0".to_owned()),
        unprivileged_userfaultfd: Some("0".to_owned()),
        zero_limits: Vec::new(),
    }
}

fn good_host() -> Host {
    Host {
        faults: good_faults(),
        trial: Some(Ok(Duration::from_millis(40))),
        machine: Some(Bytes::mib(8192)),
        limit: None,
        disk: Some(("/var/tmp".into(), Disk::Usable(Bytes::mib(1000)))),
        disk_is_named: false,
        huge_pages: Some("madvise".to_owned()),
        io_uring: Ok(()),
        sees_forks: true,
    }
}

/// Returns the record of an ordinary user on an ordinary machine.
fn user_faults() -> Faults {
    Faults {
        device: Err(error("open", Errno::ACCESS)),
        syscall: Err(error("userfaultfd", Errno::PERM)),
        has_capability: false,
        ..good_faults()
    }
}

fn finding_of<'a>(findings: &'a [Finding], what: &str) -> &'a Finding {
    findings.iter().find(|finding| finding.what == what).unwrap()
}

#[test]
fn a_good_host_has_nothing_to_mend() {
    let findings = of_host(&good_host());
    assert!(findings.iter().all(|finding| finding.level == Level::Ok), "{findings:?}");
    assert_eq!(findings.len(), 10);
    assert_eq!(best_access(&good_faults()), Some(Access::Device));
}

#[test]
fn whatever_is_not_ok_says_what_mends_it() {
    let worst = Host {
        faults: Faults {
            kernel_release: "5.15.0-1".to_owned(),
            page_scan: Err(error("ioctl(PAGEMAP_SCAN)", Errno::NOTTY)),
            ..user_faults()
        },
        trial: Some(Err(Obstacle::Other("none".to_owned()))),
        machine: None,
        limit: None,
        disk: Some(("/absent".into(), Disk::Unusable(error("open(O_TMPFILE)", Errno::NOENT)))),
        disk_is_named: false,
        huge_pages: None,
        io_uring: Err(error("io_uring_setup", Errno::PERM)),
        sees_forks: false,
    };
    let findings = of_host(&worst);
    for finding in &findings {
        assert_eq!(finding.level == Level::Ok, finding.fix.is_none(), "{finding:?}");
    }
    let failed = findings.iter().filter(|finding| finding.level == Level::Fail).count();
    assert_eq!(failed, 5, "{findings:?}");
    // `run` goes on without the default directory, but not without a named one.
    let findings = of_host(&Host { disk_is_named: true, ..worst });
    assert_eq!(finding_of(&findings, "disk").level, Level::Fail);
}

#[test]
fn kernels_are_told_apart_by_number_not_by_text() {
    for (release, level) in [
        ("6.8.0", Level::Ok),
        ("6.18.44-fc", Level::Ok),
        ("6.10", Level::Ok),
        ("7.0.1", Level::Ok),
        ("6.7.12", Level::Fail),
        ("5.15.0-91-generic", Level::Fail),
        ("strange", Level::Warn),
    ] {
        let finding = kernel(release);
        assert_eq!(finding.level, level, "{release}");
        assert!(finding.to_string().contains(release) && finding.to_string().contains("6.8"));
    }
}

#[test]
fn a_kernel_without_move_is_named_by_what_it_lacks() {
    let faults = Faults {
        device: Ok(FEATURES_NEEDED & !FEATURE_MOVE),
        syscall: Ok(FEATURES_NEEDED & !FEATURE_MOVE),
        ..good_faults()
    };
    let findings = of_faults(&faults);
    let finding = finding_of(&findings, "userfaultfd");
    assert_eq!(finding.level, Level::Fail);
    assert!(finding.finding.contains("lacks MOVE ("), "{finding}");
    assert!(finding.fix.as_ref().unwrap().contains("6.8"), "{finding}");
}

#[test]
fn an_ordinary_user_is_told_every_reason_and_the_rule() {
    let finding = access(&user_faults());
    assert_eq!(finding.level, Level::Fail);
    let line = finding.to_string();
    for part in [
        "/dev/userfaultfd: open: EACCES",
        "userfaultfd: EPERM",
        "without CAP_SYS_PTRACE",
        "vm.unprivileged_userfaultfd=0",
        "KERNEL==\"userfaultfd\", GROUP=\"userfaultfd\", MODE=\"0660\"",
        "udevadm trigger",
        "sysctl -w",
    ] {
        assert!(line.contains(part), "{part} is not in: {line}");
    }
}

#[test]
fn packages_bring_the_rule_that_is_told() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/60-userfaultfd.rules");
    let file = std::fs::read_to_string(file).expect("it is in the tree");
    let rule = file.lines().find(|line| !line.starts_with('#')).expect("a rule");
    let told = access(&user_faults()).to_string();
    assert!(told.contains(rule), "{rule} is not in: {told}");
}

#[test]
fn a_container_needs_the_device() {
    let faults = Faults {
        device: Err(error("open", Errno::NOENT)),
        syscall: Err(error("userfaultfd", Errno::NOSYS)),
        place: place(Container::Docker),
        ..user_faults()
    };
    assert!(access(&faults).fix.unwrap().contains("docker run --device /dev/userfaultfd"));
}

#[test]
fn a_device_that_is_closed_to_the_user_of_a_container_is_told_from_none() {
    let faults = Faults { place: place(Container::Docker), ..user_faults() };
    let fix = access(&faults).fix.unwrap();
    assert!(fix.contains("closed to this user") && fix.contains("--group-add"), "{fix}");
}

#[test]
fn a_kernel_without_userfaultfd_is_told_from_a_closed_device() {
    let faults = Faults {
        device: Err(error("open", Errno::NOENT)),
        syscall: Err(error("userfaultfd", Errno::NOSYS)),
        ..user_faults()
    };
    assert!(access(&faults).fix.unwrap().contains("CONFIG_USERFAULTFD"));
    let no_device = Faults { device: faults.device, ..user_faults() };
    assert_eq!(access(&no_device).fix.unwrap(), mend::SYSCTL);
}

#[test]
fn the_system_call_alone_is_enough_but_not_for_programs_that_drop_rights() {
    let by_capability = Faults { device: Err(error("open", Errno::NOENT)), ..good_faults() };
    assert_eq!(best_access(&by_capability), Some(Access::Syscall));
    assert_eq!(access(&by_capability).level, Level::Warn);
    let mut by_sysctl = Faults { has_capability: false, ..by_capability };
    by_sysctl.place.unprivileged_userfaultfd = Some("1".to_owned());
    assert_eq!(access(&by_sysctl).level, Level::Ok);
}

#[test]
fn limits_and_disks_are_shown_with_their_numbers() {
    let limit = Limit { bytes: Bytes::mib(512), file: "/sys/fs/cgroup/a/memory.max".into() };
    let mut host = Host { limit: Some(limit), ..good_host() };
    let line = memory(&host).to_string();
    assert!(line.contains("512 MiB by /sys/fs/cgroup/a/memory.max"), "{line}");
    host.limit = Some(Limit { bytes: Bytes::mib(20), file: "/x".into() });
    assert_eq!(memory(&host).level, Level::Warn);

    host.disk = Some(("/dev/shm".into(), Disk::IsMemory(Bytes::mib(1))));
    let finding = spill(&host);
    assert_eq!(finding.level, Level::Warn);
    assert!(finding.to_string().contains("/dev/shm is tmpfs, which is memory"), "{finding}");
    host.disk = None;
    assert_eq!(spill(&host).level, Level::Ok);
}

#[test]
fn a_trial_that_fails_names_the_call_and_the_line_of_the_place() {
    let filtered = SpillPlace { is_filtered: true, ..place(Container::Podman) };
    let refused = Obstacle::Refused(error("close_range", Errno::PERM));
    for (obstacle, parts) in [
        (refused, ["close_range: EPERM by a seccomp filter", "podman run --security-opt"]),
        (Obstacle::Kills("futex".to_owned()), ["who calls futex is killed", "allow futex"]),
        (Obstacle::Other("nobody came".to_owned()), ["nobody came", "podman run"]),
    ] {
        let finding = of_trial(&filtered, &Err(obstacle));
        assert_eq!(finding.level, Level::Fail);
        for part in parts {
            assert!(finding.to_string().contains(part), "{part} is not in: {finding}");
        }
    }
    assert!(of_trial(&filtered, &Ok(Duration::from_millis(7))).to_string().contains("7 ms"));
}

#[test]
fn hardened_settings_that_cost_something_are_told() {
    let mut faults = user_faults();
    assert_eq!(helper(&faults), None);
    faults.place.ptrace_scope = Some("2".to_owned());
    let fix = helper(&faults).and_then(|finding| finding.fix).unwrap();
    assert!(fix.contains("ptrace_scope=1"), "{fix}");
    assert_eq!(helper(&Faults { has_capability: true, ..faults.clone() }), None);
    faults.place.ptrace_scope = Some("3".to_owned());
    assert!(helper(&Faults { has_capability: true, ..faults }).is_some());
    let late = |scope: &str, has_capability| {
        let place = SpillPlace { ptrace_scope: Some(scope.to_owned()), ..place(Container::None) };
        late(&Faults { has_capability, place, ..good_faults() })
    };
    assert!(late("0", false).is_none() && late("1", true).is_none());
    let told = late("1", false).unwrap();
    assert!(told.to_string().contains("static programs that others start stay unmanaged"));
    assert!(late("3", true).is_some());
    let hardened = SpillPlace { io_uring_disabled: Some("2".to_owned()), ..place(Container::None) };
    let finding = io_uring(&hardened, Err(error("io_uring_setup", Errno::PERM)));
    assert_eq!(finding.fix.as_deref(), Some("sudo sysctl -w kernel.io_uring_disabled=0"));
}
