"""Latency and quality of live captions, scored by omnisteval and simulstream."""
