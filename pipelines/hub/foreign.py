"""Models of other programs as folders that can be loaded.

Such a folder has the config and the tokenizer of the model in transformers' form, and a link to
the weights, which stay where they are. Only the weights of an Argos package, which is a zip file,
are unpacked. The folders lie in the cache of this program, one for each version of a model:

    {cache}/edgeapp/models/{name}-{digest of path, size and time}/
"""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import time
import uuid
import zipfile
from pathlib import Path

from platformdirs import user_cache_path

from pipelines.errors import CheckpointError, ModelError
from pipelines.formats import foreign_model, is_foreign
from pipelines.json_files import read_json_object

_ORIGIN = "origin.json"  # in each folder: the program, the path and the kind of numbers
_LAYOUT = "3"  # of the folders: a later version of the program writes new ones
_ABANDONED_S = 3600.0  # a folder is written in seconds
# Of an Argos package: the largest has 300 MB.
_MOST_MEMBERS = 10_000
_MOST_UNPACKED_BYTES = 4 << 30
_MOST_RATIO = 200  # unpacked bytes to packed ones; weights shrink by less than half
_PACKAGE_FILES = ("metadata.json", "sentencepiece.model", "bpe.model")
_MODEL_FILES = (
    "model.bin",
    "config.json",
    "shared_vocabulary.txt",
    "shared_vocabulary.json",
    "source_vocabulary.txt",
    "source_vocabulary.json",
    "target_vocabulary.txt",
    "target_vocabulary.json",
)


def foreign_root() -> Path:
    """Where the folders lie; it need not exist yet."""
    return user_cache_path("edgeapp") / "models"


def holds_foreign_model(path: Path) -> bool:
    """Whether a file or folder looks like a model of another program."""
    return _is_package(path) or is_foreign(path)


def foreign_folder(path: Path) -> Path:
    """The folder for a model of another program, made where there is none yet.

    Args:
        path: A file or folder for which `holds_foreign_model` holds.

    Raises:
        CheckpointError: The model is damaged, incomplete, or of a kind that does not run here.
        ModelError: The folder cannot be written.
    """
    path = path.resolve()
    folder = foreign_root() / f"{_name(path)}-{_digest(path)}"
    if (folder / _ORIGIN).is_file():
        return folder
    part = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}")
    try:
        part.mkdir(parents=True)
        try:
            _fill(part, path)
            try:
                part.rename(folder)
            except OSError:
                if not (folder / _ORIGIN).is_file():
                    raise
                # Another process was faster: its folder is the same.
        finally:
            shutil.rmtree(part, ignore_errors=True)
    except OSError as error:
        raise ModelError(
            f"{path} cannot be used: {foreign_root()} cannot be written: {error.strerror or error}"
        ) from error
    return folder


def foreign_origin(folder: Path) -> dict[str, str] | None:
    """Where the model of a folder comes from.

    Returns:
        "tool", "path" and "kind" (of number); None for a folder that `foreign_folder` did not make.
    """
    try:
        origin = read_json_object(folder / _ORIGIN)
    except (FileNotFoundError, CheckpointError):
        return None
    return {key: str(origin.get(key)) for key in ("tool", "path", "kind")}


def is_outdated(folder: Path) -> str | None:
    """Why a folder below `foreign_root` is not needed, as the end of a sentence; None if it is."""
    origin = foreign_origin(folder)
    if origin is None:
        old = time.time() - folder.stat().st_mtime > _ABANDONED_S
        return "it was never completed" if old else None
    path = Path(origin["path"])
    try:
        current = f"{_name(path)}-{_digest(path)}"
    except OSError:
        return f"{path} is gone"
    return None if folder.name == current else f"{path} was changed"


def _fill(folder: Path, path: Path) -> None:
    """Write the files and links of a model into a folder."""
    source = _unpacked(path, folder / "package") if _is_package(path) else path
    try:
        model = foreign_model(source)
    except CheckpointError as error:  # which names the file that was unpacked
        raise CheckpointError(str(error).replace(str(source), str(path))) from error
    for name, content in model.files.items():
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        (folder / name).write_text(text, encoding="utf-8")
    for name, target in {**model.links, model.link: model.weights}.items():
        (folder / name).symlink_to(_target(target, folder))
    origin = {"tool": model.tool, "path": str(path), "kind": model.kind}
    (folder / _ORIGIN).write_text(json.dumps(origin), encoding="utf-8")


def _target(file: Path, folder: Path) -> Path:
    """Where a link points: relative for unpacked files, as the folder is renamed."""
    if file.is_relative_to(folder):
        return file.relative_to(folder)
    return file.resolve()


def _name(path: Path) -> str:
    stem = path.parent.parent.name if path.parent.name == "snapshots" else path.name
    return "".join(c if c.isalnum() or c in "-_." else "-" for c in stem)[:60].strip(".") or "model"


def _digest(path: Path) -> str:
    """Of the path, and of size and time of what it names: a changed model gets a new folder."""
    parts = [_LAYOUT, str(path)]
    files = [path] if path.is_file() else sorted(path.iterdir()) + sorted(path.glob("model/*"))
    for file in files:
        status = file.stat()
        if stat.S_ISREG(status.st_mode):
            parts += [file.name, str(status.st_size), str(status.st_mtime_ns)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _is_package(path: Path) -> bool:
    """Whether a file is a packed package of Argos Translate."""
    return path.suffix == ".argosmodel" and path.is_file()


def _unpacked(path: Path, folder: Path) -> Path:
    """Unpack what is needed of a package, and nothing else.

    Raises:
        CheckpointError: It is no such package, or unpacks to impossible sizes.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            wanted = _members(archive, path)
            total = sum(info.file_size for info in wanted.values())
            packed = sum(info.compress_size for info in wanted.values())
            if total > min(_MOST_UNPACKED_BYTES, _MOST_RATIO * max(packed, 1 << 16)):
                raise CheckpointError(f"{path} is not used: it would unpack to {total:,} bytes")
            for name, info in wanted.items():
                target = folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(info) as source, target.open("wb") as file:
                    # zipfile stops at the announced size, and checks the sum of the content.
                    shutil.copyfileobj(source, file, 1 << 20)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is damaged, or no package of Argos Translate: {error}"
        ) from (error)
    return folder


def _members(archive: zipfile.ZipFile, path: Path) -> dict[str, zipfile.ZipInfo]:
    """The needed files of a package: name inside its one folder → entry."""
    entries = archive.infolist()
    if len(entries) > _MOST_MEMBERS:
        raise CheckpointError(f"{path} is not used: it has {len(entries):,} files")
    tops = [e.filename.split("/")[0] for e in entries if e.filename.endswith("/metadata.json")
            and e.filename.count("/") == 1]  # fmt: skip
    if len(tops) != 1:
        raise CheckpointError(f"{path} is no package of Argos Translate: it has no metadata.json")
    names = (*_PACKAGE_FILES, *(f"model/{name}" for name in _MODEL_FILES))
    found = {entry.filename: entry for entry in entries}
    wanted = {name: found[full] for name in names if (full := f"{tops[0]}/{name}") in found}
    if "model/model.bin" not in wanted:
        raise CheckpointError(f"{path} is incomplete: it has no model/model.bin")
    return wanted
