"""Options of openai-whisper and whisper-ctranslate2 that `edgeapp transcribe` lacks, and why.

assets/docs/command-line.md has all options of both programs. An option that recognition has learned
is switched on by deleting its row here: its value is then passed on to TranscribeOptions.
"""

from __future__ import annotations

from edgeapp.commands.command import Refused

__all__ = ["REFUSED"]

_NO, _NOTHING = ("false", "no", "0"), ("none", "")
_SPEAKERS = "speakers are not told apart"
_LIVE = "a microphone is transcribed by `edgeapp live`"

REFUSED = {
    # Fields of TranscribeOptions to come.
    "--hotwords": Refused(
        "recognition has no hotwords yet; --initial-prompt takes names and terms", _NOTHING
    ),
    "--prefix": Refused("recognition cannot begin with given words yet", _NOTHING),
    "--clip-timestamps": Refused(
        "parts of a recording cannot be chosen yet; cut it first, such as with "
        "`ffmpeg -ss 60 -to 90 -i talk.mp3 part.wav`",
        ("0", *_NOTHING),
    ),
    "--hallucination-silence-threshold": Refused(
        "silence is not skipped after the text is decoded; with --batch-size above 1, the default, "
        "parts without speech are left out before",
        _NOTHING,
    ),
    "--carry-initial-prompt": Refused(
        "with --batch-size above 1, the default, --initial-prompt is given to each chunk anyway; "
        "with --batch-size 1 it cannot be carried yet",
        _NO,
    ),
    "--multilingual": Refused(
        "one language is detected for each recording, not for each chunk", _NO
    ),
    "--vad-filter": Refused(
        "parts without speech are left out with --batch-size above 1, the default", _NO
    ),
    "--vad-threshold": Refused("voice activity detection has fixed limits", _NOTHING),
    "--vad-min-speech-duration-ms": Refused("voice activity detection has fixed limits", _NOTHING),
    "--vad-max-speech-duration-s": Refused("voice activity detection has fixed limits", _NOTHING),
    "--vad-min-silence-duration-ms": Refused("voice activity detection has fixed limits", _NOTHING),
    # Not planned.
    "--repetition-penalty": Refused(
        "a window that repeats itself is decoded again instead: --compression-ratio-threshold",
        ("1", "1.0"),
    ),
    "--no-repeat-ngram-size": Refused(
        "a window that repeats itself is decoded again instead: --compression-ratio-threshold",
        ("0",),
    ),
    "--prompt-reset-on-temperature": Refused(
        "the prompt is reset above temperature 0.5, as in openai-whisper", ("0.5",)
    ),
    "--print-colors": Refused("words are not colored; -f json has the probability of words", _NO),
    "--local-files-only": Refused(
        "transcribe never downloads a model; `edgeapp models pull` does", ("true",)
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
