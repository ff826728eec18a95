"""Each package, installed in a clean root by README's line, and its main job there.

Each check returns what ran, in words.
"""

import json
import re
import shutil
import subprocess
import sys
import zlib

import make
import oci
from release import GLIBC, MUSL, run
from roots import AWK, Root, check_job


class Checks:
    """What the checks share: the tree, the build, the folder of packages, and Debian's root."""

    def __init__(self, build, out, version, base):
        self.build, self.out, self.version, self.base = build, out, version, base
        readme = (build.place / "README.md").read_text()
        self.lines = readme.split("## Install\n")[1].split("\n## ")[0].splitlines()

    def line(self, words):
        """The line of README's "Install" with these words, without its comment."""
        (line,) = [line for line in self.lines if line.startswith("    ") and words in line]
        return line.split("  #")[0].strip()

    def root(self, base=None):
        return Root(self.out / "root", base)

    def brought(self, root, package):
        """Copies a package to where README's lines find it."""
        shutil.copy(package, root.place / "tmp")

    def check_files(self, files, place="/usr"):
        """Compares the files of a package with those of `make install`."""
        stage = self.out / "stage"
        make.install(self.build, stage, place, self.build.command(GLIBC))
        wanted = {f"/{path.relative_to(stage)}" for path in stage.rglob("*") if path.is_file()}
        shutil.rmtree(stage)
        # Debian keeps completions for zsh elsewhere, and wants a copyright.
        files = {name.replace("/vendor-completions/", "/site-functions/") for name in files}
        files -= {"/usr/share/doc/coldpress/copyright"}
        # Debian's tools press man pages.
        files = {name.removesuffix(".gz") for name in files}
        assert files == wanted, f"too much or too few: {sorted(files ^ wanted)}"
        return f"{len(files)} files"

    def deb(self, package):
        with self.root(self.base) as root:
            self.brought(root, package)
            root.shell(self.line(".deb"))
            listed = root.done("dpkg-query", "--listfiles", "coldpress").split()
            files = {name for name in listed if not (root.place / name[1:]).is_dir()}
            checked = self.check_files(files)
            self.check_command(root)
            on = [it for place in ("etc", "usr/lib") for it in (root.place / place).rglob("*.rules")
                  if "userfaultfd" in it.name]
            assert not on, f"the rule is on: {on}"
            root.done("coldpress", "doctor", "--disk", "none")
            ran = root.main_job()
            root.done("dpkg", "--purge", "coldpress")
            assert not (root.place / "usr/bin/coldpress").exists()
        return f"{checked}; {ran}; purged"

    def rpm(self, package):
        listed = set(run(["rpm", "--query", "--list", "--package", package]).split())
        checked = self.check_files(listed)
        needs = run(["rpm", "--query", "--requires", "--package", package])
        assert "libc.so.6(GLIBC_" in needs, needs
        packed = subprocess.run(["rpm2cpio", package], stdout=subprocess.PIPE, check=True).stdout
        inside = subprocess.run(["cpio", "--list", "--quiet"], input=packed, check=True,
                                stdout=subprocess.PIPE).stdout.decode().split()
        assert {name.removeprefix(".") for name in inside} >= listed, inside
        with self.root(self.base) as root:
            self.brought(root, package)
            # Debian's database knows no package of Fedora's, by which libc would be found.
            root.shell(self.line(".rpm") + " --nodeps")
            self.check_command(root)
            ran = root.main_job()
        return f"{checked}; {ran}"

    def check_command(self, root):
        """Fails unless the command in the root is the one that was built."""
        installed = (root.place / "usr/bin/coldpress").read_bytes()
        assert installed == self.build.command(GLIBC).read_bytes(), "another command"

    def tarball(self, package):
        prefix = f"/coldpress-{self.version}-{MUSL}"
        members = run(["tar", "--list", "--file", package]).split()
        files = {f"/{name}" for name in members if not name.endswith("/")}
        checked = self.check_files(files, prefix)
        self.check_binstall(package, members)
        with self.root() as root:
            self.brought(root, package)
            # The root has no shell and no tar: the line runs from outside, on its /usr/local.
            (root.place / "usr/local").mkdir(parents=True)
            line = self.line(".tar.gz").removeprefix("sudo ")
            line = line.replace("/usr/local", str(root.place / "usr/local"))
            run(["/bin/sh", "-ec", f"cd {root.place}/tmp && {line}"])
            assert sorted(it.name for it in root.place.iterdir()) == ["dev", "proc", "tmp", "usr"]
            ran = root.main_job("/usr/local/bin/coldpress")
        return f"{checked}; in an empty root: {ran}"

    def check_binstall(self, package, members):
        """Fails unless `package.metadata.binstall` names the tarball and the command in it."""
        told = self.metadata()["binstall"]
        filled = {"repo": self.command_package()["repository"], "version": self.version,
                  "target": MUSL, "bin": "coldpress"}

        def fill(text):
            return re.sub(r"\{ (\S+) \}", lambda name: filled[name[1]], text)

        assert fill(told["pkg-url"]).endswith(f"/v{self.version}/{package.name}"), told
        assert told["pkg-fmt"] == "tgz" and fill(told["bin-dir"]) in members, told

    def command_package(self):
        told = json.loads(self.build.run(["cargo", "metadata", "--no-deps", "--format-version",
                                          "1"]))
        (package,) = [it for it in told["packages"] if it["name"] == "coldpress-cli"]
        return package

    def metadata(self):
        return self.command_package()["metadata"]

    def image(self, place):
        _, config = oci.check(place)
        entry = config["config"]["Entrypoint"]
        assert entry == ["/coldpress"], config
        with self.root() as root:
            layer = next(blob for blob in (place / "blobs/sha256").iterdir()
                         if config["rootfs"]["diff_ids"] == [f"sha256:{blob.name}"])
            run(["tar", "--extract", "--file", layer, "--directory", root.place])
            ran = root.main_job(entry[0])
        return f"digests; unpacked: {ran}; {self.in_podman(place)}"

    def in_podman(self, place):
        """Runs the main job in the image by Podman, which reads the layout itself."""
        if not shutil.which("podman"):
            return "Podman skipped: it is not here"
        store = self.out / "podman"
        podman = ["podman", "--root", store / "store", "--runroot", store / "run", "--tmpdir",
                  store / "tmp", "--storage-driver", "vfs", "--runtime", "runc"]
        options = ["--rm", "--network", "none", "--device", "/dev/userfaultfd", "--ulimit",
                   "nofile=1024:1024", "--ulimit", "nproc=1024:1024", "--volume",
                   f"{shutil.which('busybox')}:/busybox:ro"]

        def enter(program, *words):
            done = subprocess.run([*podman, "run", *options, "--entrypoint", program, name, *words],
                                  capture_output=True, text=True, check=False)
            return done.returncode, done.stdout, done.stderr

        try:
            name = run([*podman, "pull", "--quiet", f"oci:{place}"], stderr=sys.stderr).strip()
            return "Podman: " + check_job(enter, "/coldpress", ["/busybox", "awk", AWK])
        finally:
            subprocess.run([*podman, "rmi", "--all", "--force"], check=False, capture_output=True)
            shutil.rmtree(store)

    def bill(self, path):
        """Compares the bill of materials with what cargo-auditable wrote into the command."""
        document = json.loads(path.read_text())
        listed = {(it["name"], it["version"]) for it in document["components"]}
        assert document["bomFormat"] == "CycloneDX" and all(
            it["purl"].startswith("pkg:cargo/") for it in document["components"])
        inside = self.audited(self.build.command(GLIBC))
        missing = inside - listed - {("coldpress-cli", self.version)}
        assert not missing, f"in the command and not in the bill: {missing}"
        return f"CycloneDX {document['specVersion']}: {len(listed)} crates, with all in the command"

    def audited(self, command):
        """The crates that a command tells of in its section `.dep-v0`: zlib over JSON."""
        section = self.out / "dep-v0"
        run(["objcopy", "--dump-section", f".dep-v0={section}", command, "/dev/null"])
        told = json.loads(zlib.decompress(section.read_bytes()))
        section.unlink()
        return {(it["name"], it["version"]) for it in told["packages"]
                if it.get("kind", "runtime") == "runtime"}

    def audit(self, _):
        told = [self.audited(self.build.command(machine)) for machine in (GLIBC, MUSL)]
        for crates in told:
            assert {("coldpress-cli", self.version), ("coldpress-runtime", self.version)} <= crates
        return f"{len(told[0])} crates in the command for glibc, {len(told[1])} in the static one"
