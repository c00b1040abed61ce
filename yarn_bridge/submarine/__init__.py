"""`submarine job run` of Submarine 0.2 to 0.6 on Horae. `translate` is all of it; `table` says what happens to what;
`upload` puts the user's files where the job finds them."""

from yarn_bridge.submarine.table import OPTIONS, markdown
from yarn_bridge.submarine.translate import Line, Translation, translate
from yarn_bridge.submarine.upload import upload

__all__ = ["OPTIONS", "Line", "Translation", "markdown", "translate", "upload"]
