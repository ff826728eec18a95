"""Packages of the built commands. Each function writes into a folder and returns the path."""

import gzip
import io
import json
import os
import shutil
import tarfile
from datetime import datetime, timezone

import oci
from release import GLIBC, MUSL, run


def deb(build, out):
    """By cargo-deb, which reads `package.metadata.deb` of the command."""
    build.run(["cargo", "deb", "--no-build", "--no-strip", "--quiet", "--package",
               "coldpress-cli", "--target", GLIBC, "--output", out])
    return only(out, "*.deb")


def rpm(build, out):
    """By cargo-generate-rpm, which reads `package.metadata.generate-rpm` of the command."""
    build.run(["cargo", "generate-rpm", "--package", "crates/coldpress", "--target", GLIBC,
               "--auto-req", "builtin", "--source-date", build.environment["SOURCE_DATE_EPOCH"],
               "--output", out])
    return only(out, "*.rpm")


def only(folder, pattern):
    (made,) = folder.glob(pattern)
    return made


def tarball(build, out, version):
    """What `make install` installs, with the static command; under one folder, for
    `tar --strip-components 1`."""
    name = f"coldpress-{version}-{MUSL}"
    stage = out / "stage"
    install(build, stage, f"/{name}", build.command(MUSL))
    time = int(build.environment["SOURCE_DATE_EPOCH"])
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted([stage / name, *(stage / name).rglob("*")]):
            member = archive.gettarinfo(path, str(path.relative_to(stage)))
            member.uid = member.gid = 0
            member.uname = member.gname = "root"
            member.mtime = time
            member.mode &= 0o755
            with open(path, "rb") if path.is_file() else io.BytesIO() as file:
                archive.addfile(member, file)
    shutil.rmtree(stage)
    made = out / f"{name}.tar.gz"
    made.write_bytes(gzip.compress(packed.getvalue(), 9, mtime=0))
    return made


def install(build, stage, prefix, command):
    """Runs `make install` of `command`, which brings no benchmarks, and no symbols here."""
    build.run(["make", "--quiet", "install", f"DESTDIR={stage}", f"PREFIX={prefix}",
               f"TARGET={build.target}", f"COMMAND={command}", f"BENCH={os.devnull}"])
    shutil.rmtree(stage / prefix.lstrip("/") / "bin/.debug")
    shutil.copyfile(command, stage / prefix.lstrip("/") / "bin/coldpress")
    for page in (stage / prefix.lstrip("/") / "share").rglob("*coldpress-bench*"):
        page.unlink()


def image(build, out, version):
    time = datetime.fromtimestamp(int(build.environment["SOURCE_DATE_EPOCH"]), timezone.utc)
    place = out / "coldpress-image"
    oci.write(place, build.command(MUSL), version, time.strftime("%Y-%m-%dT%H:%M:%SZ"))
    return place


def bill(build, out):
    """The bill of materials of the command, by cargo-cyclonedx, in the form of CycloneDX."""
    build.run(["cargo", "cyclonedx", "--quiet", "--format", "json", "--target", GLIBC,
               "--manifest-path", "crates/coldpress/Cargo.toml",
               "--override-filename", "coldpress.cdx"])
    made = out / "coldpress.cdx.json"
    # It lies beside the manifest, and names packages of ours by where they are.
    text = (build.place / "crates/coldpress/coldpress.cdx.json").read_text()
    document = json.loads(text.replace(f"file://{build.place}", "file://."))
    document.pop("serialNumber", None)
    made.write_text(json.dumps(document, indent=1) + "\n")
    return made


def crates(build, out):
    """All crates, each built out of its own package by cargo."""
    build.run(["cargo", "package", "--workspace", "--locked", "--allow-dirty", "--quiet"])
    folder = out / "crates"
    folder.mkdir()
    for made in (build.target / "package").glob("*.crate"):
        shutil.copy(made, folder)
    return folder
