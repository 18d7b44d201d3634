"""Ways of decoding, compared on the same texts or recording."""
