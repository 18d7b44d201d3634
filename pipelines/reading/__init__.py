"""Pictures to text: lines of print, documents and captions, with models that transformers runs."""
