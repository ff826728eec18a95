//! The place where this runs and its settings, as files of the machine show them, for the line that
//! mends.
//!
//! Every path is below a root, so that files can stand for machines that are not at hand.

use std::env;
use std::fs;
use std::path::Path;

/// The variable in every container that Kubernetes starts.
const KUBERNETES: &str = "KUBERNETES_SERVICE_HOST";

/// The container in which this runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Container {
    /// No known container.
    #[default]
    None,
    Docker,
    Podman,
    /// A container of Kubernetes, by containerd, CRI-O or another runtime.
    Kubernetes,
    /// Another container: LXC, systemd-nspawn, or a runtime by itself.
    Other,
}

impl Container {
    /// Returns the name of the container.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "no container",
            Self::Docker => "Docker",
            Self::Podman => "Podman",
            Self::Kubernetes => "Kubernetes",
            Self::Other => "a container",
        }
    }
}

/// The settings that decide, beside the kernel's answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SpillPlace {
    pub(super) container: Container,
    /// Whether a seccomp filter is in force for this process.
    pub(super) is_filtered: bool,
    /// Whether SELinux enforces its rules here.
    pub(super) selinux: bool,
    /// `kernel.yama.ptrace_scope`.
    pub(super) ptrace_scope: Option<String>,
    /// `kernel.io_uring_disabled`.
    pub(super) io_uring_disabled: Option<String>,
    /// `vm.unprivileged_userfaultfd`.
    pub(super) unprivileged_userfaultfd: Option<String>,
    /// The limits of `user.max_*` that are zero.
    pub(super) zero_limits: Vec<String>,
}

impl SpillPlace {
    /// Returns the place of this machine.
    pub(super) fn here() -> Self {
        Self::below(Path::new("/"))
    }

    /// Returns the place whose files are below `root`.
    pub(super) fn below(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).ok();
        let setting = |path: &str| read(path).map(|text| text.trim().to_owned());
        let status = read("proc/self/status").unwrap_or_default();
        let is_set = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.is_some_and(|value| value.trim() != "0")
        };
        Self {
            container: container_below(root, env::var_os(KUBERNETES).is_some()),
            is_filtered: is_set("Seccomp"),
            selinux: setting("sys/fs/selinux/enforce").is_some_and(|enforces| enforces == "1"),
            ptrace_scope: setting("proc/sys/kernel/yama/ptrace_scope"),
            io_uring_disabled: setting("proc/sys/kernel/io_uring_disabled"),
            unprivileged_userfaultfd: setting("proc/sys/vm/unprivileged_userfaultfd"),
            zero_limits: zero_limits(&root.join("proc/sys/user")),
        }
    }
}

/// Recognizes the container by its traces below `root`: first files that the runtimes make, then
/// the name of the cgroup, which a name space of cgroups hides.
fn container_below(root: &Path, has_kubernetes: bool) -> Container {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let is_in = |names: &[&str]| names.iter().any(|name| groups.contains(name));
    let exists = |path: &str| root.join(path).exists();
    if has_kubernetes || is_in(&["kubepods"]) {
        Container::Kubernetes
    } else if exists("run/.containerenv") || is_in(&["libpod-", "/libpod"]) {
        Container::Podman
    } else if exists(".dockerenv") || is_in(&["/docker/", "/docker-"]) {
        Container::Docker
    } else if is_in(&["/lxc/", "/lxc.payload", "containerd", "/crio-", "/machine.slice"])
        || exists("run/systemd/container")
    {
        Container::Other
    } else {
        Container::None
    }
}

fn zero_limits(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_zero = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.trim() == "0");
    let zeros = entries.filter(|entry| is_zero(&entry.path()));
    let mut names: Vec<_> =
        zeros.map(|entry| format!("user.{}", entry.file_name().to_string_lossy())).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    //! The risk: a user in one container gets the line for another.

    use tempfile::TempDir;

    use super::*;

    /// Makes a machine of these files.
    fn machine(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn a_container_is_known_by_what_its_runtime_leaves() {
        let group = |name: &str| format!("0::{name}\n");
        for (files, container) in [
            (vec![(".dockerenv", String::new())], Container::Docker),
            (vec![("run/.containerenv", "engine=\"podman\"".to_owned())], Container::Podman),
            // Podman's own image of Docker's tools has both.
            (
                vec![("run/.containerenv", String::new()), (".dockerenv", String::new())],
                Container::Podman,
            ),
            (vec![("proc/self/cgroup", group("/docker/0123abcd"))], Container::Docker),
            (vec![("proc/self/cgroup", group("/system.slice/docker-01.scope"))], Container::Docker),
            (
                vec![("proc/self/cgroup", group("/machine.slice/libpod-01.scope/container"))],
                Container::Podman,
            ),
            (
                vec![("proc/self/cgroup", group("/kubepods.slice/kubepods-pod1.slice/cri-x"))],
                Container::Kubernetes,
            ),
            (vec![("proc/self/cgroup", group("/lxc.payload.web"))], Container::Other),
            (vec![("proc/self/cgroup", group("/user.slice/session-1.scope"))], Container::None),
            (vec![], Container::None),
        ] {
            let files: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_str())).collect();
            let root = machine(&files);
            assert_eq!(container_below(root.path(), false), container, "{files:?}");
            assert_eq!(container_below(root.path(), true), Container::Kubernetes);
        }
    }

    #[test]
    fn settings_are_read_below_the_root() {
        let root = machine(&[
            ("proc/self/status", "Name:\tx\nSeccomp:\t2\nSeccomp_filters:\t1\n"),
            ("sys/fs/selinux/enforce", "1"),
            ("proc/sys/kernel/yama/ptrace_scope", "2\n"),
            ("proc/sys/kernel/io_uring_disabled", "2\n"),
            ("proc/sys/vm/unprivileged_userfaultfd", "0\n"),
            ("proc/sys/user/max_user_namespaces", "0\n"),
            ("proc/sys/user/max_net_namespaces", "100\n"),
        ]);
        let place = SpillPlace::below(root.path());
        assert!(place.is_filtered && place.selinux);
        assert_eq!(place.ptrace_scope.as_deref(), Some("2"));
        assert_eq!(place.io_uring_disabled.as_deref(), Some("2"));
        assert_eq!(place.unprivileged_userfaultfd.as_deref(), Some("0"));
        assert_eq!(place.zero_limits, ["user.max_user_namespaces"]);
        let place = SpillPlace::below(machine(&[]).path());
        assert!(!place.is_filtered && !place.selinux);
        assert_eq!(place.zero_limits, [""; 0]);
    }
}
