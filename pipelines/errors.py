"""The errors of the library.

EdgeError
├── InputError            an input (file, array, text) cannot be used
│   └── AudioError        it holds no decodable audio
│       └── LongAudio     it is longer than the limit
├── OutputError           a result cannot be written
├── DeviceError           a microphone cannot be opened
│   └── DeviceLost        it was unplugged or stopped delivering audio while recording
├── OptionError           an option, or a combination of options, is invalid
├── ModelError            a model cannot be used
│   ├── ModelNotFound     it is not on this machine and could not be downloaded
│   ├── CheckpointError   its folder is invalid: missing files, wrong shapes, unsafe pickle
│   └── UnsupportedTask   it lacks the requested task or language
└── EngineError           a generation failed
    ├── RequestError      the request is invalid for every model
    └── NumericalError    the model computed NaN or infinity, so there is no result

Every message states what was wrong, with which input, and what to do next.
"""

import copy
from typing import TypeVar

__all__ = [
    "AudioError",
    "CheckpointError",
    "DeviceError",
    "DeviceLost",
    "EdgeError",
    "EngineError",
    "InputError",
    "LongAudio",
    "ModelError",
    "ModelNotFound",
    "NumericalError",
    "OptionError",
    "OutputError",
    "RequestError",
    "UnsupportedTask",
    "own_copy",
]

E = TypeVar("E", bound=Exception)


class EdgeError(Exception):
    """Base class: an error that the caller can understand and act on."""


class InputError(EdgeError):
    """An input (file, array, text) cannot be read or used."""


class AudioError(InputError):
    """An input holds no decodable audio."""


class LongAudio(AudioError):
    """A recording is longer than the limit.

    Attributes:
        announced_s: Duration in seconds according to the file's header. None if the limit was
            exceeded while decoding.
    """

    announced_s: float | None = None

    @classmethod
    def of(cls, name: str, max_duration_s: float, announced_s: float | None = None) -> "LongAudio":
        """Make the error.

        Args:
            name: The recording's name in the message.
            max_duration_s: The limit in seconds.
            announced_s: Duration in seconds according to the header, if that exceeds the limit.
        """
        error = cls(f"{name} lasts more than {max_duration_s:g} s")
        error.announced_s = announced_s
        return error


class OutputError(EdgeError):
    """A result cannot be written to the chosen place."""


class DeviceError(EdgeError):
    """A microphone is missing or cannot be opened."""


class DeviceLost(DeviceError):
    """A microphone was unplugged or stopped delivering audio while recording."""


class OptionError(EdgeError, ValueError):
    """An option is out of its range, or a combination of options is invalid."""


class ModelError(EdgeError):
    """A model cannot be used."""


class ModelNotFound(ModelError):
    """The model is not on this machine and could not be downloaded.

    Args:
        message: What is missing.
        download: Name of the model to download, where that would help; it is in the message too.
    """

    def __init__(self, message: str, *, download: str | None = None) -> None:
        super().__init__(message)
        self.download = download


class CheckpointError(ModelError):
    """A model folder is incomplete, damaged, unsafe, or does not match its config."""


class UnsupportedTask(ModelError):
    """The model lacks the requested task or language."""


class EngineError(EdgeError):
    """A generation failed, or its engine was closed."""


class RequestError(EngineError, ValueError):
    """A request is invalid for every model: an empty source, ids out of range, and the like."""


class NumericalError(EngineError):
    """The model computed NaN or infinity: damaged weights, or overflow of its compute type."""


def own_copy(error: E) -> E:
    """Return a copy of an error that several callers raise, with the same cause.

    Raising adds the caller's traceback and context to the exception, which would grow, and mix
    those of several threads.
    """
    own = copy.copy(error)
    own.__cause__ = error.__cause__
    return own
