"""Any transformers model in memory, encoder-decoder or decoder-only, as the engine's backend.

It runs through its own forward and its own cache objects, with its own tensors, dtype and device:
slower than the native network, with the same interface.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from pipelines.engine.model.architecture import Architecture, Stack
from pipelines.engine.model.device import Plan, Side
from pipelines.engine.model.memory import Memory, Sharing
from pipelines.engine.model.readout import Readout
from pipelines.errors import RequestError

__all__ = ["Adapter"]

# Of models whose configuration names no longest sequence (relative positions).
_ENDLESS = 1 << 20


@dataclass(frozen=True, eq=False)
class _Encoded(Memory):
    """An encoder's output, as the module's forward takes it; None where there is no encoder."""

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

    def to(self, device: torch.device, dtype: torch.dtype) -> Memory:
        """Itself: a module stays where it is."""
        return self


@dataclass
class _Slot:
    """ids: all that was read, of which `length` count. past: transformers' cache of them."""

    ids: list[int] = field(default_factory=list)
    length: int = 0
    past: Any = None

    def rewind(self) -> None:
        """Forget what was read beyond `length`; the cache as a whole where it cannot be cut."""
        extra = len(self.ids) - self.length
        del self.ids[self.length :]
        if extra and self.past is not None:
            try:
                self.past.crop(-extra)
            except (AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError):
                self.past = None


class _ModuleSlots:
    """What each lane has read, in caches of one row each."""

    def __init__(self) -> None:
        self.slots: list[_Slot] = []

    def __len__(self) -> int:
        return len(self.slots)

    @property
    def lengths(self) -> list[int]:
        return [slot.length for slot in self.slots]

    def alloc(self) -> int:
        self.slots.append(_Slot())
        return len(self.slots) - 1

    def bytes_for(self, slots: int) -> int:
        """Not known: transformers' caches grow with what is read."""
        return 0

    def advance(self, slots: slice, tokens: int) -> None:
        for slot in self.slots[slots]:
            slot.length += tokens

    def truncate(self, slot: int, length: int) -> None:
        self.slots[slot].length = length

    def reorder(self, sources: Sequence[int]) -> None:
        taken: set[int] = set()
        moved = []
        for source in sources:
            slot = self.slots[source]
            moved.append(copy.deepcopy(slot) if source in taken else slot)
            taken.add(source)
        self.slots = moved

    @property
    def bytes(self) -> int:
        layers = (getattr(slot.past, "layers", ()) for slot in self.slots)
        keys = [getattr(layer, "keys", None) for row in layers for layer in row]
        return sum(2 * int(key.nbytes) for key in keys if key is not None)


class _NoSources:
    """Encoder outputs are read where they lie; only their number is kept."""

    bytes = 0

    def __init__(self) -> None:
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def alloc(self) -> int:
        self._count += 1
        return self._count - 1

    def bytes_for(self, slots: int) -> int:
        """Nothing is kept."""
        return 0

    def store(self, slot: int, memory: Memory) -> None:
        """Nothing to store."""

    def reorder(self, sources: Sequence[int]) -> None:
        self._count = len(sources)


class Adapter:
    """A transformers module. Not thread-safe."""

    follows_attention = False

    def __init__(self, module: Any) -> None:
        self._module = module
        self.architecture = _architecture(module)
        side = Side("dense", module.dtype, module.dtype)
        precision = str(module.dtype).removeprefix("torch.")
        self.plan = Plan(precision, module.device, side, side, "the module's own")
        self._owner = object()

    @property
    def folder(self) -> Path:
        return Path(self._module.config.name_or_path or type(self._module).__name__)

    @property
    def memory_dtype(self) -> torch.dtype:
        dtype: torch.dtype = self._module.dtype
        return dtype

    def owns(self, memory: Memory) -> bool:
        return memory.owner is self._owner

    def caches(self) -> tuple[_ModuleSlots, _NoSources]:
        return _ModuleSlots(), _NoSources()

    def encode(self, sources: Sequence[Any]) -> list[Memory]:
        """Each source alone, as its module would be called with it: token ids, or a tensor of what
        the encoder takes (pixels, features) without the batch dimension; None without encoder."""
        return [_Encoded((), (), self._owner, self._encode(source)) for source in sources]

    def _encode(self, source: Any) -> Any:
        if self.architecture.source == "none":
            return None
        encoder = self._module.get_encoder()
        if self.architecture.source == "tokens":
            ids = torch.tensor([list(source)], device=self._module.device)
            return encoder(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True)
        tensor = torch.as_tensor(source).to(self._module.device, self._module.dtype)
        return encoder(**{encoder.main_input_name: tensor[None]}, return_dict=True)

    def decode(
        self,
        ids: Sequence[Sequence[int]],
        slots: slice,
        memories: Sequence[Memory],
        cache: _ModuleSlots,
        cross: _NoSources,
        readout: Readout | None = None,
        sharing: Sharing | None = None,
    ) -> Tensor:
        """As Backend.decode; the "states" are the logits themselves."""
        rows = zip(ids, cache.slots[slots], memories, strict=True)
        return torch.stack([self._read(list(new), slot, memory) for new, slot, memory in rows])

    def _read(self, new: list[int], slot: _Slot, memory: Memory) -> Tensor:
        assert isinstance(memory, _Encoded)
        slot.rewind()
        read = new if slot.past is not None else [*slot.ids, *new]
        tokens = torch.tensor([read], device=self._module.device)
        if memory.outputs is None:
            given: dict[str, Any] = {"input_ids": tokens}
        else:
            given = {"decoder_input_ids": tokens, "encoder_outputs": memory.outputs}
        past, slot.past = slot.past, None  # half written, should the pass fail
        out = self._module(**given, past_key_values=past, use_cache=True, return_dict=True)
        slot.past = out.past_key_values
        slot.ids += new
        logits: Tensor = out.logits[0, -len(new) :]
        return logits

    def logits(self, hidden: Tensor) -> Tensor:
        return hidden.float() if hidden.dtype != torch.float32 else hidden.clone()


def _architecture(module: Any) -> Architecture:
    config = module.config
    both = bool(config.is_encoder_decoder)
    decoder = config.get_text_config(decoder=True)
    side = _stack(decoder)
    source: Literal["tokens", "none", "other"] = "none"
    if both:
        tokens = module.get_encoder().main_input_name == "input_ids"
        source = "tokens" if tokens else "other"
    defaults = module.generation_config
    start = _first(defaults, config, "decoder_start_token_id", "bos_token_id")
    eos = _first(defaults, config, "eos_token_id")
    if both and start is None:
        raise RequestError(f"{type(module).__name__} names no decoder_start_token_id")
    return Architecture(
        family="other",
        source=source,
        encoder=_stack(config if source == "tokens" else getattr(config, "encoder", config)),
        decoder=side,
        vocab_size=int(module.get_output_embeddings().weight.shape[0]),
        source_vocab_size=int(getattr(config, "vocab_size", 0) or 0),
        num_mel_bins=0,
        start_id=int(start or 0),
        eos_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
        pad_id=int(_first(defaults, config, "pad_token_id") or 0),
        separate_embeddings=False,
        tied_head=False,
    )


def _first(defaults: Any, config: Any, *names: str) -> Any:
    for name in names:
        for holder in (defaults, config):
            value = getattr(holder, name, None)
            if value is not None:
                return value
    return None


def _stack(config: Any) -> Stack:
    """What can be known of a stack from outside; only its longest sequence matters."""
    names = ("max_position_embeddings", "max_target_positions", "n_positions")
    found = [int(value) for name in names if (value := getattr(config, name, None))]
    # T5 names a number that its relative positions do not keep to.
    relative = getattr(config, "relative_attention_num_buckets", None) is not None
    return Stack(
        layers=int(getattr(config, "num_hidden_layers", 0) or 0),
        heads=int(getattr(config, "num_attention_heads", 1) or 1),
        head_dim=0,
        d_model=int(getattr(config, "hidden_size", 0) or 0),
        ffn=0,
        max_positions=_ENDLESS if relative or not found else found[0],
        activation="gelu",
        positions="table",
        position_offset=0,
        embedding_scale=1.0,
        norm_first=False,
        final_norm=False,
        embedding_norm=False,
    )
