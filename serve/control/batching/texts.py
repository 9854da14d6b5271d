"""Numbers as advice and hints write them."""


def seconds(value: float) -> str:
    """`3.2 ms`, `450 µs`, `1.5 s`."""
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:.3g} s"


def rows(value: float) -> str:
    """`1 row`, `2.5 rows`."""
    text = f"{value:.1f}".removesuffix(".0")
    return f"{text} row" if text == "1" else f"{text} rows"


def per_cent(share: float) -> str:
    """`7 %`, `0.4 %`."""
    return f"{share * 100:.0f} %" if share >= 0.01 or share <= 0 else f"{share * 100:.1f} %"


def count(number: float) -> str:
    """`1,200`."""
    return f"{number:,.0f}"
