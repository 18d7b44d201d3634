"""Programming interfaces: OpenAI's audio endpoints, LibreTranslate's, health and metrics."""
