"""How live speech is recognised."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from pipelines.asr.audio.vad import VoiceOptions
from pipelines.asr.options import TranscribeOptions
from pipelines.errors import OptionError

__all__ = ["LiveOptions", "Policy"]

Policy = Literal["agreement", "attention"]


@dataclass(frozen=True)
class LiveOptions:
    """How to recognise live speech.

    transcribe: language, task, prompt and thresholds, as for recordings.
    voice: what counts as speech; with a long pre-roll, for quiet microphones.
    min_chunk_s: new audio between two updates.
    policy: "agreement" commits what two updates in a row agree on (LocalAgreement-2);
        "attention" what the decoder found safely before the end of the audio (AlignAtt, Papi et
        al. 2023): sooner, a little less sure.
    attention_margin_s: how far before the end, for that policy.
    follow_window: let the encoder hear the buffer only, not silence up to the whole window.
        None: where the model's window is shorter than Whisper's 30 s. There it costs no accuracy
        and saves half of the encoding (tests/benchmarks/live_accuracy.py); Whisper's own models
        never heard anything but whole windows in training.
    context_tokens: of committed text, that the decoder is reminded of (0: none), in place of
        transcribe.condition_on_previous_text: a live stream is not decoded again when a mistake
        begets mistakes. The initial prompt it sees always.
    drafts: verify the last hypothesis in one pass. Without, the text is the same, only later.

    Raises OptionError for values out of range.
    """

    transcribe: TranscribeOptions = field(default_factory=TranscribeOptions)
    voice: VoiceOptions = field(default_factory=lambda: VoiceOptions(pre_roll_s=0.5))
    min_chunk_s: float = 0.5
    policy: Policy = "agreement"
    attention_margin_s: float = 0.4
    follow_window: bool | None = None
    context_tokens: int = 0
    drafts: bool = True

    def __post_init__(self) -> None:
        if not 0.02 <= self.min_chunk_s <= 30:
            raise OptionError(f"min_chunk_s must be 0.02 to 30, not {self.min_chunk_s}")
        if self.policy not in ("agreement", "attention"):
            raise OptionError(f"policy must be agreement or attention, not {self.policy!r}")
        if self.context_tokens < 0:
            raise OptionError(f"context_tokens must be 0 or more, not {self.context_tokens}")
        if not 0 <= self.attention_margin_s <= 5:
            raise OptionError(f"attention_margin_s must be 0 to 5, not {self.attention_margin_s}")
