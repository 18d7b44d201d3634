"""The families of models as data, without torch."""
