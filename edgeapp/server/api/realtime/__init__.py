"""OpenAI's Realtime interface: transcription sessions over a WebSocket."""
