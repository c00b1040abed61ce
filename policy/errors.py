"""What is wrong with what a person wrote. Apart from the model, so that whoever only refuses loads no more."""

from __future__ import annotations


class BadInput(ValueError):
    """Input that a person can mend: says where, which field, what value, and what to do about it."""

    def __init__(
        self,
        message: str,
        *,
        where: str = "",
        line: int | None = None,
        field: str = "",
        value: object = None,
        remedy: str = "",
    ) -> None:
        self.message, self.where, self.line, self.field = message, where, line, field
        self.value, self.remedy = value, remedy
        super().__init__(self.words(message))

    def words(self, message: str) -> str:
        """Everything but the value, which may be a secret of somebody else's than the reader; `message` as shown."""
        place = self.where + (f":{self.line}" if self.line is not None else "")
        parts = [place and f"{place}:", self.field and f"{self.field}:", message, self.remedy and f"({self.remedy})"]
        return " ".join(p for p in parts if p)
