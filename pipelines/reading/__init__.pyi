"""The public names of this package, and where they are imported from."""

from .reader import (
    Reader as Reader,
)
from .results import (
    LineDelta as LineDelta,
)
from .results import (
    LineDone as LineDone,
)
from .results import (
    LinesFound as LinesFound,
)
from .results import (
    PictureText as PictureText,
)
from .results import (
    ReadEvent as ReadEvent,
)
from .results import (
    ReadLine as ReadLine,
)
from .results import (
    ReadOptions as ReadOptions,
)
