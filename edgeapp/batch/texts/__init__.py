"""Texts, subtitles and pages to their translations."""
