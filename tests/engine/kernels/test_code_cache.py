"""The cache of compiled kernels: only private, undamaged files are used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipelines.engine.kernels.code_cache import (
    ObjectCode,
    can_write,
    folder_problem,
    pack,
    read_cached,
    unpack,
    write_cached,
)

pytestmark = pytest.mark.skipif(os.name != "posix", reason="owners and modes are those of POSIX")

KERNELS = ObjectCode({"linear": "symbol"}, ["stub"], b"\x7fELF\n\n\0code\n")


@pytest.fixture
def cached(tmp_path: Path) -> Path:
    """A file of the cache, in a folder of its own."""
    path = tmp_path / "cache" / "avx2.kernels"
    assert write_cached(path, pack(KERNELS))
    return path


def _give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a path belong to another user than the one that the code sees."""
    if os.geteuid() == 0:
        os.chown(path, 12345, -1)
    else:
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)


def test_written_kernels_are_read_back(cached: Path) -> None:
    assert read_cached(cached) == KERNELS
    assert list(cached.parent.iterdir()) == [cached]


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o022, 0o077])
def test_files_and_folders_are_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    path, before = tmp_path / "cache" / "avx2.kernels", os.umask(umask)
    try:
        assert write_cached(path, pack(KERNELS))
    finally:
        os.umask(before)
    assert not path.stat().st_mode & 0o022
    assert not path.parent.stat().st_mode & 0o022
    assert read_cached(path) == KERNELS


def test_every_byte_is_covered_by_the_checksum() -> None:
    content = pack(KERNELS)
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1
        assert unpack(bytes(damaged)) is None
        assert unpack(content[:place]) is None
    assert unpack(content + b"\0") is None


def test_a_missing_file_is_not_read(tmp_path: Path) -> None:
    assert read_cached(tmp_path / "none.kernels") is None
    assert read_cached(tmp_path / "none" / "none.kernels") is None


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_can_write_is_not_read(cached: Path, mode: int) -> None:
    cached.chmod(mode)
    assert read_cached(cached) is None
    assert write_cached(cached, pack(KERNELS))  # replaces it
    assert read_cached(cached) == KERNELS


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o1777])
def test_a_folder_that_others_can_write_is_not_used(cached: Path, mode: int) -> None:
    cached.parent.chmod(mode)
    assert read_cached(cached) is None
    assert not write_cached(cached, pack(KERNELS))
    assert not can_write(cached.parent)
    assert folder_problem(cached.parent) == "other users can write to it"


def test_a_file_of_another_user_is_not_read(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _give_away(cached, monkeypatch)
    assert read_cached(cached) is None


def test_a_folder_of_another_user_is_not_used(
    cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _give_away(cached.parent, monkeypatch)
    assert read_cached(cached) is None
    assert not write_cached(cached, pack(KERNELS))
    assert not can_write(cached.parent)
    assert folder_problem(cached.parent) == "it belongs to another user"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can chown")
def test_the_files_of_root_are_read_by_all(cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert read_cached(cached) == KERNELS
    assert folder_problem(cached.parent) is None


def test_only_regular_files_are_read(cached: Path, tmp_path: Path) -> None:
    link = cached.with_name("link.kernels")
    link.symlink_to(cached)
    assert read_cached(link) is None
    pipe = cached.with_name("pipe.kernels")
    os.mkfifo(pipe, 0o600)
    assert read_cached(pipe) is None  # and does not wait for a writer
    assert read_cached(cached.parent) is None


def test_a_failed_write_leaves_what_was_stored(
    cached: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    assert not write_cached(cached, pack(KERNELS) * 2)
    assert read_cached(cached) == KERNELS
    assert list(cached.parent.iterdir()) == [cached]


def test_a_new_folder_can_be_written_where_its_parent_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "kernels"
    assert can_write(folder)
    assert folder_problem(folder) is None
    assert not folder.exists()
    (tmp_path / "file").write_bytes(b"")
    assert not can_write(tmp_path / "file" / "kernels")
    assert not write_cached(tmp_path / "file" / "kernels" / "avx2.kernels", b"")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert not can_write(folder)
