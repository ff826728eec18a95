"""Builds every package, installs each in a clean root, and runs the main job there.

    make packages

The commands are built twice, in two places, and must be the same bytes; so must all packages made
of them. Packages lie in TARGET/packages at the end, beside table.md, which says what each weighs,
what building and checking it took, and what ran. Needs root, for the clean roots.
"""

import argparse
import filecmp
import os
import shutil
import sys
import time
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import crates  # noqa: E402
import make  # noqa: E402
import roots  # noqa: E402
from checks import Checks  # noqa: E402
from release import GLIBC, MUSL, Build, check_same, copy_tree, epoch, run  # noqa: E402

TREE = Path(__file__).resolve().parents[2]
# The two places to build in: names of other lengths and depths.
PLACES = ("build", "again/of-the/same")


class Table:
    """What was built, in rows that are printed as they come."""

    def __init__(self):
        self.rows = [("package", "size", "seconds", "what ran"), ("---", "---", "---", "---")]

    def add(self, name, path, begun, ran):
        size = f"{size_of(path) / 1e6:.2f} MB" if path else ""
        self.rows.append((name, size, f"{time.monotonic() - begun:.0f}", ran))
        print(f"{name}: {size}, {self.rows[-1][2]} s: {ran}", flush=True)

    def text(self):
        return "".join(f"| {' | '.join(row)} |\n" for row in self.rows)


def size_of(path):
    if path.is_file():
        return path.stat().st_size
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def build_twice(out, table):
    """Builds both commands in two places; returns the builds."""
    moment = epoch(TREE)
    builds = [Build(out / place, moment) for place in PLACES]
    for build in builds:
        copy_tree(TREE, build.place)
    for machine in (GLIBC, MUSL):
        begun = time.monotonic()
        for build in builds:
            build.build(machine)
        size = check_same(*builds, machine)
        table.add(f"command for {machine}", builds[0].command(machine), begun,
                  f"two builds in two places: the same {size} bytes")
    return builds


def make_packages(build, out, version):
    """Makes all packages of one build in the folder `out`; returns names with paths."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    return {
        "deb": make.deb(build, out),
        "rpm": make.rpm(build, out),
        "tarball": make.tarball(build, out, version),
        "image": make.image(build, out, version),
        "bill": make.bill(build, out),
    }


def main():
    parser = argparse.ArgumentParser(description="Builds, installs and runs every package.")
    parser.add_argument("target", type=Path, help="the folder for what is built")
    parser.add_argument("--table", type=Path, help="where to keep the table too")
    options = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("packages: only root can make clean roots; run: sudo make packages")
    out = options.target.resolve() / "packages"
    version = tomllib.loads((TREE / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    table = Table()
    builds = build_twice(out, table)

    begun = time.monotonic()
    made, again = (make_packages(build, out / place, version)
                   for build, place in zip(builds, ("made", "made-again")))
    for name, path in made.items():
        both = (path, again[name])
        same = filecmp.cmp(*both, shallow=False) if path.is_file() else not differences(*both)
        assert same, f"{both[0]} and {both[1]} differ"
    table.add("packages of both builds", None, begun, "made twice: the same bytes")
    shutil.rmtree(out / "made-again")

    checks = Checks(builds[0], out / "made", version, roots.debian(out))
    rows = [("Debian package", "deb"), ("RPM package", "rpm"), ("static tarball", "tarball"),
            ("image", "image"), ("bill of materials", "bill")]
    for name, key in rows:
        begun = time.monotonic()
        table.add(name, made[key], begun, getattr(checks, key)(made[key]))
    begun = time.monotonic()
    table.add("cargo auditable", None, begun, checks.audit(None))
    crates.add_rows(checks, table)

    (out / "table.md").write_text(table.text())
    if options.table:
        options.table.write_text(heading(version) + table.text())
    print(table.text(), end="")


def differences(one, two):
    """Returns the files that differ in two folders."""
    found = filecmp.dircmp(one, two)
    below = [differences(one / name, two / name) for name in found.common_dirs]
    _, other, broken = filecmp.cmpfiles(one, two, found.common_files, shallow=False)
    return found.left_only + found.right_only + other + broken + sum(below, [])


def heading(version):
    """What stands above the kept table: the commit and the machine."""
    commit = run(["git", "-C", TREE, "rev-parse", "--short=12", "HEAD"]).strip()
    models = (line for line in open("/proc/cpuinfo") if line.startswith("model name"))
    model = next(models, "model name: unknown").split(":")[1].strip()
    return (f"# Packages of {version}\n\nWritten by `make packages`: each row says what ran. "
            f"Commit {commit} and what was\nchanged after it, on {os.cpu_count()} processors "
            f"({model}).\n\n")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as error:
        raise SystemExit(f"packages: {error}") from error
