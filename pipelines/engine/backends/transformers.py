"""Any transformers model, encoder-decoder or decoder-only, as a backend.

The module runs through its own forward and its own cache objects, with its own tensors, dtype and
device: slower than the native model, with the same interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from pipelines.engine.backends.transformers_cache import ModuleKVCache, ModuleSlot
from pipelines.engine.model.lm_head import argmax
from pipelines.engine.model.precision import ComputePlan, StackPrecision
from pipelines.engine.state.attention_capture import AttentionCapture
from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups
from pipelines.engine.state.kv_cache import NullCrossCache
from pipelines.engine.weights.architecture import Architecture, Stack
from pipelines.errors import RequestError

__all__ = ["TransformersBackend"]

# For models whose config states no longest sequence (relative positions).
_UNLIMITED_POSITIONS = 1 << 20

# Families whose decoders take one token a pass once they have a cache.
_ONE_TOKEN_A_PASS = frozenset({"fsmt", "prophetnet"})


@dataclass(frozen=True, eq=False)
class _Encoded(EncodedSource):
    """An encoder's output, as the module's forward accepts it; None if there is no encoder."""

    outputs: Any

    @property
    def length(self) -> int:
        return 0 if self.outputs is None else int(self.outputs[0].shape[1])

    @property
    def device(self) -> torch.device:
        return torch.device("cpu") if self.outputs is None else self.outputs[0].device

    @property
    def bytes(self) -> int:
        return 0 if self.outputs is None else int(self.outputs[0].nbytes)

    def to(self, device: torch.device, dtype: torch.dtype) -> EncodedSource:
        """Itself: a module does not move."""
        return self


class TransformersBackend:
    """A transformers module. Not thread-safe."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._decoder_config = module.config.get_text_config(decoder=True)
        self.architecture = _architecture(module)
        side = StackPrecision("dense", module.dtype, module.dtype)
        compute_type = str(module.dtype).removeprefix("torch.")
        self.plan = ComputePlan(compute_type, module.device, side, side, "the module's own")
        self._owner = object()

    @property
    def reports_attention(self) -> bool:
        """Whether the module can return cross-attention weights: in "eager" attention only."""
        if self.architecture.source == "none":
            return False
        config = self._module.get_decoder().config
        return getattr(config, "_attn_implementation", None) == "eager"

    @property
    def folder(self) -> Path:
        return Path(self._module.config.name_or_path or type(self._module).__name__)

    @property
    def source_dtype(self) -> torch.dtype:
        dtype: torch.dtype = self._module.dtype
        return dtype

    def owns(self, encoded: EncodedSource) -> bool:
        return encoded.owner is self._owner

    def caches(self) -> tuple[ModuleKVCache, NullCrossCache]:
        return ModuleKVCache(self._decoder_config, self._module.dtype.itemsize), NullCrossCache()

    def encode(self, sources: Sequence[Any]) -> list[EncodedSource]:
        """Encode sources one by one.

        Args:
            sources: what the module's encoder takes, without the batch dimension: token ids, or a
                tensor (pixels, features). Ignored if there is no encoder.
        """
        return [_Encoded((), (), self._owner, self._encode(source)) for source in sources]

    def _encode(self, source: Any) -> Any:
        if self.architecture.source == "none":
            return None
        encoder = self._module.get_encoder()
        if self.architecture.source == "tokens":
            ids = torch.tensor([list(source)], device=self._module.device)
            return encoder(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True)
        tensor = torch.as_tensor(source).to(self._module.device, self._module.dtype)
        return encoder(**{_input_name(self._module): tensor[None]}, return_dict=True)

    def decode(
        self,
        ids: Sequence[Sequence[int]],
        slots: slice,
        encoded_sources: Sequence[EncodedSource],
        cache: ModuleKVCache,
        cross: NullCrossCache,
        capture: AttentionCapture | None = None,
        source_groups: SourceGroups | None = None,
    ) -> Tensor:
        """Run one pass, as Backend.decode, one sequence at a time; the "hidden states" are the
        logits."""
        logits = []
        sequences = zip(ids, cache.slots[slots], encoded_sources, strict=True)
        for index, (new, slot, encoded) in enumerate(sequences):
            attention = capture is not None and capture.captures(index)
            out = self._forward(list(new), slot, encoded, attention)
            logits.append(out.logits[0, -len(new) :])
            if capture is not None and attention:
                capture.add_weights(index, out.cross_attentions or ())
        return torch.stack(logits)

    def _forward(
        self, new: list[int], slot: ModuleSlot, encoded: EncodedSource, attention: bool
    ) -> Any:
        """The module's output for new tokens of a slot, or for all where its cache was lost."""
        assert isinstance(encoded, _Encoded)
        slot.rewind()
        ids = new if slot.past is not None else [*slot.ids, *new]
        tokens = torch.tensor([ids], device=self._module.device)
        if encoded.outputs is None:
            inputs: dict[str, Any] = {"input_ids": tokens}
        else:
            inputs = {"decoder_input_ids": tokens, "encoder_outputs": encoded.outputs}
        past, slot.past = slot.past, None  # if the pass fails, the cache is half written
        if attention:
            inputs["output_attentions"] = True
        if self._module.config.model_type in _ONE_TOKEN_A_PASS:
            out = self._one_by_one(inputs, past)
        else:
            out = self._module(**inputs, past_key_values=past, use_cache=True, return_dict=True)
        slot.past = out.past_key_values
        slot.ids += new
        return out

    def _one_by_one(self, inputs: dict[str, Any], past: Any) -> Any:
        """The output of a pass, computed in one pass a token."""
        outs = []
        for token in inputs["decoder_input_ids"].split(1, dim=1):
            out = self._module(
                **inputs | {"decoder_input_ids": token},
                past_key_values=past,
                use_cache=True,
                return_dict=True,
            )
            past = out.past_key_values
            outs.append(out)
        out = outs[-1]
        out.logits = torch.cat([each.logits for each in outs], dim=1)
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, vocab] in any dtype → a float32 copy."""
        return hidden.float() if hidden.dtype != torch.float32 else hidden.clone()

    def argmax(
        self, hidden: Tensor, suppressed: Sequence[Tensor], logprobs: bool
    ) -> tuple[Tensor, Tensor]:
        return argmax(self.logits(hidden), suppressed, logprobs)


def _architecture(module: Any) -> Architecture:
    """As far as it follows from the config and the generation config.

    Raises:
        RequestError: an encoder-decoder without decoder_start_token_id.
    """
    config = module.config
    encoder_decoder = bool(config.is_encoder_decoder)
    source: Literal["tokens", "none", "other"] = "none"
    if encoder_decoder:
        tokens = _input_name(module) == "input_ids"
        source = "tokens" if tokens else "other"
    defaults = module.generation_config
    start = _first(defaults, config, "decoder_start_token_id", "bos_token_id")
    eos = _first(defaults, config, "eos_token_id")
    if encoder_decoder and start is None:
        raise RequestError(f"{type(module).__name__} has no decoder_start_token_id")
    return Architecture(
        family="other",
        source=source,
        encoder=_stack(config if source == "tokens" else getattr(config, "encoder", config)),
        decoder=_stack(config.get_text_config(decoder=True)),
        vocab_size=int(module.get_output_embeddings().weight.shape[0]),
        source_vocab_size=_source_vocab_size(config),
        num_mel_bins=0,
        start_id=int(start or 0),
        eos_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
        pad_id=int(_first(defaults, config, "pad_token_id") or 0),
        separate_embeddings=False,
        tied_head=False,
    )


def _input_name(module: Any) -> str:
    """What the encoder calls its input; FSMT's does not say it, and has the module's."""
    name = getattr(module.get_encoder(), "main_input_name", None)
    return str(name or module.main_input_name)


def _source_vocab_size(config: Any) -> int:
    """FSMT has two vocabularies; encoder-decoders of two models keep sizes in their halves."""
    halves = (config, getattr(config, "encoder", None))
    sizes = (getattr(c, key, 0) for c in halves for key in ("src_vocab_size", "vocab_size"))
    return int(next((size for size in sizes if size), 0))


def _first(defaults: Any, config: Any, *names: str) -> Any:
    """The first of these values that is set in the generation config or the config."""
    for name in names:
        for holder in (defaults, config):
            value = getattr(holder, name, None)
            if value is not None:
                return value
    return None


def _stack(config: Any) -> Stack:
    """What the config of a module says of a stack; the engine only uses max_positions."""
    names = ("max_position_embeddings", "max_target_positions", "n_positions")
    limits = [int(value) for name in names if (value := getattr(config, name, None))]
    # T5's config states a limit that its relative positions do not have.
    relative = getattr(config, "relative_attention_num_buckets", None) is not None
    return Stack(
        layers=_number(getattr(config, "num_hidden_layers", 0)),
        heads=_number(getattr(config, "num_attention_heads", 1)) or 1,
        head_dim=0,
        d_model=_number(getattr(config, "hidden_size", 0)),
        ffn_dim=0,
        max_positions=_UNLIMITED_POSITIONS if relative or not limits else limits[0],
        activation="gelu",
        positions="table",
        position_offset=0,
        embedding_scale=1.0,
        norm_first=False,
        final_norm=False,
        embedding_norm=False,
    )


def _number(value: Any) -> int:
    """A size; of several, one for each stage as in Swin encoders, the last."""
    return int((value[-1] if isinstance(value, list | tuple) else value) or 0)
