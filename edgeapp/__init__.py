"""The application: command line, settings, batch jobs, subtitles."""
