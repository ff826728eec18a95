"""An image of one layer with the static command, in the layout of the Open Container Initiative
(image-spec, image-layout.md): blobs by their digest, an index, and a version."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

LAYER = "application/vnd.oci.image.layer.v1.tar"
CONFIG = "application/vnd.oci.image.config.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"


def write(place, command, version, time):
    """Writes the layout into the new folder `place`; `time` is in RFC 3339."""
    blobs = place / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(kind, data):
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(data)}

    layer = blob(LAYER, layer_of(command))
    config = blob(CONFIG, encoded({
        "architecture": "amd64",
        "os": "linux",
        "created": time,
        "config": {"Entrypoint": ["/coldpress"], "Labels": {
            "org.opencontainers.image.title": "coldpress",
            "org.opencontainers.image.version": version,
            "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        }},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
        "history": [{"created": time, "created_by": "make packages"}],
    }))
    manifest = blob(MANIFEST, encoded({
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer],
    }))
    manifest["annotations"] = {"org.opencontainers.image.ref.name": version}
    (place / "index.json").write_bytes(encoded({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": [manifest],
    }))
    (place / "oci-layout").write_bytes(encoded({"imageLayoutVersion": "1.0.0"}))


def encoded(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def layer_of(command):
    """A tar archive of the command as /coldpress, and of an empty /tmp, for the library inside."""
    data = command.read_bytes()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        file = tarfile.TarInfo("coldpress")
        file.mode, file.size = 0o755, len(data)
        archive.addfile(file, io.BytesIO(data))
        folder = tarfile.TarInfo("tmp")
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        archive.addfile(folder)
    return out.getvalue()


def check(place):
    """Fails unless each blob has its digest and size, and the index leads to all of them."""
    seen = set()

    def read(told):
        kind, digest = told["digest"].split(":")
        data = (Path(place) / "blobs" / kind / digest).read_bytes()
        assert hashlib.new(kind, data).hexdigest() == digest, f"{digest} is another"
        assert len(data) == told["size"], f"{digest} has {len(data)} bytes"
        seen.add(digest)
        return data

    version = json.loads((Path(place) / "oci-layout").read_bytes())
    assert version == {"imageLayoutVersion": "1.0.0"}, version
    index = json.loads((Path(place) / "index.json").read_bytes())
    (told,) = index["manifests"]
    manifest = json.loads(read(told))
    config = json.loads(read(manifest["config"]))
    for layer, digest in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        assert layer["digest"] == digest, "an uncompressed layer is its own diff"
        read(layer)
    assert {blob.name for blob in (Path(place) / "blobs/sha256").iterdir()} == seen, "more blobs"
    return manifest, config
