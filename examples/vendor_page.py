"""Fetches the libraries of Windfall's page by npm and writes them to src/windfall/dashboard/vendor/.

    python examples/vendor_page.py

Needs `npm`. For whoever raises a version below; users and contributors need neither npm nor Node. The files are the
packages' own except for two things: imports name files instead of packages (an import map would need an inline
script, which the page's Content-Security-Policy refuses), and references to source maps go.
vendor/MANIFEST.json says what each file is and what its bytes hash to; tests/browser/test_page_files.py compares.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import tarfile
import tempfile
from pathlib import Path

VENDOR = Path(__file__).parent.parent / "src" / "windfall" / "dashboard" / "vendor"

#: (package, version, file in the package, file here).
FILES = (
    ("preact", "11.2.0", "dist/preact.mjs", "preact.js"),
    ("preact", "11.2.0", "hooks/dist/hooks.mjs", "hooks.js"),
    ("htm", "3.1.1", "dist/htm.mjs", "htm.js"),
)
IMPORTS = {"preact": "preact.js"}


def package(name: str, version: str, folder: Path) -> tuple[Path, str]:
    """Fetch and unpack a package; its files and the integrity hash of its archive, as npm writes it."""
    packed = subprocess.run(
        ["npm", "pack", "--silent", f"{name}@{version}"],
        cwd=folder,
        check=True,
        capture_output=True,
        text=True,
    )
    archive = folder / packed.stdout.split()[-1]
    digest = hashlib.sha512(archive.read_bytes()).digest()
    unpacked = folder / archive.stem
    with tarfile.open(archive) as files:
        files.extractall(unpacked, filter="data")
    return unpacked / "package", "sha512-" + base64.b64encode(digest).decode()


def adapted(text: str) -> str:
    """A library's file as the page loads it."""
    text = re.sub(r"\n?//# sourceMappingURL=.*", "", text)
    return re.sub(r'from"([^"]+)"', lambda match: f'from"./{IMPORTS[match[1]]}"', text)


def main() -> None:
    """Write all files, the licences and the manifest."""
    VENDOR.mkdir(parents=True, exist_ok=True)
    entries = []
    with tempfile.TemporaryDirectory() as folder:
        packages = {(name, version): package(name, version, Path(folder)) for name, version, _, _ in FILES}
        for name, version, source, target in FILES:
            unpacked, integrity = packages[name, version]
            content = adapted((unpacked / source).read_text()).encode()
            (VENDOR / target).write_bytes(content)
            licence_file = "LICENSE." + name.rpartition("/")[2]
            (VENDOR / licence_file).write_bytes((unpacked / "LICENSE").read_bytes())
            entries.append(
                {
                    "file": target,
                    "package": name,
                    "version": version,
                    "licence": json.loads((unpacked / "package.json").read_text())["license"],
                    "licenceFile": licence_file,
                    "source": source,
                    "integrity": integrity,
                    "sha256": hashlib.sha256(content).hexdigest(),
                    "bytes": len(content),
                }
            )
    (VENDOR / "MANIFEST.json").write_text(json.dumps(entries, indent=2) + "\n")


if __name__ == "__main__":
    main()
