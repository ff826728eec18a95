"""The commands as packages have them: the same bytes wherever they are built.

They are built of copies of the tree, by cargo-auditable, which writes into each what it was built
of. Paths of this machine are mapped away, and there are no symbols.
"""

import filecmp
import os
import shutil
import subprocess
from pathlib import Path

GLIBC = "x86_64-unknown-linux-gnu"
MUSL = "x86_64-unknown-linux-musl"
# What the installed command may take.
COMMAND_BYTES_MAX = 6_000_000


def run(words, **options):
    """Runs a command, which must succeed; returns its standard output."""
    done = subprocess.run([str(word) for word in words], stdout=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, text=True, check=False, **options)
    if done.returncode != 0:
        raise SystemExit(f"packages: status {done.returncode}: {' '.join(map(str, words))}\n"
                         f"{done.stdout}")
    return done.stdout


def epoch(tree):
    """The time of the last commit, for files in packages; without git that of the changelog."""
    told = os.environ.get("SOURCE_DATE_EPOCH")
    if told is None and (tree / ".git").exists():
        told = run(["git", "-C", tree, "log", "-1", "--format=%ct"]).strip()
    return told or str(int((tree / "CHANGELOG.md").stat().st_mtime))


def copy_tree(tree, place):
    """Makes the files in `place` those of the tree that git knows, as they are now. What is the
    same stays, and so does what was built of it."""
    listed = run(["git", "-C", tree, "ls-files", "-z", "--cached", "--others",
                  "--exclude-standard"])
    names = {name for name in listed.split("\0") if name and os.path.lexists(tree / name)}
    for name in names:
        old, new = tree / name, place / name
        new.parent.mkdir(parents=True, exist_ok=True)
        if old.is_symlink():
            new.unlink(missing_ok=True)
            new.symlink_to(os.readlink(old))
        elif not new.exists() or not filecmp.cmp(old, new, shallow=False):
            shutil.copy(old, new)
    for folder, folders, files in os.walk(place):
        if Path(folder) == place and "target" in folders:
            folders.remove("target")
        for file in files:
            path = Path(folder) / file
            if str(path.relative_to(place)) not in names:
                path.unlink()


class Build:
    """The two commands, built of the copy of the tree in one place."""

    def __init__(self, place, time):
        self.place = place
        self.target = place / "target"
        cargo = os.environ.get("CARGO_HOME", Path.home() / ".cargo")
        remaps = [(place, "."), (cargo, "cargo"), (self.target, "target")]
        self.environment = {
            **os.environ,
            "CARGO_TARGET_DIR": str(self.target),
            "CARGO_PROFILE_RELEASE_DEBUG": "false",
            "CARGO_PROFILE_RELEASE_STRIP": "symbols",
            "RUSTFLAGS": " ".join(f"--remap-path-prefix={old}={new}" for old, new in remaps),
            "SOURCE_DATE_EPOCH": time,
        }

    def build(self, machine):
        self.run(["cargo", "auditable", "build", "--locked", "--release", "--quiet",
                  "--package", "coldpress-cli", "--target", machine])

    def run(self, words):
        return run(words, cwd=self.place, env=self.environment)

    def command(self, machine):
        return self.target / machine / "release/coldpress"


def check_same(one, two, machine):
    """Fails unless both builds gave the same bytes, and few enough."""
    first, second = (build.command(machine).read_bytes() for build in (one, two))
    if first != second:
        raise SystemExit(f"packages: {one.command(machine)} and {two.command(machine)} differ")
    if len(first) > COMMAND_BYTES_MAX:
        raise SystemExit(f"packages: the command for {machine} has {len(first)} bytes, at most "
                         f"{COMMAND_BYTES_MAX}")
    return len(first)
