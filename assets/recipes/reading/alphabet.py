"""The characters that the reader knows, and its tokenizer: a token is a character."""

from __future__ import annotations

import string

from tokenizers import Tokenizer, decoders, models, pre_tokenizers

START, PAD, END, UNKNOWN = SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
START_ID, PAD_ID, END_ID = 0, 1, 2
_GERMAN = "ÄÖÜäöüß„“‚‘–"
_OTHERS = "’”—…«»€£§°©•·éèêàáâçñóôúí"
CHARACTERS = " " + string.digits + string.ascii_letters + string.punctuation + _GERMAN + _OTHERS
TOKENS = (*SPECIAL, *CHARACTERS)
_IDS = {token: index for index, token in enumerate(TOKENS)}


def known(text: str) -> bool:
    """Whether each character of a text has a token."""
    return _IDS.keys() >= set(text)


def encode(text: str) -> list[int]:
    return [_IDS[character] for character in text]


def decode(ids: list[int]) -> str:
    """The text of ids; special tokens are left out."""
    return "".join(TOKENS[index] for index in ids if index >= len(SPECIAL))


def tokenizer() -> Tokenizer:
    """The same as a tokenizer of the tokenizers package."""
    made = Tokenizer(models.BPE(vocab=dict(_IDS), merges=[], unk_token=UNKNOWN))
    made.pre_tokenizer = pre_tokenizers.Split(pattern="", behavior="isolated")
    made.decoder = decoders.Fuse()
    made.add_special_tokens(list(SPECIAL))
    return made
