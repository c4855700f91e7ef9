"""Keeps PySpark's converters of NumPy values away from all other values.

To find out whether there is NumPy they import PySpark's test tools, and with them pandas, which takes half a second of
every start.
"""

from __future__ import annotations

from typing import Any

from py4j import protocol  # type: ignore[import-untyped]
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter


def narrow_numpy_converters() -> None:
    protocol.INPUT_CONVERTER[:] = [
        _ForNumpy(converter) if isinstance(converter, NumpyArrayConverter | NumpyScalarConverter) else converter
        for converter in protocol.INPUT_CONVERTER
    ]


class _ForNumpy:
    def __init__(self, converter: NumpyArrayConverter | NumpyScalarConverter) -> None:
        self._converter = converter

    def can_convert(self, value: Any) -> bool:
        of_numpy = any(base.__module__ == "numpy" for base in type(value).__mro__)
        return of_numpy and self._converter.can_convert(value)

    def convert(self, value: Any, gateway_client: Any) -> Any:
        return self._converter.convert(value, gateway_client)
