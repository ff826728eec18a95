"""Roots to install into and run in, and the main job there: a program within a budget, with the
bytes that it has without one."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from release import run

SUITE = "bookworm"
MIRROR = os.environ.get("DEBIAN_MIRROR", "http://deb.debian.org/debian")
BUDGET_MIB = 64
# Both hold more than 90 MiB, and read it in another order than that in which they made it.
PYTHON = """
import hashlib
rows = {}
for number in range(200000):
    rows["%08x" % (number * 2654435761 % 2**32)] = [number, "row %d of the table " % number * 8]
digest = hashlib.sha256()
for key in sorted(rows):
    digest.update(repr(rows[key]).encode())
print(digest.hexdigest())
"""
AWK = """function text(i) {
    i = i " of the table, "
    return i i i i i i i i i i
}
BEGIN {
    for (i = 0; i < 300000; i++) row[i] = text(i)
    for (i = 0; i < 300000; i++) {
        at = i * 7919 % 300000
        sum = (sum * 31 + at % 977) % 1000003
        if (row[at] != text(at)) exit 1
    }
    print sum
}"""
# Mounts what the kernel makes, and enters.
ENTER = r"""mount -t proc proc "$0/proc" && for file in userfaultfd null; do
    { [ -e "$0/dev/$file" ] || touch "$0/dev/$file"; } &&
    mount --bind "/dev/$file" "$0/dev/$file" || exit; done && exec chroot "$0" "$@" """


def debian(cache):
    """Debian's smallest root with python3 and rpm, made once by debootstrap."""
    base = cache / f"root-{SUITE}"
    if not base.exists():
        new = cache / "root.new"
        shutil.rmtree(new, ignore_errors=True)
        print(f"packages: fetching Debian's {SUITE} into {base}", file=sys.stderr)
        run(["debootstrap", "--variant=minbase", "--include=python3-minimal,rpm", SUITE, new,
             MIRROR], stderr=sys.stderr)
        # Installation lines are those of a user.
        sudo = new / "usr/local/bin/sudo"
        sudo.write_text('#!/bin/sh\nexec "$@"\n')
        sudo.chmod(0o755)
        new.rename(base)
    return base


class Root:
    """A fresh root that goes with the `with`."""

    def __init__(self, place, base=None):
        self.place = place
        shutil.rmtree(place, ignore_errors=True)
        if base:
            run(["cp", "--archive", "--reflink=auto", base, place])
        for folder in ("dev", "proc", "tmp"):
            (place / folder).mkdir(parents=True, exist_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.place)

    def enter(self, *words):
        """Runs words in the root; returns status, standard output and standard error."""
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "HOME": "/tmp",
                       "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(["/usr/bin/unshare", "--mount", "/bin/sh", "-c", ENTER, self.place,
                               *words], env=environment, stdin=subprocess.DEVNULL, text=True,
                              capture_output=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def done(self, *words):
        code, output, errors = self.enter(*words)
        assert code == 0, f"{words}: status {code}\n{output}{errors}"
        return output

    def shell(self, line, folder="/tmp"):
        """Runs a line of a shell in a folder of the root, which must succeed."""
        return self.done("/bin/sh", "-ec", f"cd {folder} && {line}")

    def main_job(self, command="coldpress"):
        """Runs the job of python3, or of busybox in a root that has nothing else."""
        if (self.place / "usr/bin/python3").exists():
            return check_job(self.enter, command, ["python3", "-c", PYTHON])
        shutil.copy(Path("/bin/busybox").resolve(), self.place / "busybox")
        return check_job(self.enter, command, ["/busybox", "awk", AWK])


def check_job(enter, command, job):
    """Runs the job without a budget, then within one; returns what ran, in words."""
    code, plain, errors = enter(*job)
    assert code == 0, errors
    options = ["--memory", f"{BUDGET_MIB}M", "--disk", "none", "--require-managed"]
    code, within, errors = enter(command, "run", *options, "--", *job)
    assert (code, within) == (0, plain), f"status {code}: {within!r}, not {plain!r}\n{errors}"
    peak = re.search(r"peak ([0-9.]+) MiB of", errors)
    assert peak and float(peak[1]) <= BUDGET_MIB, errors
    assert " pages compressed" in errors, errors
    program = Path(job[0]).name
    return f"{program}: same bytes, peak {peak[1]} of {BUDGET_MIB} MiB"
