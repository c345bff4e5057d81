"""Settings in TOML files, read so that a mistake is reported with its file and line.

The standard parser knows no lines, so a section remembers its header, and a key is looked for in
the text below that header when there is something to say about it. A `Section` stops at the first
mistake; a `SectionReader` notes it and reads on, so that all of a file are reported in one run.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from headwater.errors import InputError, suggest

Value = TypeVar("Value")


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
        raise InputError(f"{self.name}:{self.line(key)}: {message}")

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

    def line(self, key: str) -> int:
        """The line of the key, or that of the header if the key is not there."""
        lines = self.text.splitlines()
        start = self._header_line(lines)
        for number in range(start, len(lines)):
            stripped = lines[number].strip()
            if stripped.startswith("[") and number > start:
                break
            if re.match(rf"[\"']?{re.escape(key)}[\"']?\s*[=.]", stripped):
                return number + 1
        for number in range(start, len(lines)):
            if re.match(rf"\[+(?:[^\]]*\.)?{re.escape(key)}[\].]", lines[number].strip()):
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


@dataclass
class Mistakes:
    """The mistakes noted while a file is read, in the order of their lines when they are reported."""

    noted: list[tuple[int, str]] = field(default_factory=list)

    def refuse_if_any(self) -> None:
        """Raise InputError with a line for each mistake."""
        if self.noted:
            raise InputError("\n".join(message for _, message in sorted(self.noted)))


@dataclass(frozen=True)
class SectionReader:
    """A section whose mistakes are noted; a value that cannot be had is replaced by a possible one.

    What is built of such values is never used: `Mistakes.refuse_if_any` comes before.
    """

    section: Section
    mistakes: Mistakes

    def __contains__(self, key: str) -> bool:
        return key in self.section.values

    def note(self, key: str, message: str) -> None:
        """Note a mistake at the line of a key."""
        line = self.section.line(key)
        self.mistakes.noted.append((line, f"{self.section.name}:{line}: {message}"))

    def check_keys(self, *allowed: str) -> None:
        for key in self.section.values:
            if key not in allowed:
                self.note(key, f"unknown key {key}; {suggest(key, allowed)}")

    def number(
        self,
        key: str,
        default: float | None = None,
        *,
        least: float = 0.0,
        most: float = math.inf,
    ) -> float:
        """A finite number from `least` to `most`."""
        value = self._attempt(key, lambda: self.section.number(key, default, least=least), least)
        if math.isinf(value):
            self.note(key, f"{key} is {value:g}, it must be finite")
        elif value > most:
            self.note(key, f"{key} is {_shown(value)}, it must be at most {_shown(most)}")
        else:
            return value
        return least

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        value = self.section.values.get(key, default)
        if _is_number(value) and value <= 0:
            self.note(key, f"{key} is {value:g}, it must be more than 0")
            return 1.0
        return self.number(key, default)

    def whole_number(
        self, key: str, default: int | None = None, *, least: int = 0, most: float = math.inf
    ) -> int:
        value = self.number(key, default, least=least, most=most)
        if value != int(value):
            self.note(key, f"{key} takes a whole number, not {value:g}")
        return int(value)

    def span(
        self, key: str, default: tuple[float, float] | None = None, *, least: float = 0.0
    ) -> tuple[float, float]:
        """A number, or the least and the largest of two: `rate = 5` or `rate = [1, 10]`."""
        value = self.section.values.get(key, default)
        if not isinstance(value, list | tuple):
            number = self.number(key, least=least)
            return number, number
        if len(value) != 2 or not all(_is_number(end) for end in value) or value[0] > value[1]:
            self.note(key, f"{key} takes a number or [least, largest], not {value!r}")
        elif value[0] < least:
            self.note(key, f"{key} begins at {value[0]:g}, it must be at least {least:g}")
        else:
            return float(value[0]), float(value[1])
        return least, least

    def string(self, key: str, default: str | None = None) -> str:
        return self._attempt(key, lambda: self.section.string(key, default), default or "")

    def choice(self, key: str, allowed: Sequence[str], default: str) -> str:
        """One of several texts."""
        value = self.string(key, default)
        if value not in allowed:
            self.note(key, f"there is no {key} {value}; {suggest(value, allowed)}")
            return default
        return value

    def strings(
        self, key: str, allowed: Iterable[str] | None = None, noun: str = ""
    ) -> tuple[str, ...]:
        """A list of different texts, each one of those allowed; `noun` is what one of them is."""
        value = self.section.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.note(key, f"{key} takes a list of texts, not {value!r}")
            return ()
        for position, item in enumerate(value):
            if item in value[:position]:
                self.note(key, f"{key} has {item} twice")
            elif allowed is not None and item not in allowed:
                self.note(key, f"no {noun} {item}; {suggest(item, allowed)}")
        return tuple(value)

    def section_of(self, key: str) -> SectionReader:
        """The table `[key]`; empty if the file has none."""
        empty = Section(self.section.name, self.section.text, f"[{key}]", 0, {})
        return SectionReader(
            self._attempt(key, lambda: self.section.section(key), empty), self.mistakes
        )

    def sections_of(self, key: str) -> list[SectionReader]:
        """The tables of `[[key]]`, in order."""
        found: list[Section] = self._attempt(key, lambda: list(self.section.sections(key)), [])
        return [SectionReader(section, self.mistakes) for section in found]

    def _attempt(self, key: str, read: Callable[[], Value], otherwise: Value) -> Value:
        try:
            return read()
        except InputError as error:
            self.mistakes.noted.append((self.section.line(key), str(error)))
            return otherwise


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_toml(path: Path) -> Section:
    """The top of a TOML file; raises InputError if there is none or it is not TOML."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return parse_toml(text, str(path))


def _shown(value: float) -> str:
    """A number without an exponent as long as it can be read so."""
    return f"{value:,.0f}" if value >= 1e6 else f"{value:g}"


def parse_toml(text: str, name: str) -> Section:
    """The top of a TOML text; `name` is what messages call it."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        location = re.search(r"\(at line (\d+), column \d+\)", str(error))
        line = int(location[1]) if location else text.count("\n") + 1
        message = re.sub(r" \(at .*\)$", "", str(error))
        if message == "Cannot overwrite a value":
            message = "this key is there already"
        raise InputError(f"{name}:{line}: not TOML: {message}") from None
    return Section(name, text, "", 0, values)
