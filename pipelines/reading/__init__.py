"""Pictures to text: lines of print, documents and captions, with models that transformers runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
