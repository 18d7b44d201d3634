"""Gradio's named endpoints: for `gradio_client`, and for programs that read /gradio_api/info."""
