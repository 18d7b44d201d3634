"""Write the trained recognizer as a Whisper folder, in half precision, as the hub has them.

    python assets/recipes/recognition/export.py --run RUN --vocabulary DIR --speech DIR \
        --out assets/models/demo

Takes RUN/model, which train.py refreshes at every checkpoint, and the tokenizer of vocabulary.py.
Every number in the files follows from the model's config and the tokenizer, or is measured on the
sentences SPEECH/dev (calibration.py). The figures in the model card are evaluate.py's to fill in.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from string import Template
from typing import Any

import torch
from calibration import measure
from tokenizers import Tokenizer
from transformers import WhisperForConditionalGeneration

from pipelines.asr.audio.arrays import SAMPLE_RATE
from pipelines.asr.audio.features import HOP, N_FFT
from pipelines.asr.timestamps import TIME_PRECISION
from pipelines.asr.tokenizer import WhisperTokenizer

HERE = Path(__file__).parent
LATEST_START = 1.0  # seconds into a window, by which its first segment begins
POSITION = round(TIME_PRECISION * SAMPLE_RATE)  # samples that one position of the encoder covers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="where train.py wrote")
    parser.add_argument("--vocabulary", type=Path, required=True, help="what vocabulary.py wrote")
    parser.add_argument("--speech", type=Path, required=True, help="holds dev, by speak.py")
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    arguments = parser.parse_args()
    out: Path = arguments.out
    # Whoever loads the folder meanwhile shall find the old one or the new one.
    part = out.with_name(out.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)

    model = WhisperForConditionalGeneration.from_pretrained(
        arguments.run / "model", dtype=torch.float32, attn_implementation="eager"
    ).eval()
    write_tokenizer(arguments.vocabulary, part)
    tokenizer = WhisperTokenizer(part)
    measured = measure(model, tokenizer, arguments.speech / "dev")
    for parameter in model.model.decoder.layer_norm.parameters():
        parameter.data *= measured.scale  # and with it all logits
    settings = generation_settings(model.config, tokenizer, measured.heads)
    model.config.begin_suppress_tokens = settings["begin_suppress_tokens"]
    model.half().save_pretrained(part)  # proj_out is the embedding: it is not stored again
    write_json(part / "generation_config.json", settings)
    write_json(part / "preprocessor_config.json", preprocessor(model.config))
    write_card(part, model)
    for file in part.iterdir():
        file.chmod(0o644)  # safetensors are written for their owner alone

    shutil.rmtree(out, ignore_errors=True)
    part.rename(out)
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{size / 1e6:.1f} MB in {out}, alignment heads {measured.heads}")
    print(f"logits scaled by {measured.scale}")


def generation_settings(
    config: Any, tokenizer: WhisperTokenizer, heads: list[list[int]]
) -> dict[str, Any]:
    """generation_config.json with the keys of openai/whisper-*.en."""
    special = tokenizer.special
    # In so small a vocabulary " -" is two tokens, of which openai's rule takes the first: here the
    # bare space, that words with rare initials begin with.
    unspoken = set(tokenizer.non_speech) - set(tokenizer.blank)
    return {
        "alignment_heads": heads,
        "begin_suppress_tokens": list(tokenizer.blank),
        "bos_token_id": config.bos_token_id,
        "decoder_start_token_id": config.decoder_start_token_id,
        "eos_token_id": special.eot,
        "is_multilingual": False,
        "max_initial_timestamp_index": round(LATEST_START / TIME_PRECISION),
        "max_length": config.max_target_positions,
        "no_timestamps_token_id": special.no_timestamps,
        "pad_token_id": config.pad_token_id,
        "prev_sot_token_id": special.previous,
        "return_timestamps": False,
        "suppress_tokens": sorted(unspoken | set(special.control)),
    }


def preprocessor(config: Any) -> dict[str, Any]:
    samples = config.max_source_positions * POSITION
    return {
        "chunk_length": samples // SAMPLE_RATE,
        "feature_extractor_type": "WhisperFeatureExtractor",
        "feature_size": config.num_mel_bins,
        "hop_length": HOP,
        "n_fft": N_FFT,
        "n_samples": samples,
        "nb_max_frames": samples // HOP,
        "padding_side": "right",
        "padding_value": 0.0,
        "processor_class": "WhisperProcessor",
        "return_attention_mask": False,
        "sampling_rate": SAMPLE_RATE,
    }


def write_tokenizer(vocabulary: Path, out: Path) -> None:
    """The tokenizer's six files. Like Whisper's, it puts the prompt and the end around a text, and
    does not count timestamps among the special tokens."""
    whole = json.loads((vocabulary / "tokenizer.json").read_text(encoding="utf-8"))
    ids = Tokenizer.from_file(str(vocabulary / "tokenizer.json")).get_vocab()
    first_time, end = ids["<|0.00|>"], "<|endoftext|>"
    for token in whole["added_tokens"]:
        token["special"] = token["id"] < first_time
        token["normalized"] = not token["special"]
    added = {token["content"]: token["id"] for token in whole["added_tokens"]}
    controls = [name for name, i in added.items() if i < first_time]
    whole["model"]["vocab"][end] = added.pop(end)
    whole["post_processor"] = template(["<|startoftranscript|>", "<|notimestamps|>"], end, ids)
    write_json(out / "tokenizer.json", whole)
    write_json(out / "vocab.json", whole["model"]["vocab"])
    shutil.copyfile(vocabulary / "merges.txt", out / "merges.txt")
    write_json(out / "added_tokens.json", added)
    roles = ("bos_token", "eos_token", "pad_token", "unk_token")
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    write_json(
        out / "special_tokens_map.json",
        {role: {"content": end, **plain} for role in roles}
        | {"additional_special_tokens": controls},
    )
    write_json(
        out / "tokenizer_config.json",
        dict.fromkeys(roles, end)
        | {
            "add_bos_token": False,
            "add_prefix_space": False,
            "added_tokens_decoder": {
                str(token["id"]): {key: token[key] for key in token if key != "id"}
                for token in whole["added_tokens"]
            },
            "additional_special_tokens": controls,
            "errors": "replace",
            "model_max_length": 1024,
            "processor_class": "WhisperProcessor",
            "return_attention_mask": False,
            "tokenizer_class": "WhisperTokenizer",
        },
    )


def template(prompt: list[str], end: str, ids: dict[str, int]) -> dict[str, Any]:
    """What the tokenizers package puts around one text, or two."""

    def special(token: str) -> dict[str, Any]:
        return {"SpecialToken": {"id": token, "type_id": 0}}

    first, second = ({"Sequence": {"id": name, "type_id": 0}} for name in "AB")
    start = [special(token) for token in prompt]
    return {
        "type": "TemplateProcessing",
        "single": [*start, first, special(end)],
        "pair": [*start, first, second, special(end)],
        "special_tokens": {
            token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in [*prompt, end]
        },
    }


def write_card(out: Path, model: WhisperForConditionalGeneration) -> None:
    config = model.config
    text = Template((HERE / "card.md").read_text(encoding="utf-8")).substitute(
        parameters=f"{model.num_parameters() / 1e6:.1f}",
        megabytes=f"{sum(path.stat().st_size for path in out.iterdir()) / 1e6:.1f}",
        encoder_layers=config.encoder_layers,
        decoder_layers=config.decoder_layers,
        width=config.d_model,
        mels=config.num_mel_bins,
        tokens=config.vocab_size,
        window=preprocessor(config)["chunk_length"],
    )
    (out / "README.md").write_text(text, encoding="utf-8")


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
