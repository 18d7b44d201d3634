"""Options of live recognition."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from pipelines.asr.audio.vad import VadOptions
from pipelines.asr.options import TranscribeOptions
from pipelines.errors import OptionError
from pipelines.languages import language_code

__all__ = ["LiveOptions", "Policy"]

# Options of recordings that live recognition does not follow → their defaults.
_UNUSED = {
    "beam_size": None,
    "best_of": None,
    "patience": None,
    "length_penalty": None,
    "n_best": 1,
    "prefix": None,
    "forced_phrases": (),
}

Policy = Literal["agreement", "attention"]


@dataclass(frozen=True)
class LiveOptions:
    """How to recognize live speech.

    Attributes:
        transcribe: language, task, prompt and thresholds, as for recordings. Live text is greedy:
            options of other searches, of `prefix` and of `forced_phrases` are refused.
        languages: codes ("de") or English names of the languages that may be spoken; each
            utterance is in one of them. Empty: any language of the model, or transcribe.language.
            A single one becomes transcribe.language.
        vad: voice activity detection. The default pre-roll is long, for quiet microphones. After
            min_silence_s the text is final. If long_pause_s is given, only a pause of that length
            ends the utterance, and before it a sentence may go on.
        min_chunk_s: new audio from one update to the next (s).
        policy: "agreement" commits the words on which two successive updates agree
            (LocalAgreement-2, Liu et al. 2020). "attention" commits the words that
            cross-attention aligns safely before the end of the audio (AlignAtt, Papi et al.
            2023): sooner, slightly less accurate.
        attention_margin_s: for "attention", how far before the end of the audio is safe (s).
        calm: hold back the last word of running text, and a mark that ends a sentence there, until
            the next update: they change most often. False: show each word at once.
        follow_window: encode the buffered audio and some silence after it, without padding it to
            the full window. False: pad it to the window that the model was trained on. Whisper
            base needs 0.40 instead of 1.05 CPU seconds a second of speech by it and makes no
            more errors (assets/docs/benchmarks.md).
        context_tokens: number of last committed tokens given as the previous text; 0: none. It
            replaces transcribe.condition_on_previous_text: a live stream has no temperature
            fallback that would stop an error from repeating itself through its context. The
            initial prompt and the hotwords are always given.
        drafts: verify the previous hypothesis as a draft in one pass. Without it the text is the
            same but takes longer.
        priority: of the requests, on a shared engine: a lower number goes first. It replaces
            transcribe.priority, which is that of corrections.
        correct: keep the sound of what is being said, and return a CorrectionDue for each finished
            utterance, and for each finished part of a long one.

    Raises:
        OptionError: a value is out of range, or an option of `transcribe` has no effect.
    """

    transcribe: TranscribeOptions = field(default_factory=TranscribeOptions)
    languages: tuple[str, ...] = ()
    vad: VadOptions = field(default_factory=lambda: VadOptions(pre_roll_s=0.5))
    min_chunk_s: float = 0.5
    policy: Policy = "agreement"
    attention_margin_s: float = 0.6
    calm: bool = True
    follow_window: bool = True
    context_tokens: int = 0
    drafts: bool = True
    priority: int = 0
    correct: bool = False

    def __post_init__(self) -> None:
        codes = tuple(dict.fromkeys(map(language_code, self.languages)))
        if codes and self.transcribe.language is not None:
            raise OptionError(
                "language and languages exclude each other: give one language, or those of which "
                "each utterance is in one"
            )
        if len(codes) == 1:
            object.__setattr__(self, "transcribe", replace(self.transcribe, language=codes[0]))
        object.__setattr__(self, "languages", codes if len(codes) > 1 else ())
        for name, usual in _UNUSED.items():
            if getattr(self.transcribe, name) != usual:
                raise OptionError(
                    f"{name} has no effect on live speech, which is decoded greedily; leave it out"
                )
        if self.transcribe.temperatures[0] != 0:
            raise OptionError("temperature must begin with 0: live speech is decoded greedily")
        if not 0.02 <= self.min_chunk_s <= 30:
            raise OptionError(f"min_chunk_s must be 0.02 to 30, not {self.min_chunk_s}")
        if self.policy not in ("agreement", "attention"):
            raise OptionError(f"policy must be agreement or attention, not {self.policy!r}")
        if self.context_tokens < 0:
            raise OptionError(f"context_tokens must be 0 or more, not {self.context_tokens}")
        if not 0 <= self.attention_margin_s <= 5:
            raise OptionError(f"attention_margin_s must be 0 to 5, not {self.attention_margin_s}")
