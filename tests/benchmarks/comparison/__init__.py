"""EdgeApp and its peers side by side on the same random weights."""
