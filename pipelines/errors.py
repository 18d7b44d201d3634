"""The errors of the library, one small tree.

EdgeError
├── InputError            a source (file, array, text) that cannot be used
│   └── AudioError        … because it holds no decodable audio
│       └── LongAudio     … or more than was to be taken
├── OutputError           a result that cannot be written
├── DeviceError           a microphone that cannot be used
│   └── DeviceLost        … any more: it was unplugged or fell silent while it recorded
├── OptionError           an option, or a combination of options, that makes no sense
├── ModelError
│   ├── ModelNotFound     no such model here, and none could be fetched
│   ├── CheckpointError   the folder is there but broken: missing files, wrong shapes, unsafe pickle
│   └── UnsupportedTask   the model cannot do the task or language asked of it
└── EngineError
    ├── RequestError      a generation request that no model could serve
    └── NumericalError    the model computed NaN or infinity, so there is no result

Every message says what was wrong, with which input, and what to do next.
"""

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
]


class EdgeError(Exception):
    """Anything that went wrong in a way the caller can understand and act on."""


class InputError(EdgeError):
    """A source that cannot be read or used."""


class AudioError(InputError):
    """A source that holds no decodable audio."""


class LongAudio(AudioError):
    """A recording that is longer than it may be.

    announced_s: how many seconds its header announces; None where what was decoded is too long.
    """

    announced_s: float | None = None

    @classmethod
    def of(cls, name: str, longest_s: float, announced_s: float | None = None) -> "LongAudio":
        """The error for a recording called `name` that lasts more than `longest_s` seconds."""
        error = cls(f"{name} lasts more than {longest_s:g} s")
        error.announced_s = announced_s
        return error


class OutputError(EdgeError):
    """A result that cannot be written where it was asked for."""


class DeviceError(EdgeError):
    """A microphone that is not there or cannot be opened."""


class DeviceLost(DeviceError):
    """A microphone that was unplugged or fell silent while it recorded."""


class OptionError(EdgeError, ValueError):
    """An option out of its range, or a combination that makes no sense."""


class ModelError(EdgeError):
    """Something about a model, not about the input."""


class ModelNotFound(ModelError):
    """No such model on this machine, and none could be fetched."""


class CheckpointError(ModelError):
    """A model folder that is incomplete, damaged, unsafe, or not what its config says."""


class UnsupportedTask(ModelError):
    """The model cannot do the task or the language that was asked for."""


class EngineError(EdgeError):
    """Generation failed."""


class RequestError(EngineError, ValueError):
    """A request that no model could serve: an empty source, ids out of range, and the like."""


class NumericalError(EngineError):
    """The model computed NaN or infinity: damaged weights, or overflow in its compute type."""
