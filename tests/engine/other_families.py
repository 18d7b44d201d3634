"""Families as random modules of transformers that run them, and a source for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

__all__ = ["OTHER_FAMILIES", "other_module", "source_of", "started"]

_SIDES: dict[str, Any] = {
    "vocab_size": 120, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
_SEQ2SEQ = _SIDES | {"max_position_embeddings": 64}
_T5: dict[str, Any] = {
    "vocab_size": 120, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4,
    "decoder_start_token_id": 0,
}  # fmt: skip
_BERT: dict[str, Any] = {
    "vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 64, "max_position_embeddings": 64,
}  # fmt: skip


def _fsmt() -> Any:
    sizes = {key: value for key, value in _SEQ2SEQ.items() if key != "vocab_size"}
    config = hf.FSMTConfig(langs=["en", "de"], src_vocab_size=120, tgt_vocab_size=110, **sizes)
    return hf.FSMTForConditionalGeneration(config)


def _prophetnet() -> Any:
    sides = {
        f"{side}_{key}" if key == "ffn_dim" else f"num_{side}_{key}": value
        for side in ("encoder", "decoder")
        for key, value in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 64))
    }
    return hf.ProphetNetForConditionalGeneration(
        hf.ProphetNetConfig(
            vocab_size=120, hidden_size=32, max_position_embeddings=64, pad_token_id=0,
            bos_token_id=1, eos_token_id=2, decoder_start_token_id=0, **sides,
        )
    )  # fmt: skip


def _two_berts() -> Any:
    decoder = hf.BertConfig(**_BERT, is_decoder=True, add_cross_attention=True)
    config = hf.EncoderDecoderConfig.from_encoder_decoder_configs(hf.BertConfig(**_BERT), decoder)
    return started(hf.EncoderDecoderModel(config=config), 1)


def _donut() -> Any:
    encoder = hf.DonutSwinConfig(
        image_size=[64, 32], patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[2, 2],
        window_size=4,
    )  # fmt: skip
    own = {"d_model": 16, "is_decoder": True, "add_cross_attention": True}
    decoder = hf.MBartConfig(**_SEQ2SEQ | own, is_encoder_decoder=False)
    config = hf.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    return started(hf.VisionEncoderDecoderModel(config=config), 2)


def started(module: Any, start: int) -> Any:
    """With the ids of a start, of padding and of an end."""
    for holder in (module.config, module.generation_config):
        holder.decoder_start_token_id, holder.pad_token_id, holder.eos_token_id = start, 0, 2
    return module


def _moonshine() -> Any:
    return hf.MoonshineForConditionalGeneration(
        hf.MoonshineConfig(
            vocab_size=120, hidden_size=32, intermediate_size=64, encoder_num_hidden_layers=2,
            decoder_num_hidden_layers=2, encoder_num_attention_heads=4,
            decoder_num_attention_heads=4, max_position_embeddings=64, pad_token_id=2,
            bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
        )
    )  # fmt: skip


def _speecht5() -> Any:
    sizes = {key: _SIDES[key] for key in _SIDES if key.startswith(("encoder_", "decoder_"))}
    sizes.pop("decoder_start_token_id")
    return hf.SpeechT5ForSpeechToText(
        hf.SpeechT5Config(
            vocab_size=120, hidden_size=32, conv_dim=[32] * 2, conv_stride=[10, 8],
            conv_kernel=[20, 8], num_feat_extract_layers=2, num_conv_pos_embeddings=16,
            num_conv_pos_embedding_groups=4, **sizes,
        )
    )  # fmt: skip


def _seamless(kind: str) -> Any:
    sizes = {key: value for key, value in _SIDES.items() if key not in ("d_model", "vocab_size")}
    config = hf.SeamlessM4TConfig(
        vocab_size=120, hidden_size=32, bos_token_id=2,
        feature_projection_input_dim=20, speech_encoder_layers=2, speech_encoder_attention_heads=4,
        speech_encoder_intermediate_size=64, conv_depthwise_kernel_size=5,
        num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4, adaptor_kernel_size=4,
        adaptor_stride=4, max_position_embeddings=64,
        **sizes | {"pad_token_id": 0, "eos_token_id": 3, "decoder_start_token_id": 3},
    )  # fmt: skip
    return getattr(hf, kind)(config)


_VISION: dict[str, Any] = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip


def _blip() -> Any:
    text = _BERT | {"encoder_hidden_size": 32, "bos_token_id": 5, "sep_token_id": 6,
                    "eos_token_id": 6, "pad_token_id": 0}  # fmt: skip
    config = hf.BlipConfig(text_config=text, vision_config=_VISION, projection_dim=16)
    return hf.BlipForConditionalGeneration(config)


def _git() -> Any:
    return hf.GitForCausalLM(
        hf.GitConfig(
            vision_config=_VISION, bos_token_id=5, eos_token_id=6, **_BERT,
        )
    )  # fmt: skip


def _blip2() -> Any:
    opt = hf.OPTConfig(
        vocab_size=121, hidden_size=32, word_embed_proj_dim=32, ffn_dim=64, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=64, bos_token_id=2, eos_token_id=50,
    )  # fmt: skip
    former = {key: value for key, value in _BERT.items() if key != "max_position_embeddings"}
    config = hf.Blip2Config(
        vision_config=_VISION, qformer_config=former | {"encoder_hidden_size": 32},
        text_config=opt.to_dict(), num_query_tokens=4, image_token_index=120,
    )  # fmt: skip
    return hf.Blip2ForConditionalGeneration(config)


OTHER_FAMILIES: dict[str, Callable[[], Any]] = {
    "mt5": lambda: hf.MT5ForConditionalGeneration(hf.MT5Config(**_T5)),
    "umt5": lambda: hf.UMT5ForConditionalGeneration(hf.UMT5Config(**_T5)),
    "pegasus": lambda: hf.PegasusForConditionalGeneration(hf.PegasusConfig(**_SEQ2SEQ)),
    "nllb-moe": lambda: hf.NllbMoeForConditionalGeneration(
        hf.NllbMoeConfig(**_SEQ2SEQ, num_experts=4, expert_capacity=64, encoder_sparse_step=2,
                         decoder_sparse_step=2)
    ),
    "switch": lambda: hf.SwitchTransformersForConditionalGeneration(
        hf.SwitchTransformersConfig(
            **_T5, num_decoder_layers=2, num_sparse_encoder_layers=1, num_sparse_decoder_layers=1,
            num_experts=4, expert_capacity=64,
        )
    ),
    "prophetnet": _prophetnet,
    "fsmt": _fsmt,
    "bert2bert": _two_berts,
    "donut": _donut,
    "speech2text": lambda: hf.Speech2TextForConditionalGeneration(
        hf.Speech2TextConfig(**_SIDES, max_source_positions=200, max_target_positions=64,
                             input_feat_per_channel=20, conv_channels=32)
    ),
    "moonshine": _moonshine,
    "seamless-speech": lambda: _seamless("SeamlessM4TForSpeechToText"),
    "seamless-text": lambda: _seamless("SeamlessM4TForTextToText"),
    "blip": _blip,
    "blip-2": _blip2,
    "git": _git,
    "speecht5": _speecht5,
}  # fmt: skip


def other_module(family: str) -> Any:
    """A module with random weights, wide enough apart that it does not say one thing for ever."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        module = OTHER_FAMILIES[family]()
        for parameter in module.parameters():
            if parameter.ndim == 2:
                torch.nn.init.normal_(parameter, std=0.2)
    return module.eval().requires_grad_(False)


def source_of(family: str, seed: int = 0) -> Any:
    """What the family's encoder reads, without the batch dimension."""
    generator = torch.Generator().manual_seed(seed)
    if family in ("blip", "blip-2", "git"):
        return torch.randn(3, 32, 32, generator=generator)
    if family == "seamless-speech":
        return torch.randn(60, 20, generator=generator)
    if family == "donut":
        return torch.randn(3, 64, 32, generator=generator)
    if family == "speech2text":
        return torch.randn(60, 20, generator=generator)
    if family in ("moonshine", "speecht5"):
        return torch.randn(8000, generator=generator) * 0.1
    return [5, 17, 33, 8, 2] if not seed else [*range(20, 20 + 3 * seed), 2]
