"""Texts with structure: read, translated, and written with their structure kept."""
