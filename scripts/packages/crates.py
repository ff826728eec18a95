"""Installation by cargo, out of packages, and by make, out of the tree."""

import hashlib
import json
import os
import shutil
import time

import make
from release import run


def add_rows(checks, table):
    """Packages all crates, and installs the command in each way."""
    begun = time.monotonic()
    folder = make.crates(checks.build, checks.out)
    count = len(list(folder.iterdir()))
    table.add("crates", folder, begun, f"cargo package --workspace: {count} built, each by itself")
    for name, install in (
        ("cargo install, of the packages", from_packages),
        ("make build, make install", from_source),
    ):
        begun = time.monotonic()
        with checks.root(checks.base) as root:
            install(checks, root, folder)
            command = root.place / "usr/local/bin/coldpress"
            kept = checks.out / "command"
            shutil.copy(command, kept)
            table.add(name, kept, begun, root.main_job())
            kept.unlink()


def from_packages(checks, root, folder):
    """Installs as of a registry that has our packages: a folder with what they need beside them
    (`cargo vendor`), in the place of crates.io. No network."""
    home = checks.out / "cargo-home"
    vendor = home / "vendor"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    checks.build.run(["cargo", "vendor", "--quiet", "--locked", "--versioned-dirs", vendor])
    for package in folder.iterdir():
        run(["tar", "--extract", "--file", package, "--directory", vendor])
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        (vendor / package.stem / ".cargo-checksum.json").write_text(
            json.dumps({"files": {}, "package": digest}))
    (home / "config.toml").write_text(
        f'[source.crates-io]\nreplace-with = "packages"\n'
        f'[source.packages]\ndirectory = "{vendor}"\n')
    run(["/bin/sh", "-ec", checks.line("cargo install")], cwd=checks.build.place,
        env=environment(checks, root, CARGO_HOME=str(home), CARGO_NET_OFFLINE="true",
                        CARGO_TARGET_DIR=str(home / "target")))
    shutil.rmtree(home)


def from_source(checks, root, _):
    """Runs README's line for that, with the root in front of where it installs to."""
    line = checks.line("make build").replace("sudo ", "")
    run(["/bin/sh", "-ec", line], cwd=checks.build.place,
        env=environment(checks, root, TARGET=str(checks.build.target), DESTDIR=str(root.place)))


def environment(checks, root, **more):
    """The environment of a user: the flags are not ours."""
    ours = {"RUSTFLAGS", "CARGO_PROFILE_RELEASE_DEBUG", "CARGO_PROFILE_RELEASE_STRIP"}
    kept = {name: value for name, value in os.environ.items() if name not in ours}
    return {**kept, "CARGO_INSTALL_ROOT": str(root.place / "usr/local"), **more}
