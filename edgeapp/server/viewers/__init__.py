"""Live captions for an audience: a read-only page, for each viewer in a language of their own."""
