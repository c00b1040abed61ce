"""Java's object serialization, as much of it as the index of an indexed log file needs. Nothing is ever run.

Objects become `Thing`s: fields by name, and what their class wrote on top (the entries of a list or a map). Strings
become text, handles what they refer to. Arrays, enums and very long texts do not occur in an index and are refused.
Format: Java Object Serialization Specification, chapter 6.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from yarn_bridge.logs.tfile import Damaged, Stream

_START = b"\xac\xed\x00\x05"
_NULL, _REFERENCE, _CLASS, _OBJECT, _STRING = 0x70, 0x71, 0x72, 0x73, 0x74
_BLOCK, _END, _LONG_BLOCK = 0x77, 0x78, 0x7A
_FIRST_HANDLE = 0x7E0000
_DEEPEST = 64
_WRITES, _SERIALIZABLE = 1, 2
_PRIMITIVES = {"B": "b", "C": "H", "D": "d", "F": "f", "I": "i", "J": "q", "S": "h", "Z": "?"}


@dataclass(slots=True)
class Kind:
    name: str
    flags: int
    fields: list[tuple[str, str]] = field(default_factory=list)  #: type code and name
    above: Kind | None = None


@dataclass(slots=True)
class Thing:
    kind: Kind
    fields: dict[str, Any] = field(default_factory=dict)
    written: list[Any] = field(default_factory=list)  #: objects; the bytes between them are left out

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Of a map."""
        return zip(self.written[::2], self.written[1::2], strict=False)


def load(data: bytes, name: str, base: int) -> Any:
    """The first object. `name` and `base`: of the file and where in it, for errors. Raises Damaged."""
    stream = Stream(iter([data]), name, base)
    if stream.take(4) != _START:
        raise Damaged(name, base, "is no serialized object of Java's:", data[:4].hex())
    return _Loader(stream).content(0)


class _Loader:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._handles: list[Any] = []

    def content(self, depth: int) -> Any:
        """One object, or the class of one."""
        stream, at = self._stream, self._stream.offset
        if depth > _DEEPEST:
            raise Damaged(stream.name, at, "objects are nested too deeply")
        code = stream.take(1)[0]
        if code == _NULL:
            return None
        if code == _REFERENCE:
            number = stream.number(4) - _FIRST_HANDLE
            if not 0 <= number < len(self._handles):
                raise Damaged(stream.name, at, "refers to what was not there:", number)
            return self._handles[number]
        if code == _CLASS:
            return self._class(depth)
        if code == _OBJECT:
            return self._object(depth)
        if code == _STRING:
            text = stream.java_text()
            self._handles.append(text)
            return text
        raise Damaged(stream.name, at, "this kind of object does not belong here:", hex(code))

    def _class(self, depth: int) -> Kind:
        stream = self._stream
        name = stream.java_text()
        stream.take(8)
        found = Kind(name, 0)
        self._handles.append(found)
        found.flags = stream.take(1)[0]
        for _ in range(int.from_bytes(stream.take(2), "big")):
            code = chr(stream.take(1)[0])
            found.fields.append((code, stream.java_text()))
            if code in "[L":
                self.content(depth + 1)
        self._written(depth)
        found.above = self._kind(depth)
        return found

    def _kind(self, depth: int) -> Kind | None:
        at = self._stream.offset
        found = self.content(depth + 1)
        if found is None or isinstance(found, Kind):
            return found
        raise Damaged(self._stream.name, at, "a class was expected")

    def _object(self, depth: int) -> Thing:
        stream, at = self._stream, self._stream.offset
        kind = self._kind(depth)
        if kind is None:
            raise Damaged(stream.name, at, "an object has no class")
        thing = Thing(kind)
        self._handles.append(thing)
        line: list[Kind] = []
        each: Kind | None = kind
        while each is not None:
            if any(each is other for other in line) or len(line) > _DEEPEST:
                raise Damaged(stream.name, at, "a class is above itself:", kind.name)
            line.insert(0, each)
            each = each.above
        for each in line:
            if not each.flags & _SERIALIZABLE:
                raise Damaged(stream.name, at, "writes its own form:", each.name)
            for code, name in each.fields:
                thing.fields[name] = self._field(code, depth)
            if each.flags & _WRITES:
                thing.written += self._written(depth)
        return thing

    def _field(self, code: str, depth: int) -> Any:
        form = _PRIMITIVES.get(code)
        if form is None:
            return self.content(depth + 1)
        form = f">{form}"
        return struct.unpack(form, self._stream.take(struct.calcsize(form)))[0]

    def _written(self, depth: int) -> list[Any]:
        found: list[Any] = []
        stream = self._stream
        while True:
            code = stream.peek()
            if code == _END:
                stream.take(1)
                return found
            if code == _BLOCK:
                stream.take(1)
                stream.take(stream.take(1)[0])
            elif code == _LONG_BLOCK:
                stream.take(1)
                stream.take(max(0, stream.number(4)))
            else:
                found.append(self.content(depth + 1))
