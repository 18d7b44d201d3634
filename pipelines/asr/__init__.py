"""Speech to text with Whisper models: cached, streaming decoding with openai-whisper's results.

    for segment in Transcriber("demo").transcribe("talk.mp3"):
        print(segment.start, segment.end, segment.text)

Names are imported when they are first used, so options and results are available without torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
