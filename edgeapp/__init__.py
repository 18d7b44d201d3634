"""The application: command line, batch jobs, live captions, subtitles, the browser page."""
