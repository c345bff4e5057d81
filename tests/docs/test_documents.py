"""The documents for contributors agree with the code: what they list is what there is.

The list of modules in docs/architecture.md is generated: `pytest --update-golden` rewrites it.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "headwater"
ARCHITECTURE = ROOT / "docs" / "architecture.md"
MODULES = re.compile(r"(?<=<!-- modules -->\n).*?(?=<!-- /modules -->)", re.DOTALL)


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Several tests read all sources; parsing them takes longer than the rest of these tests."""
    return ast.parse(path.read_text())


def first_sentence(path: Path) -> str:
    docstring = ast.get_docstring(syntax_tree(path)) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=[.:]) ", paragraph)[0].rstrip(".:") + "." if paragraph else ""


def module_list() -> str:
    """Every module with the first sentence of its docstring, a table for each package."""
    packages: dict[Path, list[Path]] = {}
    for path in sorted(SOURCES.rglob("*.py")):
        packages.setdefault(path.parent, []).append(path)
    text = []
    for folder, paths in packages.items():
        name = ".".join(folder.relative_to(SOURCES.parent).parts)
        init = [path for path in paths if path.name == "__init__.py"]
        heading = first_sentence(init[0]) if init else ""
        text.append(f"\n**`{name}`** {heading}".rstrip() + "\n\n| module | |\n|---|---|\n")
        text += [f"| `{p.stem}` | {first_sentence(p)} |\n" for p in paths if p not in init]
        if len(paths) == len(init):
            text.pop()
    return "".join(text) + "\n"


def test_every_module_is_listed_with_what_it_says_of_itself(update_golden: bool) -> None:
    text = ARCHITECTURE.read_text()
    if update_golden:
        ARCHITECTURE.write_text(MODULES.sub(lambda _: module_list(), text))
        return
    listed = MODULES.search(text)
    assert listed is not None
    assert listed[0] == module_list(), "run `pytest --update-golden tests/docs`"


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if path.name != "__main__.py" and not first_sentence(path)
    ]
    assert silent == []


def test_every_design_note_is_listed() -> None:
    notes = {path.name for path in (ROOT / "docs" / "design").glob("*.md")}
    listed = set(re.findall(r"\(design/([\w-]+\.md)\)", ARCHITECTURE.read_text()))
    assert listed == notes


def layers() -> list[list[str]]:
    """The layers that import-linter holds, those of the package and those inside runtime."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    return [
        [layer.replace("headwater.", "") for layer in contract["layers"]]
        for contract in contracts["contracts"]
        if contract["type"] == "layers"
    ]


def test_the_layers_are_those_that_are_checked() -> None:
    text = ARCHITECTURE.read_text()
    for contract in layers():
        block = [
            line.split("  ")[0].strip()
            for fence in re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
            for line in fence.splitlines()
        ]
        positions = [block.index(layer) for layer in contract]
        assert positions == sorted(positions), contract


def test_marks_are_those_of_pytest() -> None:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    declared = {mark.partition(":")[0] for mark in options["markers"]}
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    table = contributing[contributing.index("| mark |") :]
    listed = set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))
    assert listed >= declared
    makefile = (ROOT / "Makefile").read_text()
    for mark in declared:
        assert re.search(rf"\b{mark}\b", makefile), f"no make target runs {mark}"


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    declared = re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    assert declared is not None
    described = set(re.findall(r"^([a-z]+):.*##", makefile, re.MULTILINE))
    assert set(declared[1].split()) <= described


def test_a_public_class_name_occurs_once() -> None:
    """A reader who meets a name must not have to ask which one it is."""
    names = Counter(
        node.name
        for path in SOURCES.rglob("*.py")
        for node in syntax_tree(path).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert [name for name, number in names.items() if number > 1] == []


def test_no_folder_is_too_full_to_read() -> None:
    """At most fifteen modules a package, so that names lead to the module."""
    numbers = Counter(path.parent for path in SOURCES.rglob("*.py") if path.name != "__init__.py")
    full = {
        str(folder.relative_to(SOURCES)): number
        for folder, number in numbers.items()
        if number > 15
    }
    assert full == {}


def test_the_guide_quotes_messages_as_they_are() -> None:
    """Each part of a quoted message, between the dots for what varies, is a text in the code."""
    texts = [
        node.value
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(syntax_tree(path))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]
    guide = (ROOT / "docs" / "runtime.md").read_text()
    table = guide[guide.index("| message | what to do |") :].split("\n\n")[0]
    quoted = [
        # How long is a constant of its own in the code.
        part.strip(" :").removesuffix(" 30 s")
        for row in table.splitlines()[2:]
        for message in re.findall(r"`([^`]+)`", row.split("|")[1])
        if message != "headwater status"
        for part in message.split("...")
    ]
    assert len(quoted) > 20
    assert [part for part in quoted if not any(part in text for text in texts)] == []
