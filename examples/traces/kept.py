"""Shows which traces were kept, by the policy that decided, and whether all of their spans are there."""

from __future__ import annotations

import duckdb

BY_POLICY = """
    SELECT attributes->>'$."sampling.policy"' AS policy, count(DISTINCT trace_id) AS traces,
           sum((attributes->>'$."sampling.adjusted_count"')::DOUBLE) FILTER (parent_span_id IS NULL) AS stand_for
    FROM spans WHERE policy <> 'base' GROUP BY policy ORDER BY policy
"""
WHOLE = "SELECT bool_and(spans = 3) FROM (SELECT count(*) AS spans FROM spans GROUP BY trace_id)"

with duckdb.connect("traces.duckdb", read_only=True) as warehouse:
    print(f"{'policy':<10} {'traces':>7} {'stand for':>10}")
    for policy, traces, stand_for in warehouse.execute(BY_POLICY).fetchall():
        print(f"{policy:<10} {traces:>7} {stand_for:>10.0f}")
    ((whole,),) = warehouse.execute(WHOLE).fetchall()
    print(f"every span of a kept trace is there: {whole}")
