"""Put the page's font beside the page, from npm's registry: before a wheel is built (`make wheel`),
or to see it in a clone. Without it the page uses the system's fonts."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

PACKAGE = "@fontsource-variable/inter@5.3.0"
SHA512 = "OupL48va4JNofb97w6NYeF9S7W/kHNKM0Er8Dem5nqi4jeOLrVJDoE8tZEpnMJmtkvNbB1EIPPwHcdkF6b1oUA=="
FOLDER = Path(__file__).resolve().parents[2] / "edgeapp" / "ui" / "static" / "fonts"
_URL = re.compile(r"url\(\./files/([\w-]+\.woff2)\)")


def fetch(folder: Path) -> Path:
    """The package as npm's registry has it.

    Args:
        folder: Where it is put.

    Raises:
        SystemExit: npm is not installed or has failed, or the package is another one.
    """
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit("font: npm is not installed; the page will use the system's fonts")
    command = [npm, "pack", "--silent", "--pack-destination", str(folder), PACKAGE]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode:
        raise SystemExit(f"font: npm could not fetch {PACKAGE}; try again, or go without it")
    (package,) = folder.glob("*.tgz")
    digest = base64.b64encode(hashlib.sha512(package.read_bytes()).digest()).decode()
    if digest != SHA512:
        raise SystemExit(f"font: {PACKAGE} is not the package that was chosen; do not use it")
    return package


def unpack(package: Path, folder: Path) -> None:
    """Write the upright font with its weights, its style sheet and its license.

    Args:
        package: The package of the font.
        folder: It is replaced.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with tarfile.open(package) as archive:

        def read(name: str) -> bytes:
            file = archive.extractfile(f"package/{name}")
            assert file is not None, f"{name} is a file"
            return file.read()

        style = read("index.css").decode()
        for name in _URL.findall(style):
            (folder / name).write_bytes(read(f"files/{name}"))
        (folder / "LICENSE").write_bytes(read("LICENSE"))
    (folder / "fonts.css").write_text(_URL.sub(r"url(/edgeapp/static/fonts/\1)", style), "utf-8")


def main() -> None:
    """Fetch the font, and unpack it into the page's files."""
    with tempfile.TemporaryDirectory() as folder:
        unpack(fetch(Path(folder)), FOLDER)
    print(f"font: {PACKAGE} is in {FOLDER}", file=sys.stderr)


if __name__ == "__main__":
    main()
