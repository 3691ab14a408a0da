"""Weaves mutants into a file: the program that is built has all of them, and an environment variable chooses one.

A mutant is a change of one expression. Where it stands, the woven file asks `crate::woven::on(NUMBER)`: if so, what the
mutant has there is done, and otherwise what the file has. What a mutant has stands in lines of its own, between two
marks, so that an error of the compiler leads to it.

Cannot be woven, and are built alone: what stands in a constant, a `const fn` or a type, what a macro makes, and an arm
of a `match` that has no arm for all others.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, List, NamedTuple, Set, Tuple

import tree_sitter_rust
from tree_sitter import Language, Node, Parser

RUST = Parser(Language(tree_sitter_rust.language()))
#: What is computed while the program is built.
CONSTANT = {"const_item", "static_item", "array_type", "enum_variant", "const_block", "type_arguments"}
#: What begins the values of functions that return an iterator.
ITERATOR = "::std::iter::"
BEGIN, END = re.compile(r"/\*<(\d+)\*/"), re.compile(r"/\*(\d+)>\*/")


class Mutant(NamedTuple):
    number: int
    #: As cargo-mutants names it, without its line.
    name: str
    file: str
    genre: str
    #: Lines and columns from 1, in characters.
    start: Tuple[int, int]
    end: Tuple[int, int]
    replacement: str

    def span(self, lines: List[str]) -> Tuple[int, int]:
        """Returns where it stands, in bytes."""

        def offset(line: int, column: int) -> int:
            before = sum(len(text.encode()) for text in lines[: line - 1])
            return before + len(lines[line - 1][: column - 1].encode())

        return offset(*self.start), offset(*self.end)


def alone(source: str, mutant: Mutant) -> str:
    """Returns the file with this mutant and no other."""
    start, end = mutant.span(source.splitlines(keepends=True))
    text = source.encode()
    return (text[:start] + mutant.replacement.encode() + text[end:]).decode()


class Weaver:
    def __init__(self, source: str, mutants: Iterable[Mutant]) -> None:
        self._text = source.encode()
        self._root = RUST.parse(self._text).root_node
        #: The mutants of each node that is written anew.
        self._at: Dict[int, List[Mutant]] = {}
        self.woven: Set[int] = set()
        #: In a chain of conditions with `let` there can be no `||`.
        self.wrong: Set[int] = set()
        lines = source.splitlines(keepends=True)
        for mutant in mutants:
            node = self._place(mutant, *mutant.span(lines))
            if node is not None and node.type == "let_chain":
                self.wrong.add(mutant.number)
            elif node is not None and not is_constant(node):
                self._at.setdefault(node.id, []).append(mutant)
                self.woven.add(mutant.number)

    def _place(self, mutant: Mutant, start: int, end: int) -> Node | None:
        """Returns the node that is written anew; None if there is none of the kind that is expected."""
        if mutant.genre == "StructField" and self._text[end - 1 : end] == b",":
            end -= 1
        node = self._root.descendant_for_byte_range(start, end)
        if mutant.genre == "FnValue":
            # Its span is all that stands in the body.
            while node is not None and not is_body(node):
                node = node.parent
            return node
        while node is not None and node.parent is not None and span_of(node.parent) == (start, end):
            node = node.parent
        if node is None or span_of(node) != (start, end):
            return None
        if mutant.genre == "MatchArm":
            return node if node.type == "match_arm" and is_optional(node) else None
        if mutant.genre == "StructField":
            return node if base_of(node) is not None else None
        if mutant.genre == "MatchArmGuard":
            return node if not node.type.startswith("let_") else None
        parents = {
            "BinaryOperator": ("binary_expression", "compound_assignment_expr", "let_chain"),
            "UnaryOperator": ("unary_expression",),
        }
        parent = node.parent
        return parent if parent is not None and parent.type in parents.get(mutant.genre, ()) else None

    def text(self) -> str:
        return self._write(self._root).decode()

    def _write(self, node: Node) -> bytes:
        mutants = self._at.get(node.id, [])
        of_genre = mutants[0].genre if mutants else ""
        if of_genre == "FnValue" and mutants[0].replacement.startswith(ITERATOR):
            return self._iterator(node, mutants)
        if of_genre == "FnValue":
            asked = b"".join(marked(it, b"if %s { return %s; }" % (on(it), it.replacement.encode())) for it in mutants)
            return b"{" + asked + b"\n" + self._parts(node)[1:]
        if of_genre == "MatchArm":
            return self._arm(node, mutants)
        if of_genre == "StructField":
            return self._field(node, mutants)
        here = self._parts(node)
        if not mutants:
            return here
        others = b"".join(marked(it, b"if %s { %s } else" % (on(it), self._instead(node, it))) for it in mutants)
        return b"(" + others + b"{ " + here + b" })"

    def _instead(self, node: Node, mutant: Mutant) -> bytes:
        """Returns what the mutant has. No other one is in it, because one is chosen at a time."""
        if mutant.genre == "MatchArmGuard":
            return mutant.replacement.encode()
        if mutant.genre == "UnaryOperator":
            return self._text[node.children[0].end_byte : node.end_byte]
        left, operator, right = node.children[0], node.child_by_field_name("operator"), node.children[-1]
        assert operator is not None
        before = self._text[left.start_byte : operator.start_byte]
        return before + mutant.replacement.encode() + self._text[operator.end_byte : right.end_byte]

    def _iterator(self, body: Node, mutants: List[Mutant]) -> bytes:
        """The body's type must be one for all: what it returns is cut to nothing, and what the mutant has is added."""
        cut = b"||".join(marked(it, on(it)) for it in mutants)
        written = b"{(" + self._parts(body) + b").into_iter().take(if " + cut + b" { 0 } else { usize::MAX })"
        for it in mutants:
            item = it.replacement.removeprefix(ITERATOR + "once(")[:-1]
            if item != it.replacement[:-1]:
                written += marked(it, b".chain(if %s { Some(%s) } else { None })" % (on(it), item.encode()))
        return written + b"}"

    def _field(self, node: Node, mutants: List[Mutant]) -> bytes:
        """What the field has in the base of its struct is read from one that is the base and nothing else."""
        base, name = base_of(node), node.child_by_field_name("field") or node.children[0]
        assert base is not None
        assert base.parent is not None
        struct = base.parent.parent
        kind = struct.child_by_field_name("name") if struct is not None else None
        assert kind is not None
        parts = [it.text or b"" for it in (kind, base, name)]
        others = b"".join(marked(it, b"if %s { (%s { %s }).%s } else" % (on(it), *parts)) for it in mutants)
        value = node.child_by_field_name("value")
        return parts[2] + b": " + others + b"{ " + (parts[2] if value is None else self._write(value)) + b" }"

    def _arm(self, node: Node, mutants: List[Mutant]) -> bytes:
        pattern = node.child_by_field_name("pattern")
        assert pattern is not None
        condition = pattern.child_by_field_name("condition")
        asked = b"&&".join(marked(it, b"!" + on(it)) for it in mutants)
        rest = self._between(node, pattern.end_byte, node.end_byte)
        before = self._text[node.start_byte : pattern.start_byte]
        if condition is None:
            return before + self._write(pattern) + b" if " + asked + rest
        head = self._between(pattern, pattern.start_byte, condition.start_byte)
        return before + head + asked + b"&& (" + self._write(condition) + b")" + rest

    def _parts(self, node: Node) -> bytes:
        return self._between(node, node.start_byte, node.end_byte)

    def _between(self, node: Node, start: int, end: int) -> bytes:
        """Returns what is written for a part of a node: its children there, and what is between them."""
        parts: List[bytes] = []
        for child in node.children:
            if start <= child.start_byte and child.end_byte <= end:
                parts += [self._text[start : child.start_byte], self._write(child)]
                start = child.end_byte
        return b"".join(parts) + self._text[start:end]


def on(mutant: Mutant) -> bytes:
    return b"crate::woven::on(%d)" % mutant.number


def marked(mutant: Mutant, text: bytes) -> bytes:
    number = mutant.number
    return b"\n/*<%d*/%s/*%d>*/\n" % (number, text, number)


def span_of(node: Node) -> Tuple[int, int]:
    return node.start_byte, node.end_byte


def base_of(field: Node) -> Node | None:
    """Returns what the struct of this field has all other fields from."""
    fields = field.parent.children if field.type.endswith("field_initializer") and field.parent is not None else []
    return next((it for it in fields if it.type == "base_field_initializer"), None)


def is_body(node: Node) -> bool:
    return node.type == "block" and node.parent is not None and node.parent.type == "function_item"


def is_optional(arm: Node) -> bool:
    """Whether an arm may have a condition more: another one takes what is left."""
    pattern, block = arm.child_by_field_name("pattern"), arm.parent
    assert pattern is not None
    assert block is not None
    condition = pattern.child_by_field_name("condition")
    last = block.named_children[-1].child_by_field_name("pattern")
    takes_all = last is not None and last.text == b"_"
    return takes_all and (condition is None or not condition.type.startswith("let_"))


def has(node: Node, kind: str) -> bool:
    return any(child.type == kind for child in node.children)


def is_constant(node: Node | None) -> bool:
    while node is not None:
        if node.type in CONSTANT or (node.type == "array_expression" and has(node, ";")):
            return True
        if node.type == "function_item":
            # What is nested in a function is in no constant outside of it.
            modifiers = [child for child in node.children if child.type == "function_modifiers"]
            return any(b"const" in (modifier.text or b"") for modifier in modifiers)
        node = node.parent
    return False


class Lines:
    """Which lines of a woven file are whose."""

    def __init__(self, text: str) -> None:
        self._lines = text.splitlines()
        self._of: Dict[int, int] = {}
        number = 0
        for line, code in enumerate(self._lines, 1):
            if begins := BEGIN.search(code):
                number = int(begins[1])
            if number:
                self._of[line] = number
            if END.search(code):
                number = 0

    def numbers(self, first: int, last: int) -> Set[int]:
        """Returns the mutants of these lines."""
        return {self._of[line] for line in range(first, last + 1) if line in self._of}

    def nearest(self, line: int) -> Set[int]:
        """Returns the mutants before this line that come first; of the head of a function those after it."""
        step = 1 if re.search(r"\bfn ", self._lines[line - 1]) else -1
        while 1 <= line <= len(self._lines) and line not in self._of:
            line += step
        found: Set[int] = set()
        while line in self._of:
            found.add(self._of[line])
            line += step
        return found
