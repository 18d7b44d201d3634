"""Recordings to text files and subtitles."""
