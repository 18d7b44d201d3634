"""Any transformers model, encoder-decoder or decoder-only, as a backend.

The module runs through its own forward and its own cache objects, with its own tensors, dtype and
device: slower than the native model, with the same interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines.engine.backends.base import Caches
from pipelines.engine.backends.module_forward import ModuleForward, forward_of
from pipelines.engine.backends.transformers_cache import (
    CacheRow,
    ModuleKVCache,
    ModuleSlot,
    can_join,
)
from pipelines.engine.model.lm_head import argmax
from pipelines.engine.model.precision import ComputePlan, StackPrecision
from pipelines.engine.model.sources import NoSource, source_of
from pipelines.engine.model.threads import ComputeThreads
from pipelines.engine.state.encoded_source import EncodedSource, SourceGroups
from pipelines.engine.state.forward_batch import AttentionCapture
from pipelines.engine.state.kv_cache import NullCrossCache
from pipelines.errors import RequestError
from pipelines.families.architecture import Architecture, Norm, Stack

# For models whose config states no longest sequence (relative positions).
_UNLIMITED_POSITIONS = 1 << 20

# Captioning models whose special ids are those of their text decoder, and what BLIP ends with.
_CAPTION_DECODERS = frozenset({"blip", "blip-2"})
_EOS_NAMES = {"blip": ("sep_token_id",)}

_ENCODER_ROWS = 16  # sources encoded in one pass


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


@dataclass(frozen=True, eq=False)
class _Row:
    """A sequence in a pass: its index there, what the module has read of it, its new tokens."""

    index: int
    slot: ModuleSlot
    new: list[int]
    encoded: _Encoded


class TransformersBackend:
    """A transformers module. Not thread-safe.

    Raises:
        RequestError: Modules of its kind are not run.
    """

    def __init__(self, module: Any, compute_threads: ComputeThreads) -> None:
        self._module = module
        self._compute_threads = compute_threads
        self._forward = forward_of(module)
        self._joins: bool | None = None  # whether rows of its cache can be joined; None: not known
        self._decoder_config = module.config.get_text_config(decoder=True)
        self.architecture = _architecture(module, self._forward)
        self.source = source_of(self.architecture)
        side = StackPrecision("dense", module.dtype, module.dtype)
        compute_type = str(module.dtype).removeprefix("torch.")
        self.plan = ComputePlan(compute_type, module.device, side, side, "the module's own")
        self._owner = object()

    @property
    def reports_attention(self) -> bool:
        """Whether the module can return cross-attention weights: in "eager" attention only."""
        if isinstance(self.source, NoSource):
            return False
        config = self._forward.decoder.config
        return getattr(config, "_attn_implementation", None) == "eager"

    @property
    def folder(self) -> Path:
        return Path(self._module.config.name_or_path or type(self._module).__name__)

    @property
    def source_dtype(self) -> torch.dtype:
        dtype: torch.dtype = self._module.dtype
        return dtype

    @property
    def weight_bytes(self) -> int:
        """Bytes of the module's weights."""
        return sum(weight.nbytes for weight in self._module.parameters())

    def owns(self, encoded: EncodedSource) -> bool:
        return encoded.owner is self._owner

    def caches(self) -> Caches:
        cache = ModuleKVCache(self._decoder_config, self._module.dtype.itemsize)
        return Caches(cache, NullCrossCache(), lambda *args: self.decode(cache, *args))

    @property
    def sources_at_once(self) -> int | None:
        return None

    def encode(self, sources: Sequence[Any]) -> list[EncodedSource]:
        """Encode sources, those that fit together in one pass.

        Args:
            sources: what the module's encoder takes, without the batch dimension: token ids, or a
                tensor (pixels, features). Ignored if there is no encoder.
        """
        self._compute_threads.use()
        encoded: list[EncodedSource | None] = [None] * len(sources)
        for batch in self._encoder_batches(sources):
            outputs = self._forward.encode([sources[index] for index in batch])
            for index, each in zip(batch, outputs, strict=True):
                encoded[index] = _Encoded((), (), self._owner, each)
        return [each for each in encoded if each is not None]

    def encode_ahead(self, source: Any) -> None:
        """Not possible: the module's operations use all threads."""

    def _encoder_batches(self, sources: Sequence[Any]) -> list[list[int]]:
        """Indices of the sources that are encoded together: texts of like length, else equal
        shapes."""
        if not self._forward.batched:
            return [[index] for index in range(len(sources))]
        if self.source.is_text:
            order = sorted(range(len(sources)), key=lambda index: len(sources[index]))
            groups = [order]
        else:
            shapes: dict[Any, list[int]] = {}
            for index, source in enumerate(sources):
                shapes.setdefault(getattr(source, "shape", None), []).append(index)
            groups = list(shapes.values())
        return [
            group[start : start + _ENCODER_ROWS]
            for group in groups
            for start in range(0, len(group), _ENCODER_ROWS)
        ]

    def decode(
        self,
        cache: ModuleKVCache,
        ids: Sequence[Sequence[int]],
        slots: slice,
        encoded_sources: Sequence[EncodedSource],
        capture: AttentionCapture | None = None,
        source_groups: SourceGroups | None = None,
    ) -> Tensor:
        """Run one pass, as DecodePass; the "hidden states" are the logits.

        Sequences at the same position are one pass of the module: most modules count positions
        for all rows alike.
        """
        self._compute_threads.use()
        rows = [
            _Row(index, slot, [*new], encoded)
            for index, (new, slot, encoded) in enumerate(
                zip(ids, cache.slots[slots], encoded_sources, strict=True)
            )
            if isinstance(encoded, _Encoded)
        ]
        for row in rows:
            cache.rewind(row.slot, row.encoded.length)
        logits: dict[int, Tensor] = {}
        for group in self._groups(rows):
            attention = capture is not None and any(capture.captures(row.index) for row in group)
            out = self._run(group, cache, attention)
            for number, row in enumerate(group):
                logits[row.index] = out.logits[number, -len(row.new) :]
                if capture is not None and capture.captures(row.index):
                    length = row.encoded.length
                    layers = out.cross_attentions or ()
                    weights = [layer[number : number + 1, ..., :length] for layer in layers]
                    capture.add_weights(row.index, weights)
        return torch.stack([logits[row.index] for row in rows])

    def _groups(self, rows: Sequence[_Row]) -> list[list[_Row]]:
        """The rows of each pass. Only padded texts have a mask, so others have equal sources."""
        groups: dict[Any, list[_Row]] = {}
        for row in rows:
            past = -1 if row.slot.past is None else len(row.slot.ids)
            source = 0 if self.source.is_text else row.encoded.length
            # The first pass of all is of one row: its cache shows whether rows can be joined.
            alone = row.index if not (self._forward.batched and self._joins) else None
            groups.setdefault((past, row.slot.length, source, alone), []).append(row)
        return list(groups.values())

    def _run(self, rows: Sequence[_Row], cache: ModuleKVCache, attention: bool) -> Any:
        """The module's output for new tokens of slots, or for all where a cache was lost."""
        slots = [row.slot for row in rows]
        reads = slots[0].past is None  # everything, for all of them
        tokens = [[*row.slot.ids, *row.new] if reads else row.new for row in rows]
        longest = max(row.encoded.length for row in rows)
        past = None if reads else cache.take(slots, longest)
        out = self._forward.decode(
            torch.tensor(tokens, device=self._module.device),
            [row.encoded.outputs for row in rows],
            past,
            attention,
        )
        if self._joins is None:
            self._joins = can_join(out.past_key_values)
        for number, row in enumerate(rows):
            row.slot.past = CacheRow(out.past_key_values, number, len(rows))
            row.slot.ids += row.new
        return out

    def logits(self, hidden: Tensor) -> Tensor:
        """[n, vocab] in any dtype → a float32 copy."""
        return hidden.float() if hidden.dtype != torch.float32 else hidden.clone()

    def argmax(
        self, hidden: Tensor, suppressed: Sequence[Tensor], logprobs: bool
    ) -> tuple[Tensor, Tensor]:
        return argmax(self.logits(hidden), suppressed, logprobs)


def _architecture(module: Any, forward: ModuleForward) -> Architecture:
    """As far as it follows from the config and the generation config.

    Raises:
        RequestError: an encoder-decoder without decoder_start_token_id.
    """
    config, source = module.config, forward.source
    if config.model_type in _CAPTION_DECODERS:
        defaults = config = config.get_text_config()
    else:
        defaults = module.generation_config
    start = _first(defaults, config, "decoder_start_token_id", "bos_token_id")
    eos = _first(defaults, config, *_EOS_NAMES.get(module.config.model_type, ()), "eos_token_id")
    if source != "none" and start is None:
        raise RequestError(f"{type(module).__name__} has no decoder_start_token_id")
    head = module.get_output_embeddings() or forward.decoder.get_output_embeddings()
    return Architecture(
        family="other",
        source=source,
        encoder=_stack(config if source == "tokens" else getattr(config, "encoder", config)),
        decoder=_stack(config.get_text_config(decoder=True)),
        vocab_size=int(head.weight.shape[0]),
        source_vocab_size=_source_vocab_size(config),
        num_mel_bins=0,
        start_id=int(start or 0),
        eos_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
        pad_id=int(_first(defaults, config, "pad_token_id") or 0),
        separate_embeddings=False,
        tied_head=False,
    )


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
        max_positions=_UNLIMITED_POSITIONS if relative or not limits else limits[0],
        blocks=(),
        norm=Norm(first=False),
        positions="none",
    )


def _number(value: Any) -> int:
    """A size; of several, one for each stage as in Swin encoders, the last."""
    return int((value[-1] if isinstance(value, list | tuple) else value) or 0)
