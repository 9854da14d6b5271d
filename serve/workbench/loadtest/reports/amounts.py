"""Numbers as people read them in sentences and tables: three figures and a unit, plain spaces.

A number that could not be measured (nan) is a dash.
"""

import math

_DASH = "–"


def time_text(seconds: float) -> str:
    """Of seconds: `850 µs`, `12.3 ms`, `1.50 s`, `3.2 min`."""
    if not math.isfinite(seconds):
        return _DASH
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    for factor, unit in ((1.0, "s"), (1e3, "ms")):
        if seconds * factor >= 0.9995:
            return f"{figures(seconds * factor)} {unit}"
    return f"{seconds * 1e6:.0f} µs"


def share_text(share: float) -> str:
    """Of a share between 0 and 1: `99.4 %`, `0.12 %`, `0.003 %`. It is never rounded to 0 or 1."""
    if not math.isfinite(share):
        return _DASH
    percent = 100 * share
    if percent in (0.0, 100.0):
        return f"{percent:.0f} %"
    places = 2 if percent < 1 else 1
    while places < 8 and round(percent, places) in (0.0, 100.0):
        places += 1
    return f"{percent:.{places}f} %"


def rate_text(per_second: float) -> str:
    """Of calls per second: `0.25/s`, `198/s`, `12345/s`."""
    return f"{figures(per_second)}/s" if math.isfinite(per_second) else _DASH


def figures(number: float) -> str:
    """Three significant figures, whole numbers above 100, and no exponent."""
    size = abs(number)
    if size >= 99.95:
        return f"{number:.0f}"
    if size >= 9.995:
        return f"{number:.1f}"
    return f"{number:.2f}" if size >= 0.1 or size == 0 else f"{number:.3f}"
