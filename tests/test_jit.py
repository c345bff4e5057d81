"""Machine code is kept for the next process, until something changes from which it is made."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import numba
import pytest

from headwater import jit
from headwater.network import paths
from headwater.plan.placement.planners import kernel as placement
from headwater.plan.throughput import enumerate, kernel, local_search
from headwater.sim import chains, clustered, coin_flips, joins, sets, slots

MODULES = (
    paths,
    placement,
    enumerate,
    kernel,
    local_search,
    chains,
    clustered,
    coin_flips,
    joins,
    sets,
    slots,
)
"""All modules with functions that Numba compiles."""

FILES = {
    "errors.py": "",
    "constants.py": "STEP = 1\n",
    "other.py": "STEP = 3\n",
    "lazy/__init__.py": "HOMES = {'found': 'pack.lazy.within'}\n",
    "lazy/within.py": "found = 1\n",
    "steps.py": "from pack.constants import STEP\n",
    "top.py": "import numba\nfrom pack import errors\nfrom pack.lazy import found\nfrom pack.steps import (\n    STEP,\n)\n",
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        file = tmp_path / "pack" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path / "pack"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    jit.cache_folder.cache_clear()
    yield tmp_path / "caches" / "headwater" / "numba"
    jit.cache_folder.cache_clear()


def test_sources_are_all_that_is_imported(package: Path) -> None:
    found = jit.imported_sources(package / "top.py", package)
    assert {str(file.relative_to(package)) for file in found} == FILES.keys() - {"other.py"}


@pytest.mark.parametrize("changed", sorted(FILES.keys() - {"other.py"}))
def test_another_source_is_another_digest(package: Path, changed: str) -> None:
    before = jit.source_digest(package / "top.py", package)
    file = package / changed
    file.write_text(file.read_text() + "# changed\n")
    assert jit.source_digest(package / "top.py", package) != before


def test_the_digest_stays_with_what_it_is_made_from(package: Path, tmp_path: Path) -> None:
    before = jit.source_digest(package / "top.py", package)
    (package / "other.py").write_text("STEP = 4\n")
    os.utime(package / "top.py", (1, 1))
    assert jit.source_digest(package / "top.py", package) == before
    (tmp_path / "elsewhere").mkdir()
    moved = package.rename(tmp_path / "elsewhere" / "pack")
    assert jit.source_digest(moved / "top.py", moved) == before


def test_another_compiler_is_another_digest(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = jit.source_digest(package / "top.py", package)
    monkeypatch.setattr(numba, "__version__", "0.0.1")
    other = jit.source_digest(package / "top.py", package)
    monkeypatch.setattr(jit.sys, "version", "3.99")
    assert len({before, other, jit.source_digest(package / "top.py", package)}) == 3


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_machine_code_of_a_module_is_kept_under_its_digest(module: object) -> None:
    file = Path(str(module.__file__))  # type: ignore[attr-defined]
    functions = [
        f for f in vars(module).values() if isinstance(f, numba.core.dispatcher.Dispatcher)
    ]
    own = [f for f in functions if Path(f.py_func.__code__.co_filename) == file]
    assert own
    folder = jit.cache_folder(file)
    for function in own if folder else ():
        assert Path(function.stats.cache_path).parent == folder


def test_the_folder_is_in_the_cache_of_the_user(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert jit.cache_root() == root
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jit.cache_root() == tmp_path / ".cache" / "headwater" / "numba"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert jit.cache_root() == tmp_path / ".cache" / "headwater" / "numba"
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    assert jit.cache_root() == tmp_path / "numba" / "headwater"


def test_a_second_compilation_loads_the_first(root: Path) -> None:
    def more(x: int) -> int:
        return x + 1

    first, second = jit.cached_njit(more), jit.cached_njit(more)
    assert first(1) == second(1) == 2
    assert not first.stats.cache_hits  # type: ignore[attr-defined]
    assert second.stats.cache_hits  # type: ignore[attr-defined]
    assert list(root.glob("*/*/*.nbi"))


def test_without_a_folder_nothing_is_kept(root: Path) -> None:
    root.parent.parent.write_text("not a folder")

    def less(x: int) -> int:
        return x - 1

    function = jit.cached_njit(less)
    assert function(1) == 0
    assert function.stats.cache_path is None  # type: ignore[attr-defined]


def test_a_folder_that_cannot_be_written_is_not_used(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = Path(coin_flips.__file__)
    assert jit.cache_folder(module)
    jit.cache_folder.cache_clear()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert jit.cache_folder(module) is None


def test_folders_that_nobody_uses_are_removed(root: Path) -> None:
    for name, age in (("old", jit.UNUSED_SECONDS + 60), ("young", jit.UNUSED_SECONDS - 3600)):
        (root / name).mkdir(parents=True)
        (root / name / jit.LAST_USE).touch()
        then = time.time() - age
        os.utime(root / name / jit.LAST_USE, (then, then))
    folder = jit.cache_folder(Path(coin_flips.__file__))
    assert folder
    assert {path.name for path in root.iterdir()} == {"young", folder.name}
