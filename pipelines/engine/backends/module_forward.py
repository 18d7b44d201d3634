"""How each kind of transformers module encodes sources and runs one decoder pass.

Most encoder-decoders agree; captioning models do not, so each kind is a class here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from pipelines.errors import RequestError
from pipelines.families import FAMILIES


class ModuleForward(Protocol):
    """A module's encoder and decoder, with one interface for all kinds.

    Attributes:
        source: What the encoder reads; "none" if there is no encoder.
        batched: Whether rows are computed in one pass without influence on each other.
        decoder: The part whose config describes the decoder.
    """

    source: Literal["tokens", "other", "none"]
    batched: bool
    decoder: Any

    def encode(self, sources: Sequence[Any]) -> list[Any]:
        """Encode sources that fit into one pass: token ids, or tensors of one shape.

        Returns:
            For each source what `decode` takes: an output whose first item is [1, length, width].
        """
        ...

    def decode(self, tokens: Tensor, sources: Sequence[Any], past: Any, attention: bool) -> Any:
        """Run one pass.

        Args:
            tokens: New ids [rows, tokens].
            sources: The encoded source of each row.
            past: The module's cache with those rows; None at the beginning.
            attention: Whether the output holds cross-attention weights.

        Returns:
            The module's output: logits, whose last positions are the new tokens', and the cache.
        """
        ...


def forward_of(module: Any) -> ModuleForward:
    """The kind of a module.

    Raises:
        RequestError: It keeps a recurrent state instead of a cache of tokens, or it is BLIP-2
            with an encoder-decoder.
    """
    if getattr(module, "_is_stateful", False):
        raise RequestError(
            f"{type(module).__name__} keeps a recurrent state, which cannot be taken back to an "
            "earlier token: beams and drafts are not possible with it, and it is not run here"
        )
    kind = module.config.model_type
    if kind == "blip":
        return _Blip(module)
    if kind == "git":
        return _Git(module)
    if kind == "blip-2":
        return _Blip2(module)
    if module.config.is_encoder_decoder:
        return _EncoderDecoder(module)
    return _DecoderOnly(module)


class _DecoderOnly:
    """A causal language model."""

    source: Literal["tokens", "other", "none"] = "none"
    batched = True

    def __init__(self, module: Any) -> None:
        self.decoder = self._module = module

    def encode(self, sources: Sequence[Any]) -> list[Any]:
        return [None for _ in sources]

    def decode(self, tokens: Tensor, sources: Sequence[Any], past: Any, attention: bool) -> Any:
        return self._module(
            input_ids=tokens, past_key_values=past, use_cache=True, return_dict=True
        )


class _EncoderDecoder:
    """An encoder for ids, sound or pictures, and a decoder with cross-attention."""

    def __init__(self, module: Any) -> None:
        self._module, self.decoder = module, module.get_decoder()
        # FSMT's encoder does not say what its input is called, and has the module's name for it.
        name = getattr(module.get_encoder(), "main_input_name", None) or module.main_input_name
        self._input_name = str(name)
        self.source: Literal["tokens", "other", "none"] = (
            "tokens" if self._input_name == "input_ids" else "other"
        )
        family = FAMILIES.get(module.config.model_type)
        passes = "all rows" if family is None else family.passes
        self._one_token, self.batched = passes == "one token", passes == "all rows"
        self._joined = _JoinedSources()

    def encode(self, sources: Sequence[Any]) -> list[Any]:
        encoder, device = self._module.get_encoder(), self._module.device
        if self.source == "other":
            tensors = [torch.as_tensor(source) for source in sources]
            batch = torch.stack(tensors).to(device, self._module.dtype)
            out = encoder(**{self._input_name: batch}, return_dict=True)
            return _rows(out, [out[0].shape[1]] * len(sources))
        lengths = [len(source) for source in sources]
        ids = torch.zeros(len(sources), max(lengths), dtype=torch.long, device=device)
        for row, source in zip(ids, sources, strict=True):
            row[: len(source)] = torch.tensor(source, device=device)
        mask = _length_mask(lengths, device)
        out = encoder(input_ids=ids, attention_mask=mask, return_dict=True)
        return _rows(out, lengths)

    def decode(self, tokens: Tensor, sources: Sequence[Any], past: Any, attention: bool) -> Any:
        outputs, mask = self._joined(sources)
        inputs: dict[str, Any] = {
            "encoder_outputs": outputs,
            "use_cache": True,
            "return_dict": True,
        }
        if mask is not None:
            inputs["attention_mask"] = mask
        if attention:
            inputs["output_attentions"] = True
        if not self._one_token:
            return self._module(decoder_input_ids=tokens, past_key_values=past, **inputs)
        outs = []
        for column in range(tokens.shape[1]):
            token = tokens[:, column : column + 1]
            out = self._module(decoder_input_ids=token, past_key_values=past, **inputs)
            past = out.past_key_values
            outs.append(out)
        out.logits = torch.cat([each.logits for each in outs], dim=1)
        return out


class _Blip:
    """BLIP for captions: a text decoder with cross-attention to the states of the picture."""

    source: Literal["tokens", "other", "none"] = "other"
    batched = True

    def __init__(self, module: Any) -> None:
        self._module, self.decoder = module, module.text_decoder
        self._joined = _JoinedSources()

    def encode(self, sources: Sequence[Any]) -> list[Any]:
        pixels = torch.stack([torch.as_tensor(source) for source in sources])
        pixels = pixels.to(self._module.device, self._module.dtype)
        out = self._module.vision_model(pixel_values=pixels, return_dict=True)
        return _rows(out, [out[0].shape[1]] * len(sources))

    def decode(self, tokens: Tensor, sources: Sequence[Any], past: Any, attention: bool) -> Any:
        outputs, _ = self._joined(sources)
        return self.decoder(
            input_ids=tokens,
            encoder_hidden_states=outputs[0],
            past_key_values=past,
            use_cache=True,
            return_dict=True,
        )


class _Git:
    """GIT: the states of the picture precede the text of a causal decoder.

    The module has no way to pass those states, so that each new sequence encodes the picture.
    They do not count as positions of the text.
    """

    source: Literal["tokens", "other", "none"] = "other"
    batched = True

    def __init__(self, module: Any) -> None:
        self.decoder = self._module = module
        self._picture_tokens = module.git.encoder.layer[0].attention.self.image_patch_tokens

    def encode(self, sources: Sequence[Any]) -> list[Any]:
        pixels = [torch.as_tensor(source) for source in sources]
        return [
            (each[None].to(self._module.device, self._module.dtype).flatten(2).mT, each.shape)
            for each in pixels
        ]

    def decode(self, tokens: Tensor, sources: Sequence[Any], past: Any, attention: bool) -> Any:
        pixels, read = None, 0
        if past is None:
            pixels = torch.cat([flat.mT.unflatten(2, shape[1:]) for flat, shape in sources])
        else:
            read = past.get_seq_length() - self._picture_tokens
        positions = torch.arange(read, read + tokens.shape[1], device=tokens.device)
        return self._module(
            input_ids=tokens,
            position_ids=positions[None].expand(len(tokens), -1),
            pixel_values=pixels,
            past_key_values=past,
            use_cache=True,
            return_dict=True,
        )


class _Blip2:
    """BLIP-2 with a causal language model: the embeddings of the picture precede the text."""

    source: Literal["tokens", "other", "none"] = "other"
    batched = True

    def __init__(self, module: Any) -> None:
        if not module.config.use_decoder_only_language_model:
            raise RequestError(
                f"{type(module).__name__} with the encoder-decoder "
                f"{module.config.text_config.model_type} is not run here; the variant with OPT is"
            )
        self._module, self.decoder = module, module.language_model

    def encode(self, sources: Sequence[Any]) -> list[Any]:
        pixels = torch.stack([torch.as_tensor(source) for source in sources])
        pixels = pixels.to(self._module.device, self._module.dtype)
        embeddings = self._module.get_image_features(pixels, return_dict=True).pooler_output
        return [(each[None].clone(),) for each in embeddings]

    def decode(self, tokens: Tensor, sources: Sequence[Any], past: Any, attention: bool) -> Any:
        if past is not None:
            inputs: dict[str, Any] = {"input_ids": tokens}
        else:
            prefix = torch.cat([source[0] for source in sources])
            embeddings = self._module.get_input_embeddings()(tokens)
            inputs = {"inputs_embeds": torch.cat([prefix.to(embeddings.dtype), embeddings], dim=1)}
        return self.decoder(**inputs, past_key_values=past, use_cache=True, return_dict=True)


class _JoinedSources:
    """The sources of a batch as one output, and which positions are valid.

    The last result is kept: a batch is the same in most passes.
    """

    def __init__(self) -> None:
        self._sources: list[Any] = []
        self._result: tuple[Any, Tensor | None] = None, None

    def __call__(self, sources: Sequence[Any]) -> tuple[Any, Tensor | None]:
        """Join sources.

        Args:
            sources: Outputs whose first item is [1, length, width].

        Returns:
            An output with one row a source, padded, and a mask [rows, length]; None where all are
            equally long.
        """
        same = len(sources) == len(self._sources)
        if not (same and all(a is b for a, b in zip(sources, self._sources, strict=True))):
            self._sources, self._result = [*sources], _join(sources)
        return self._result


def _join(sources: Sequence[Any]) -> tuple[Any, Tensor | None]:
    if len(sources) == 1:
        return sources[0], None
    lengths = [source[0].shape[1] for source in sources]
    longest = max(lengths)
    padded = [
        torch.nn.functional.pad(source[0], (0, 0, 0, longest - source[0].shape[1]))
        for source in sources
    ]
    mask = None if min(lengths) == longest else _length_mask(lengths, padded[0].device)
    return type(sources[0])(last_hidden_state=torch.cat(padded)), mask


def _rows(out: Any, lengths: Sequence[int]) -> list[Any]:
    """The rows of an encoder's output, without padding."""
    if len(lengths) == 1:
        return [out]
    return [
        type(out)(last_hidden_state=out[0][row : row + 1, :length].clone())
        for row, length in enumerate(lengths)
    ]


def _length_mask(lengths: Sequence[int], device: torch.device) -> Tensor:
    """1 at valid positions [rows, longest], else 0."""
    positions = torch.arange(max(lengths), device=device)
    return (positions < torch.tensor(lengths, device=device)[:, None]).long()
