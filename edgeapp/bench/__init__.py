"""Our engine and transformers side by side, on random weights of true shape. Needs `bench`."""
