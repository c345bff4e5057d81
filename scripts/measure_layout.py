"""Measures of the layout of a source tree: `measure_layout.py [SRC]`, by default src/headwater.

To compare with an earlier commit: `git worktree add OLD f9bb911`, then give OLD/src/headwater.
Only syntax is read; nothing is imported, so it runs on any commit.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from statistics import median

Function = ast.FunctionDef | ast.AsyncFunctionDef
LARGE = 50

# Rulers between sections and instructions to tools explain nothing.
NO_REASON = re.compile(r"#\s*(-{3}|type:|noqa|pragma|fmt:|!)")


def share(part: int, whole: int) -> str:
    return f"{part} of {whole} ({100 * part / whole:.1f} %)" if whole else "none"


def functions(tree: ast.Module) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def public_names(tree: ast.Module) -> Iterator[str]:
    """Functions of a module and methods of its classes, as others call them."""
    for node in tree.body:
        for each in (node, *(node.body if isinstance(node, ast.ClassDef) else ())):
            if isinstance(each, Function) and not each.name.startswith("_"):
                yield each.name


def module_functions(tree: ast.Module) -> Iterator[str]:
    return (n.name for n in tree.body if isinstance(n, Function) and not n.name.startswith("_"))


def comment_lines(text: str) -> int:
    """Lines with a comment that may give a reason."""
    return len(
        {
            token.start[0]
            for token in tokenize.generate_tokens(io.StringIO(text).readline)
            if token.type == tokenize.COMMENT and not NO_REASON.match(token.string)
        }
    )


def imports(module: str, tree: ast.Module) -> Iterator[str]:
    """What a module of the package imports when it is loaded or called, by full name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parent = module.split(".")[: -node.level] if node.level else []
            base = ".".join([*parent, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def cycle(root: Path, trees: dict[Path, ast.Module]) -> str:
    """A cycle between the packages and modules directly inside runtime, if there is one."""
    graph: dict[str, set[str]] = {}
    inside = f"{root.name}.runtime."
    for path, tree in trees.items():
        module = ".".join((root.name, *path.relative_to(root).with_suffix("").parts))
        if module.startswith(inside):
            own = module.split(".")[2]
            targets = {
                name.split(".")[2] for name in imports(module, tree) if name.startswith(inside)
            }
            graph.setdefault(own, set()).update(targets - {own})
    try:
        TopologicalSorter({name: found & set(graph) for name, found in graph.items()}).prepare()
    except CycleError as error:
        return " -> ".join(error.args[1])
    return "none"


def tuple_path(root: Path) -> str:
    """The modules that docs/architecture.md names as steps of a tuple's path."""
    text = (root.parents[1] / "docs" / "architecture.md").read_text()
    section = re.search(r"^## A tuple's path\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    if not section:
        return "docs/architecture.md has no such section"
    # Rows name a file in full the first time and by its last part later.
    steps = re.findall(r"^\| \d+ \| `([\w/]+\.py)`", section[1], re.MULTILINE)
    return str(len({Path(step).name for step in steps}))


def main(root: Path) -> None:
    texts = {path: path.read_text() for path in sorted(root.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    classes = Counter(
        node.name
        for tree in trees.values()
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    names = [name for tree in trees.values() for name in module_functions(tree)]
    called = [name for tree in trees.values() for name in public_names(tree)]
    folders = Counter(path.parent for path in texts if path.name != "__init__.py")
    fullest, modules = folders.most_common(1)[0]
    sizes = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees.values()
        for node in functions(tree)
    ]
    asked = sum(
        len(re.findall(r"isinstance\((?:\w+\.)*plan,", text))
        for path, text in texts.items()
        if "compile" not in path.parts
    )
    lines = sum(len(text.splitlines()) for text in texts.values())
    print(
        "class names in two or more modules:",
        share(sum(n > 1 for n in classes.values()), len(classes)),
    )
    print("public functions of one word:", share(sum("_" not in n for n in names), len(names)))
    print("  with public methods:", share(sum("_" not in n for n in called), len(called)))
    print(f"fullest folder: {fullest.relative_to(root.parent)}, {modules} modules")
    print("cycle inside runtime:", cycle(root, trees))
    print("lines with a comment:", share(sum(map(comment_lines, texts.values())), lines))
    print("isinstance(plan, ..) outside compile:", asked)
    print(
        f"functions: median {median(sizes):.0f} lines, longer than {LARGE}:",
        share(sum(n > LARGE for n in sizes), len(sizes)),
    )
    print("modules of a tuple's path:", tuple_path(root))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "src/headwater").resolve())
