"""Answers for texts that repeat: each distinct text is looked at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.otlp.span_table import Flags


def matches_any(texts: pa.StringArray, patterns: tuple[str, ...]) -> Flags:
    """Where one of the regular expressions is found somewhere in the text. Null matches nothing."""

    def found(distinct: pa.StringArray) -> Flags:
        hits: Flags = np.zeros(len(distinct), np.bool_)
        for pattern in patterns:
            hits |= pc.match_substring_regex(distinct, pattern).to_numpy(zero_copy_only=False)
        return hits

    return flag_distinct(texts, found)


def flag_distinct(texts: pa.StringArray, test: Callable[[pa.StringArray], Flags]) -> Flags:
    """What ``test`` says of each text; it is given each of them once, and no null. Null is false."""
    encoded = texts.dictionary_encode()
    hits = np.append(test(encoded.dictionary), False)
    found: Flags = hits[encoded.indices.fill_null(len(hits) - 1).to_numpy()]
    return found


def map_distinct(texts: pa.StringArray, new: Callable[[str], str | None]) -> pa.StringArray:
    """What ``new`` makes of each text; it is called once for each distinct one, and never for null, which stays."""
    encoded = texts.dictionary_encode()
    mapped = pa.array([new(text) for text in encoded.dictionary.to_pylist()], pa.string())
    return mapped.take(encoded.indices)


def check_pattern(pattern: str) -> None:
    """Raise ``ValueError`` if it is no regular expression of RE2, which are those of Go."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).removeprefix("Invalid regular expression: ")
        raise ValueError(f"`{pattern}` is not a regular expression of RE2: {reason}") from error
