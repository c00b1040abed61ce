"""`submarine job run` of Submarine 0.2 to 0.6 on Horae. `translate` is all of it; `table` says what happens to what."""

from yarn_bridge.submarine.table import OPTIONS, markdown
from yarn_bridge.submarine.translate import Line, Translation, translate

__all__ = ["OPTIONS", "Line", "Translation", "markdown", "translate"]
