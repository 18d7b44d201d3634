"""HTML in another language: text is translated by blocks, tags stay."""
