"""Speed of decoding methods and lag of live captions, on the models of this machine."""
