"""Options of live recognition."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from pipelines.asr.audio.vad import check_cuts
from pipelines.asr.options import TranscribeOptions, VadOptions
from pipelines.errors import OptionError
from pipelines.options import Range, check_fields, described, option, renamed

# Options of recordings that live recognition does not follow → their defaults.
_UNUSED = {
    "beam_size": None,
    "best_of": None,
    "patience": None,
    "length_penalty": None,
    "n_best": 1,
    "prefix": None,
    "forced_phrases": (),
    "max_new_tokens": None,
    "language_detection_segments": 1,
}

Policy = Literal["agreement", "attention"]
_LIVE = "Live"


def _with_languages(languages: Any, given: TranscribeOptions | None) -> TranscribeOptions:
    return replace(given or TranscribeOptions(), languages=languages)


@renamed(languages=("transcribe", _with_languages))
@described
@dataclass(frozen=True)
class LiveOptions:
    """How to recognize live speech."""

    transcribe: TranscribeOptions = option(
        TranscribeOptions(),
        "Language, task, prompt and thresholds, as for recordings. Live text is greedy: options of "
        "other searches, of `prefix` and of `forced_phrases` are refused.",
    )
    vad: VadOptions = option(
        VadOptions(),
        "Voice activity detection: `VadOptions`, or a dictionary of its fields. After "
        "`min_silence_duration_ms` the text is final. Only a pause of `long_pause_ms` ends the "
        "utterance; after a shorter one its sentence may go on.",
    )
    min_chunk_s: float = option(
        0.5,
        "New audio from one update to the next.",
        range=Range(0.02, 30, unit="s"),
        group=_LIVE,
    )
    policy: Policy = option(
        "agreement",
        '"agreement" commits the words on which two successive updates agree (LocalAgreement-2, '
        'Liu et al. 2020). "attention" commits the words that cross-attention aligns safely before '
        "the end of the audio (AlignAtt, Papi et al. 2023): sooner, slightly less accurate.",
        choices=("agreement", "attention"),
        group=_LIVE,
    )
    attention_margin_s: float = option(
        0.6,
        'For "attention", how far before the end of the audio is safe.',
        range=Range(0, 5, unit="s"),
        group=_LIVE,
    )
    calm: bool = option(
        True,
        "Hold back the last word of running text, and a mark that ends a sentence there, until the "
        "next update: they change most often. False: show each word at once.",
        group=_LIVE,
    )
    follow_window: bool = option(
        True,
        "Encode the buffered audio and some silence after it, without padding it to the full "
        "window. False: pad it to the window that the model was trained on. Whisper base needs "
        "0.40 instead of 1.05 CPU seconds a second of speech by it and makes no more errors "
        "(assets/docs/benchmarks.md).",
        group=_LIVE,
    )
    context_tokens: int = option(
        0,
        "Number of last committed tokens given as the previous text; 0: none. It replaces "
        "`transcribe.condition_on_previous_text`: a live stream has no temperature fallback that "
        "would stop an error from repeating itself through its context. The initial prompt and the "
        "hotwords are always given.",
        range=Range(0, whole=True),
        group=_LIVE,
    )
    drafts: bool = option(
        True,
        "Verify the previous hypothesis as a draft in one pass. Without it the text is the same "
        "but takes longer.",
        group=_LIVE,
    )
    priority: int = option(
        0,
        "Of the requests, on a shared engine: a lower number goes first. It replaces "
        "`transcribe.priority`, which is that of corrections.",
        range=Range(whole=True),
        group=_LIVE,
    )
    correct: bool = option(
        False,
        "Keep the sound of what is being said, and return a CorrectionDue for each finished "
        "utterance, and for each finished part of a long one.",
        group=_LIVE,
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "vad", VadOptions.of(self.vad, "vad"))
        check_fields(self)
        if self.transcribe.vad_parameters is not None:
            raise OptionError("vad_parameters has no effect on live speech: LiveOptions(vad=…)")
        for name, usual in _UNUSED.items():
            if getattr(self.transcribe, name) != usual:
                raise OptionError(
                    f"{name} has no effect on live speech, which is decoded greedily; leave it out"
                )
        if self.transcribe.temperatures[0] != 0:
            raise OptionError("temperature must begin with 0: live speech is decoded greedily")
        check_cuts(self.vad)
