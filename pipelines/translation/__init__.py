"""Translation of text with Marian, NLLB, M2M100, mBART and T5 models.

`Translator` is the interface; `translator.py` says through which files a text passes. Names are
imported when they are first used, so that options and results are available without torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
