"""The options that commands share, and how a command parses them."""
