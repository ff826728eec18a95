//! The line that mends, by the place and by what is missing there.

use super::host::DEVICE;
use super::place::{Container, SpillPlace};

/// The command that opens the device to a group for good, and puts the user into the group.
const UDEV_RULE: &str = "sudo groupadd -rf userfaultfd && \
    sudo usermod -aG userfaultfd \"$(id -un)\" && \
    echo 'KERNEL==\"userfaultfd\", GROUP=\"userfaultfd\", MODE=\"0660\"' | \
    sudo tee /etc/udev/rules.d/60-userfaultfd.rules && sudo udevadm control --reload && \
    sudo udevadm trigger --name-match=userfaultfd, then log in again";
pub(super) const SYSCTL: &str = "sudo sysctl -w vm.unprivileged_userfaultfd=1";
/// The command for the host of a container whose user may not open the device.
const HOST_GROUP: &str = "on the host: sudo groupadd -rf userfaultfd && \
    sudo chgrp userfaultfd /dev/userfaultfd && sudo chmod 660 /dev/userfaultfd";
const NO_USERFAULTFD: &str = "boot a kernel built with CONFIG_USERFAULTFD=y";
/// The advice for SELinux: its refusals have the class anon_inode (Linux 5.17), which a policy must
/// know.
const SELINUX: &str = "SELinux may refuse it (class anon_inode); see: sudo ausearch -m avc -ts \
    recent, and allow it: sudo ausearch -m avc -ts recent | audit2allow -M coldpress && sudo \
    semodule -i coldpress.pp";

/// The reason why there is no userfaultfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closed {
    /// The kernel has no userfaultfd.
    Absent,
    /// There is no device, and this user may not make the call.
    NoDevice,
    /// There is a device, but this user may not open it.
    Device,
}

/// Returns how to get a userfaultfd.
pub(super) fn access(place: &SpillPlace, closed: Closed) -> String {
    let line = match (place.container, closed) {
        (Container::None, Closed::Absent) => NO_USERFAULTFD.to_owned(),
        (Container::None, Closed::NoDevice) => SYSCTL.to_owned(),
        (Container::None, Closed::Device) => {
            format!("{UDEV_RULE}; or until the next boot: {SYSCTL}")
        }
        (Container::Docker, Closed::Device) => in_container(
            "docker",
            "--group-add \"$(getent group \
            userfaultfd | cut -d: -f3)\"",
        ),
        (Container::Podman, Closed::Device) => in_container("podman", "--group-add keep-groups"),
        (Container::Docker, _) => {
            format!("start the container with: docker run --device {DEVICE} ...")
        }
        (Container::Podman, _) => format!(
            "start the container with: podman run --device {DEVICE} ...; without root, the user \
             of the host must be allowed to open it: {HOST_GROUP}"
        ),
        (Container::Kubernetes, _) => format!(
            "give the pod {DEVICE}: by a device plugin in resources.limits, as \
             generic-device-plugin, or securityContext: {{privileged: true}}"
        ),
        (Container::Other, _) => format!("give the container {DEVICE}, open to its user"),
    };
    if place.selinux { format!("{line}; {SELINUX}") } else { line }
}

fn in_container(command: &str, group: &str) -> String {
    format!(
        "the device is here, but closed to this user: run as root in the container; or, \
         {HOST_GROUP}, and start the container with: {command} run --device {DEVICE} {group} ..."
    )
}

/// Returns how to have the calls `names` let through.
pub(super) fn calls(place: &SpillPlace, names: &[&str]) -> String {
    let what = names.join(", ");
    let quoted: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
    let added = format!("with {} among the names that are allowed", quoted.join(", "));
    let file = format!("where FILE is a copy of its default profile {added}");
    match place.container {
        Container::Docker => format!(
            "allow {what}: docker run --security-opt seccomp=FILE --device {DEVICE} ..., {file}; \
             or --security-opt seccomp=unconfined"
        ),
        Container::Podman => format!(
            "allow {what}: podman run --security-opt seccomp=FILE --device {DEVICE} ..., where \
             FILE is a copy of /usr/share/containers/seccomp.json {added}; or --security-opt \
             seccomp=unconfined"
        ),
        Container::Kubernetes => format!(
            "allow {what}: securityContext: {{seccompProfile: {{type: Localhost, localhostProfile: \
             FILE}}}}, {file} below /var/lib/kubelet/seccomp of the node; or {{type: Unconfined}}"
        ),
        Container::Other => format!("allow {what} in the seccomp profile of the container"),
        Container::None if place.is_filtered => format!(
            "allow {what} in the seccomp filter here: for a unit of systemd, \
             SystemCallFilter={} in a drop-in (systemctl edit UNIT)",
            names.join(" ")
        ),
        Container::None if place.selinux => SELINUX.to_owned(),
        Container::None => format!(
            "find out who refuses {what}: a security module (sudo dmesg | tail), or a kernel \
             without it (uname -r)"
        ),
    }
}

/// Returns other possible causes when nothing was refused and yet nothing was managed.
pub(super) fn unknown(place: &SpillPlace) -> String {
    let mut causes = Vec::new();
    if place.is_filtered {
        causes.push(match place.container {
            Container::Docker => "try without the profile: docker run --security-opt \
                seccomp=unconfined ..."
                .to_owned(),
            Container::Podman => "try without the profile: podman run --security-opt \
                seccomp=unconfined ..."
                .to_owned(),
            Container::Kubernetes => "try without the profile: securityContext: {seccompProfile: \
                {type: Unconfined}}"
                .to_owned(),
            _ => "try without the seccomp filter that is in force here".to_owned(),
        });
    }
    if place.selinux {
        causes.push(SELINUX.to_owned());
    }
    if !place.zero_limits.is_empty() {
        causes.push(format!("{} forbids something here", place.zero_limits.join(", ")));
    }
    causes.push("look at the limits (ulimit -a) and try as root".to_owned());
    causes.join("; ")
}

/// Returns how to get a ring of io_uring.
pub(super) fn io_uring(place: &SpillPlace) -> String {
    let disabled = place.io_uring_disabled.as_deref().is_some_and(|setting| setting != "0");
    match (disabled, place.container) {
        (true, Container::None) => "sudo sysctl -w kernel.io_uring_disabled=0".to_owned(),
        (true, _) => "on the host: sudo sysctl -w kernel.io_uring_disabled=0; and the container's \
            seccomp profile must allow io_uring_setup and io_uring_enter"
            .to_owned(),
        (false, _) => calls(place, &["io_uring_setup", "io_uring_register", "io_uring_enter"]),
    }
}

#[cfg(test)]
mod tests {
    //! The risk: a line that cannot be pasted, or is for another place.

    use super::*;

    fn place(container: Container) -> SpillPlace {
        SpillPlace {
            container,
            is_filtered: true,
            selinux: false,
            ptrace_scope: None,
            io_uring_disabled: None,
            unprivileged_userfaultfd: Some("0".to_owned()),
            zero_limits: Vec::new(),
        }
    }

    #[test]
    fn each_place_has_a_line_of_its_own() {
        for (container, parts) in [
            (Container::Docker, ["docker run --device", "docker run --security-opt seccomp="]),
            (Container::Podman, ["podman run --device", "podman run --security-opt seccomp="]),
            (Container::Kubernetes, ["device plugin", "seccompProfile"]),
            (Container::Other, ["give the container", "of the container"]),
            (Container::None, ["sysctl -w vm.unprivileged", "SystemCallFilter=close_range"]),
        ] {
            let place = place(container);
            let lines = [access(&place, Closed::NoDevice), calls(&place, &["close_range"])];
            for (line, part) in lines.iter().zip(parts) {
                assert!(line.contains(part), "{part} is not in: {line}");
            }
            assert!(lines[1].contains("close_range") && !unknown(&place).is_empty());
        }
    }

    #[test]
    fn selinux_and_the_setting_of_io_uring_are_named_where_they_are_in_force() {
        let mut place = place(Container::None);
        assert!(!access(&place, Closed::Device).contains("SELinux"));
        assert!(io_uring(&place).contains("SystemCallFilter"));
        place.selinux = true;
        place.is_filtered = false;
        place.io_uring_disabled = Some("2".to_owned());
        assert!(access(&place, Closed::Device).contains("anon_inode"));
        assert!(calls(&place, &["userfaultfd"]).contains("audit2allow"));
        assert!(unknown(&place).contains("anon_inode"));
        assert!(io_uring(&place).contains("kernel.io_uring_disabled=0"));
    }
}
