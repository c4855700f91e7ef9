"""Drops, keeps or renames members of the objects of a batch, without touching their values.

One pass per batch over the bytes: a record that nothing applies to is copied whole, and in the others every byte that
is not part of a dropped or renamed member stays as it was, whitespace included. All members of a repeated key are
treated alike, so a dropped field leaves no older value behind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.compiled import Bytes, compiled
from penstock.json.arrow_text import arrow_array, copy_bytes, quoted
from penstock.json.containers import value_end, value_start
from penstock.json.documents import documents
from penstock.json.find import Spans, Trie, build_trie, child_of, find
from penstock.json.paths import Path
from penstock.json.tokens import ABSENT, CLOSE_OBJECT, COMMA, OPEN_OBJECT, document_start, skip_whitespace, string_end


@dataclass(frozen=True)
class Rewritten:
    """The new documents. Where ``valid`` is false the old one was not a JSON object, and the new one is empty."""

    data: pa.BinaryArray
    valid: npt.NDArray[np.bool_]
    broken_at: Spans
    """Per invalid document, the position of its first wrong byte in the old array's buffer; -1 for others and nulls."""


def drop_members(data: pa.BinaryArray, paths: Collection[Path]) -> Rewritten:
    """The documents without the members at ``paths``."""
    return _rewrite(data, dropped=paths)


def keep_members(data: pa.BinaryArray, paths: Collection[Path]) -> Rewritten:
    """The documents with only the members at ``paths``; an object on the way stays if something in it does."""
    return _rewrite(data, kept=paths)


def rename_members(data: pa.BinaryArray, names: Mapping[Path, str]) -> Rewritten:
    """The documents with each member at a path of ``names`` under a new name in the same object, all at once.

    A member that has the new name already, and is not renamed itself, is dropped.
    """
    return _rewrite(data, names=names)


_KEEP, _DROP = 1, 2


class _Rules(NamedTuple):
    """What becomes of the members at paths, by column."""

    only_kept: bool
    """Members at no path are dropped."""
    roles: npt.NDArray[np.int8]
    new_name: Spans
    """The number of the new name; -1: it keeps its own."""
    if_present: Spans
    """The role counts only where this column of ``present`` is true; -1: always."""
    present: npt.NDArray[np.bool_]
    new_keys: Bytes
    new_key_starts: Spans


def _rewrite(
    data: pa.BinaryArray,
    dropped: Collection[Path] = (),
    kept: Collection[Path] = (),
    names: Mapping[Path, str] | None = None,
) -> Rewritten:
    names = names or {}
    docs = documents(data)
    olds = list(names)
    taken = {(*old[:-1], new): which for which, (old, new) in enumerate(names.items())}
    paths = list(dict.fromkeys([*dropped, *kept, *olds, *taken]))
    tree, columns = build_trie(paths)
    roles = np.zeros(len(paths) + 1, np.int8)
    new_name = np.full(len(paths) + 1, -1, np.int64)
    if_present = np.full(len(paths) + 1, -1, np.int64)
    for path, column in zip(paths, columns, strict=True):
        if path in names:
            new_name[column] = olds.index(path)
        elif path in taken:
            roles[column] = _DROP
            if_present[column] = taken[path]
        else:
            roles[column] = _DROP if path in dropped else _KEEP
    present = find(docs, olds).kind != ABSENT if names else np.ones((len(docs), 1), np.bool_)
    new_keys = [quoted(name) for name in names.values()]
    texts = np.frombuffer(b"".join(new_keys) or b"\0", np.uint8)
    starts = np.cumsum([0, *map(len, new_keys)], dtype=np.int64)
    rules = _Rules(bool(kept), roles, new_name, if_present, present, texts, starts)
    out, offsets, valid, broken_at = _rewrite_all(docs.buffer, docs.offsets, docs.valid, tree, rules)
    return Rewritten(arrow_array(pa.binary(), out[: offsets[-1]], offsets), valid, broken_at)


@compiled
def _rewrite_all(
    buf: Bytes, offsets: Spans, given: npt.NDArray[np.bool_], tree: Trie, rules: _Rules
) -> tuple[Bytes, Spans, npt.NDArray[np.bool_], Spans]:
    keys, key_starts, after, column, max_depth = tree
    only_kept, roles, new_name, if_present, present, new_keys, new_key_starts = rules
    count = len(given)
    valid = given.copy()
    broken_at = np.full(count, -1, np.int64)
    out = np.empty(offsets[count] - offsets[0] + 1, np.uint8)
    out_offsets = np.zeros(count + 1, np.int64)
    levels = max_depth + 1
    # Per open object: the wanted key it belongs to, where its member began, and what to go back to if it is dropped.
    parents = np.zeros(levels, np.int64)
    leads = np.zeros(levels, np.int64)
    outs = np.zeros(levels, np.int64)
    marks = np.zeros(levels, np.int64)
    members_kept = np.zeros(levels, np.int64)
    scratch = np.empty(256, np.uint8)
    at = 0
    for record in range(count):
        out_offsets[record + 1] = at
        if not given[record]:
            continue
        first = offsets[record]
        end = offsets[record + 1]
        begin = at
        mark = first  # what lies before it is written or dropped
        start = document_start(buf, first, end)
        i = ~start
        if start < end and buf[start] == OPEN_OBJECT:
            i = start + 1
            lead = i  # the member's own text begins here: after the bracket or comma before it
            node = 0
            depth = 0
            members_kept[0] = 0
            may_close = True
            while True:
                i = skip_whitespace(buf, i, end)
                if i >= end:
                    i = ~i
                    break
                stays = not only_kept
                if may_close and buf[i] == CLOSE_OBJECT:
                    i += 1
                    if depth == 0:
                        break
                    stays = not only_kept or members_kept[depth] > 0
                    depth -= 1
                    node = parents[depth]
                    lead = leads[depth]
                    if not stays:
                        at = outs[depth]
                        mark = marks[depth]
                else:
                    member = i
                    i = string_end(buf, i, end)
                    if i < 0:
                        break
                    key_stop = i
                    i = value_start(buf, i, end)
                    if i < 0:
                        break
                    child = -1
                    if after[node] > node + 1:
                        if key_stop - member > len(scratch):
                            scratch = np.empty(2 * (key_stop - member), np.uint8)
                        child = child_of(buf, member + 1, key_stop - 1, node, keys, key_starts, after, scratch)
                    role = 0
                    if child >= 0:
                        place = column[child]
                        if place >= 0:
                            role = roles[place]
                            if if_present[place] >= 0 and not present[record, if_present[place]]:
                                role = 0
                            name = new_name[place]
                            if name >= 0:
                                a, b = new_key_starts[name], new_key_starts[name + 1]
                                room = at + (member - mark) + (b - a) + (end - key_stop)
                                if room + offsets[count] - end > len(out):
                                    grown = np.empty(2 * (room + offsets[count] - end), np.uint8)
                                    grown[:at] = out[:at]
                                    out = grown
                                at = copy_bytes(buf, mark, member, out, at)
                                at = copy_bytes(new_keys, a, b, out, at)
                                mark = key_stop
                        if role == 0 and buf[i] == OPEN_OBJECT and after[child] > child + 1:
                            parents[depth] = node
                            leads[depth] = lead
                            outs[depth] = at
                            marks[depth] = mark
                            depth += 1
                            members_kept[depth] = 0
                            node = child
                            i += 1
                            lead = i
                            may_close = True
                            continue
                    if role == _KEEP:
                        stays = True
                    elif role == _DROP:
                        stays = False
                    i = value_end(buf, i, end)
                    if i < 0:
                        break
                i = skip_whitespace(buf, i, end)
                if i < end and buf[i] == COMMA:
                    i += 1
                    may_close = False
                    if stays:
                        members_kept[depth] += 1
                    else:
                        at = copy_bytes(buf, mark, lead, out, at)
                        mark = i
                    lead = i
                elif i < end and buf[i] == CLOSE_OBJECT:
                    may_close = True
                    if stays:
                        members_kept[depth] += 1
                    else:
                        at = copy_bytes(buf, mark, lead, out, at)
                        if members_kept[depth] > 0:
                            at -= 1  # the comma after the last member that stays
                        mark = i
                else:
                    i = ~i
                    break
        if i >= 0:
            i = skip_whitespace(buf, i, end)
            if i == end:
                at = copy_bytes(buf, mark, end, out, at)
                out_offsets[record + 1] = at
                continue
            i = ~i
        valid[record] = False
        broken_at[record] = ~i
        at = begin
        out_offsets[record + 1] = at
    return out, out_offsets, valid, broken_at
