"""Options of openai-whisper and whisper-ctranslate2 that `edgeapp transcribe` lacks, and why.

assets/docs/command-line.md has all options of both programs.
"""

from __future__ import annotations

from edgeapp.commands.options.command import Refused

__all__ = ["REFUSED"]

_NO, _NOTHING = ("false", "no", "0"), ("none", "")
_SPEAKERS = "speakers are not told apart"
_LIVE = "a microphone is transcribed by `edgeapp live`"

REFUSED = {
    "--prompt-reset-on-temperature": Refused(
        "the prompt is reset above temperature 0.5, as in openai-whisper", ("0.5",)
    ),
    "--print-colors": Refused("words are not colored; -f json has the probability of words", _NO),
    "--local-files-only": Refused(
        "no model is downloaded unasked; `edgeapp models pull` does", ("true",), ("--no-download",)
    ),
    "--model-directory": Refused("-m takes the folder of a model"),
    "--hf-token": Refused(_SPEAKERS, _NOTHING),
    "--speaker-name": Refused(_SPEAKERS, ("speaker", *_NOTHING)),
    "--speaker-num": Refused(_SPEAKERS),
    "--live-transcribe": Refused(_LIVE, _NO),
    "--live-volume-threshold": Refused(f"{_LIVE}, which detects speech by itself"),
    "--live-input-device": Refused(f"{_LIVE}: its --input-device names the microphone", _NOTHING),
    "--live-input-device-sample-rate": Refused(f"{_LIVE}, at the microphone's own rate"),
}
