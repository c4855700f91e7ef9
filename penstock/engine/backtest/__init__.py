"""Backtests of sampling policies: what a set of them would have kept of recorded traces, beside the set that is live.

The step itself scans and decides, as on a live route; nothing is delivered and nothing is written. As data flows:
``log_range`` -> ``arrivals`` -> ``verdicts`` -> ``trace_tally`` -> ``backtest_report``.
"""
