"""transformers as oracle: greedy ids, and how sure it was of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, MarianMTModel, WhisperForConditionalGeneration
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import BaseModelOutput

NEAR_TIE = 1e-4


def reference(folder: Path) -> Any:
    """The folder as transformers loads it, in float32."""
    kind = MarianMTModel if '"marian"' in (folder / "config.json").read_text() else None
    kind = kind or WhisperForConditionalGeneration
    model = kind.from_pretrained(folder, dtype=torch.float32).eval()
    # Only what a test asks for counts, not what the folder suggests.
    model.generation_config = GenerationConfig(
        pad_token_id=model.config.pad_token_id,
        eos_token_id=model.config.eos_token_id,
        decoder_start_token_id=model.config.decoder_start_token_id,
    )
    return model


def encoded(model: Any, source: Tensor | BaseModelOutput) -> BaseModelOutput:
    """The encoder's output for one source, which can serve several generations."""
    if not isinstance(source, Tensor):
        return source
    name = "input_ids" if source.dtype == torch.long else "input_features"
    with torch.inference_mode():
        return model.get_encoder()(**{name: source[None]}, return_dict=True)


def greedy(
    model: Any,
    source: Tensor | BaseModelOutput,
    prompt: Sequence[int],
    new: int,
    **options: Any,
) -> list[int]:
    """Ids that `generate` adds to the prompt; the plain GenerationMixin one, for Whisper too."""
    with torch.inference_mode():
        out = GenerationMixin.generate(
            model,
            encoder_outputs=encoded(model, source),
            decoder_input_ids=torch.tensor([list(prompt)]),
            max_new_tokens=new,
            do_sample=False,
            num_beams=1,
            **options,
        )
    return out[0, len(prompt) :].tolist()


def teacher_forced(model: Any, source: Tensor | BaseModelOutput, tokens: Sequence[int]) -> Tensor:
    """Uncached logits [tokens, vocab] after each token."""
    with torch.inference_mode():
        out = model(
            encoder_outputs=encoded(model, source),
            decoder_input_ids=torch.tensor([list(tokens)]),
            use_cache=False,
        )
    logits: Tensor = out.logits[0]
    return logits


def assert_same_choice(
    model: Any,
    source: Tensor | BaseModelOutput,
    prompt: Sequence[int],
    ours: Sequence[int],
    theirs: Sequence[int],
) -> int:
    """Equal ids, or the first difference lies where the two best logits nearly tie.

    Returns how many ids agree before the end, or before that tie.
    """
    at = next(
        (i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b),
        min(len(ours), len(theirs)),
    )
    if at == len(ours) == len(theirs):
        return at
    assert at < min(len(ours), len(theirs)), f"lengths differ: {len(ours)} and {len(theirs)}"
    logits = teacher_forced(model, source, [*prompt, *theirs[:at]])[-1]
    gap = float(logits[theirs[at]] - logits[ours[at]])
    assert abs(gap) < NEAR_TIE, f"token {at}: {ours[at]} for {theirs[at]}, {gap} apart"
    return at
