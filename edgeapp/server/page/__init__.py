"""What the page asks of the server, and what it downloads."""
