"""Write a trained translator as a Marian folder, in half precision, that transformers can load.

python assets/recipes/translation/export.py --run RUN --out assets/models/demo-en-de
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from prepare import PAD
from sentencepiece import SentencePieceProcessor
from transformers import MarianMTModel

LONGEST = 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--run", type=Path, required=True, help="where train.py wrote")
    parser.add_argument("--out", type=Path, required=True, help="the model's folder")
    parser.add_argument("--reverse", action="store_true", help="German to English")
    arguments = parser.parse_args()
    out: Path = arguments.out

    model = MarianMTModel.from_pretrained(arguments.run / "model", dtype=torch.float32)
    generation = model.generation_config
    generation.max_length, generation.num_beams = LONGEST, 1
    generation.bad_words_ids, generation.forced_eos_token_id = [[PAD]], None
    model.half().save_pretrained(out)

    subwords = SentencePieceProcessor(model_file=str(arguments.run / "subwords.model"))
    vocabulary = {subwords.id_to_piece(i): i for i in range(subwords.get_piece_size())}
    write_json(out / "vocab.json", vocabulary)
    for name in ("source.spm", "target.spm"):
        shutil.copy(arguments.run / "subwords.model", out / name)
    source, target = ("de", "en") if arguments.reverse else ("en", "de")
    write_json(
        out / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": source,
            "target_lang": target,
            "separate_vocabs": False,
            "model_max_length": LONGEST,
            "eos_token": "</s>",
            "unk_token": "<unk>",
            "pad_token": "<pad>",
        },
    )
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{size / 1e6:.1f} MB in {out}")


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
