"""One row of a table of published runs: its cells by column, read strictly; what is wrong names row and column."""

from collections.abc import Mapping

from capibara_assets.errors import InputError


class Cells:
    """One row's cells by column; remembers what had to be assumed."""

    def __init__(self, row: str, cells: Mapping[str, str | None]) -> None:
        self.row, self._cells = row, cells
        self.assumed: list[str] = []

    def text(self, column: str) -> str:
        value = self._cells.get(column)
        return value.strip() if isinstance(value, str) else ""

    def number(self, column: str) -> float | None:
        """The cell as a positive number, a trailing % or leading ~ taken off; None where it is empty."""
        text = self.text(column).replace(",", "").lstrip("~≈ ").rstrip("% ")
        if not text or text.lower() in {"na", "n/a", "nan", "none", "null", "-", "?"}:
            return None
        try:
            value = float(text)
        except ValueError:
            raise self.refusal(column, f"{text!r} is no number") from None
        if not 0 < value < float("inf"):
            if value == 0:
                return None
            raise self.refusal(column, f"{text!r} must be positive and finite")
        return value

    def parts(self, column: str) -> tuple[int, ...]:
        """A whole number, or several joined by `+` (encoder and decoder)."""
        text = self.text(column)
        try:
            found = tuple(int(float(part.replace(",", ""))) for part in text.split("+")) if text else ()
        except (ValueError, OverflowError):
            raise self.refusal(column, f"{text!r} is neither a number nor two joined by +") from None
        if any(part < 1 for part in found) or len(found) > 2:
            raise self.refusal(column, f"{text!r} must be one or two positive numbers")
        return found

    def whole(self, column: str) -> int | None:
        value = self.number(column)
        if value is not None and (value != int(value) or value < 1):
            raise self.refusal(column, f"{self.text(column)!r} must be a whole number")
        return None if value is None else int(value)

    def needed(self, column: str) -> int:
        value = self.whole(column)
        if value is None:
            raise self.refusal(column, "is empty, and nothing can be predicted without it")
        return value

    def assume(self, column: str, value: object, why: str = "") -> None:
        self.assumed.append(f"{column} {value}" + (f" ({why})" if why else ""))

    def refusal(self, column: str, what: str) -> InputError:
        return InputError(f"row {self.row}, column {column}: {what}")
