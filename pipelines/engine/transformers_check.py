"""Compare a model with transformers: the same weights, the same source, token for token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines.engine.backends.native import NativeBackend
from pipelines.engine.decoding.request import Request
from pipelines.engine.decoding.sampling.options import GenerationOptions
from pipelines.engine.engine import Engine
from pipelines.engine.loaded_model import LoadedModel
from pipelines.engine.weights.checkpoint import open_weights
from pipelines.errors import CheckpointError, UnsupportedTask

_TIE = 1e-3  # logits closer than this are equally likely


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        tokens: Greedy tokens that were compared.
        difference: The position of the first token that differs, or None. Where the two best
            tokens are equally likely, the comparison ends without a difference.
        max_logit_error: The largest difference of any logit.
    """

    tokens: int
    difference: int | None
    max_logit_error: float


def compare_with_transformers(folder: Path, tokens: int = 32) -> Comparison:
    """Decode greedily in float32 with this engine and with transformers.

    The source is fixed noise (audio) or fixed ids (text): what is compared is the computation.

    Args:
        folder: A model folder.
        tokens: How many tokens to decode.

    Raises:
        CheckpointError: The folder holds no usable model.
        UnsupportedTask: transformers has no model of this kind, or runs the model here, too.
    """
    with Engine(device="cpu", compute_type="float32") as engine:
        model = engine.load(folder)
        if not isinstance(model.backend, NativeBackend):
            raise UnsupportedTask(
                f"{folder.name} is run by transformers itself, so there is nothing to compare"
            )
        start = (model.architecture.start_id,)
        source = model.source.example()
        encoded = model.encode([source])[0]
        options = GenerationOptions(max_new_tokens=tokens, eos_ids=())
        request = Request(encoded, start, options)
        ours = [*start, *engine.generate([request])[0].tokens]
        logits = model.score(encoded, ours[:-1])
    with torch.inference_mode():
        theirs = _module(folder, model)(source, ours[:-1])
    for position, (row, chosen) in enumerate(zip(theirs, ours[1:], strict=True)):
        best = int(row.argmax())
        if best != chosen:
            tied = float(row[best] - row[chosen]) < _TIE
            error = float((logits[: position + 1] - theirs[: position + 1]).abs().max())
            return Comparison(position, None if tied else position, error)
    return Comparison(len(ours) - 1, None, float((logits - theirs).abs().max()))


def _module(folder: Path, model: LoadedModel) -> Callable[[Any, list[int]], Tensor]:
    """transformers' model as a function: source, target ids → logits [ids, vocab]."""
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (ValueError, KeyError) as error:
        raise UnsupportedTask(
            f"{folder.name} cannot be compared: transformers has no model of the type "
            f"{model.architecture.family}"
        ) from error
    auto: Any = (
        transformers.AutoModelForSpeechSeq2Seq
        if model.source.is_sound
        else transformers.AutoModelForSeq2SeqLM
    )
    weights = open_weights(folder)
    state = {name: weights.read(name).float() for name in weights.names}
    try:
        module = auto.from_config(config, dtype=torch.float32)
        missing, _ = module.load_state_dict(state, strict=False)
        module.tie_weights()
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"{folder}: transformers cannot load the weights: {reason}"
        ) from error
    _check_missing(folder, module, missing)
    module.eval()

    def logits(source: Any, target: list[int]) -> Tensor:
        inputs = {module.main_input_name: torch.as_tensor(source)[None]}
        rows: Tensor = module(**inputs, decoder_input_ids=torch.tensor([target])).logits[0]
        return rows.float()

    return logits


def _check_missing(folder: Path, module: Any, missing: list[str]) -> None:
    """Raises CheckpointError if weights are missing that are neither tied nor computed."""
    tied = set(getattr(module, "all_tied_weights_keys", None) or ())
    computed = ("embed_positions.weight", "embed_positions.weights", "embed_tokens.weight")
    wrong = [n for n in missing if n not in tied and not n.endswith((*computed, "logits_bias"))]
    if wrong:
        raise CheckpointError(f"{folder}: the weights lack {wrong[0]!r}")
