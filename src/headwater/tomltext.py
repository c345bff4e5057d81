"""Settings in TOML files, read so that a mistake is reported with its file and line.

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

from headwater.errors import InputError, suggest


@dataclass(frozen=True)
class Section:
    """A table of a TOML file: its header as written (empty at the top), and its values."""

    name: str
    text: str
    header: str
    position: int
    values: Mapping[str, Any]

    def refuse(self, key: str, message: str) -> NoReturn:
        """Raise InputError at the line of the key, or of the header if the key is not there."""
        raise InputError(f"{self.name}:{self._line(key)}: {message}")

    def check_keys(self, *allowed: str) -> None:
        """Refuse every key that is not known."""
        for key in self.values:
            if key not in allowed:
                self.refuse(key, f"unknown key {key}; {suggest(key, allowed)}")

    def number(self, key: str, default: float | None = None, *, least: float = 0.0) -> float:
        """A number of at least `least`; infinite if the file says inf."""
        value = self.values.get(key, default)
        if value is None:
            self.refuse(key, f"{self._label()} needs {key} = a number")
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            self.refuse(key, f"{key} takes a number, not {value!r}")
        if value < least:
            self.refuse(key, f"{key} is {value}, it must be at least {least:g}")
        return float(value)

    def string(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key, default)
        if value is None:
            self.refuse(key, f"{self._label()} needs {key} = a text")
        if not isinstance(value, str):
            self.refuse(key, f"{key} takes a text, not {value!r}")
        return value

    def sections(self, key: str) -> Iterator[Section]:
        """The tables of `[[key]]`, in order."""
        tables = self.values.get(key, [])
        if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
            self.refuse(key, f"write each {key} as a table of its own: [[{key}]]")
        for position, values in enumerate(tables):
            yield Section(self.name, self.text, f"[[{key}]]", position, values)

    def named_sections(self, key: str) -> Iterator[tuple[str, Section]]:
        """The tables of `[key.NAME]` with their names."""
        tables = self.values.get(key, {})
        if not isinstance(tables, dict):
            self.refuse(key, f"write {key} as tables: [{key}.NAME]")
        for name, values in tables.items():
            if not isinstance(values, dict):
                self.refuse(key, f"{key}.{name} must be a table: [{key}.{name}]")
            yield name, Section(self.name, self.text, f"[{key}.{name}]", 0, values)

    def section(self, key: str) -> Section:
        """The table `[key]`; empty if the file has none."""
        table = self.values.get(key, {})
        if not isinstance(table, dict):
            self.refuse(key, f"{key} must be a table: [{key}]")
        return Section(self.name, self.text, f"[{key}]", 0, table)

    def _label(self) -> str:
        return self.header or "the file"

    def _line(self, key: str) -> int:
        lines = self.text.splitlines()
        start = self._header_line(lines)
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

    def _header_line(self, lines: list[str]) -> int:
        header = re.sub(r"[\"'\s]", "", self.header)
        seen = 0
        for number, line in enumerate(lines):
            if header and re.sub(r"[\"'\s]", "", line.partition("#")[0]) == header:
                if seen == self.position:
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
        location = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(location[1]) if location else text.count("\n") + 1
        message = re.sub(r" \(at .*\)$", "", str(error))
        raise InputError(f"{name}:{line}: not TOML: {message}") from None
    return Section(name, text, "", 0, values)
