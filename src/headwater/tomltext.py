"""Settings in TOML files, read so that a mistake is told with its file and line.

The standard parser knows no lines, so a section remembers its header, and a key is looked for in
the text below that header when there is something to say about it.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from headwater.errors import InputError, nearest


@dataclass(frozen=True)
class Section:
    """A table of a TOML file: its header as written (empty at the top), and its values."""

    name: str
    text: str
    header: str
    place: int
    values: Mapping[str, Any]

    def refuse(self, key: str, message: str) -> NoReturn:
        """Raise InputError at the line of the key, or of the header if the key is not there."""
        raise InputError(f"{self.name}:{self._line(key)}: {message}")

    def only(self, *known: str) -> None:
        """Refuse every key that is not known."""
        for key in self.values:
            if key not in known:
                self.refuse(key, f"unknown key {key}; {nearest(key, known)}")

    def number(self, key: str, default: float | None = None, *, least: float = 0.0) -> float:
        """A number of at least `least`; infinite if the file says inf."""
        value = self.values.get(key, default)
        if value is None:
            self.refuse(key, f"{self._what()} needs {key} = a number")
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            self.refuse(key, f"{key} takes a number, not {value!r}")
        if value < least:
            self.refuse(key, f"{key} is {value}, it must be at least {least:g}")
        return float(value)

    def string(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key, default)
        if value is None:
            self.refuse(key, f"{self._what()} needs {key} = a text")
        if not isinstance(value, str):
            self.refuse(key, f"{key} takes a text, not {value!r}")
        return value

    def sections(self, key: str) -> Iterator[Section]:
        """The tables of `[[key]]`, in order."""
        found = self.values.get(key, [])
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            self.refuse(key, f"write each {key} as a table of its own: [[{key}]]")
        for place, values in enumerate(found):
            yield Section(self.name, self.text, f"[[{key}]]", place, values)

    def named(self, key: str) -> Iterator[tuple[str, Section]]:
        """The tables of `[key.NAME]` with their names."""
        found = self.values.get(key, {})
        if not isinstance(found, dict):
            self.refuse(key, f"write {key} as tables: [{key}.NAME]")
        for name, values in found.items():
            if not isinstance(values, dict):
                self.refuse(key, f"{key}.{name} must be a table: [{key}.{name}]")
            yield name, Section(self.name, self.text, f"[{key}.{name}]", 0, values)

    def section(self, key: str) -> Section:
        """The table `[key]`; empty if the file has none."""
        found = self.values.get(key, {})
        if not isinstance(found, dict):
            self.refuse(key, f"{key} must be a table: [{key}]")
        return Section(self.name, self.text, f"[{key}]", 0, found)

    def _what(self) -> str:
        return self.header or "the file"

    def _line(self, key: str) -> int:
        lines = self.text.splitlines()
        start = self._start(lines)
        for number in range(start, len(lines)):
            stripped = lines[number].strip()
            if stripped.startswith("[") and number > start:
                break
            if re.match(rf"[\"']?{re.escape(key)}[\"']?\s*[=.]", stripped):
                return number + 1
        for number in range(start, len(lines)):
            if re.match(rf"\[+{re.escape(key)}[\].]", lines[number].strip()):
                return number + 1
        return start + 1

    def _start(self, lines: list[str]) -> int:
        wanted = re.sub(r"[\"'\s]", "", self.header)
        seen = 0
        for number, line in enumerate(lines):
            if wanted and re.sub(r"[\"'\s]", "", line.partition("#")[0]) == wanted:
                if seen == self.place:
                    return number
                seen += 1
        return 0


def read_toml(path: Path) -> Section:
    """The top of a TOML file; raises InputError if there is none or it is not TOML."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return parse_toml(text, str(path))


def parse_toml(text: str, name: str) -> Section:
    """The top of a TOML text; `name` is what messages call it."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        message = re.sub(r" \(at .*\)$", "", str(error))
        raise InputError(f"{name}:{line}: not TOML: {message}") from None
    return Section(name, text, "", 0, values)
