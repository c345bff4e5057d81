"""The folders of tests mirror the packages, so that the tests of a module are found without a search."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGES = TESTS.parent / "src" / "headwater"

OF_NO_PACKAGE = {"docs", "examples", "extending"}
"""What these test is no package: documents, examples, and what is added from outside."""

TESTED_ELSEWHERE = {
    "sim/trees": "runs the real protocol: tests/federation/dissemination/protocol",
}


def folders_with(root: Path, pattern: str) -> set[str]:
    """The folders that have such a file, not counting what only gathers other folders."""
    return {
        path.parent.relative_to(root).as_posix()
        for path in root.rglob(pattern)
        if path.stem != "__init__" and path.parent != root
    }


def test_every_folder_of_tests_is_a_package() -> None:
    packages = {
        path.parent.relative_to(PACKAGES).as_posix() for path in PACKAGES.rglob("__init__.py")
    }
    folders = folders_with(TESTS, "test_*.py")
    assert folders - packages == OF_NO_PACKAGE


def test_every_package_has_a_folder_of_tests() -> None:
    untested = folders_with(PACKAGES, "*.py") - folders_with(TESTS, "test_*.py")
    assert untested == TESTED_ELSEWHERE.keys(), (
        "give the package a folder of tests of the same path"
    )


def test_names_of_test_files_are_unique() -> None:
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []
