"""Small charts as SVG made on the server: points are links, nothing needs a script, colours are the style sheet's.

Series differ by colour, dashes and markers. A chart is about 400 units wide: its text keeps its size on a phone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from tasks.explorer.visible import plain

WIDTH, HEIGHT = 420, 240
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 14, 34
SERIES = 6
"""Series that can be told apart; the style sheet has as many colours."""


@dataclass(frozen=True, slots=True)
class Dot:
    """A point of a line; `href` leads to what stands behind it."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    note: str = ""
    href: str | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """One series."""

    label: str
    dots: Sequence[Dot]
    step: bool = False
    """Drawn without markers, as a plain curve."""


@dataclass(frozen=True, slots=True)
class Plot:
    """Axes with lines."""

    title: str
    lines: Sequence[Line]
    x_label: str = "optimizer step"
    share: bool = False
    """The y axis is a share in [0, 1], shown in per cent."""
    marks: Sequence[tuple[float, str]] = field(default=())
    """Places on the x axis that are shaded, with what they are."""
    least: float = 0.0
    """Span that the y axis has at least, so that noise does not look like a step."""


@dataclass(frozen=True, slots=True)
class _Scale:
    """Maps values to places."""

    lowest: float
    highest: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        span = (self.highest - self.lowest) or 1.0
        return self.start + (value - self.lowest) / span * (self.end - self.start)


def plot(drawn: Plot) -> Markup:
    """The chart as an `<svg>` element with its legend below; empty when there is no point."""
    dots = [dot for line in drawn.lines for dot in line.dots if math.isfinite(dot.y)]
    if not dots:
        return Markup("")
    x, y = _scales(drawn, dots)
    parts = [_axes(drawn, x, y)]
    parts += [_mark(place, note, x) for place, note in drawn.marks]
    parts += [_line(line, number, x, y) for number, line in enumerate(drawn.lines)]
    figure = Markup('<svg class="plot" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, _described(drawn), Markup("").join(parts)
    )
    return figure + legend([line.label for line in drawn.lines])


def legend(labels: Sequence[str]) -> Markup:
    """Names of series beside their line and marker; nothing for a single one."""
    if len(labels) < 2:
        return Markup("")
    entries = [
        Markup(
            '<span class="key"><svg viewBox="0 0 34 12" aria-hidden="true">'
            '<path class="line s{}" d="M1 6H33"/>{}</svg>{}</span>'
        ).format(_class(i), _marker(i, 17, 6), plain(label))
        for i, label in enumerate(labels)
    ]
    return Markup('<p class="legend">{}</p>').format(Markup("").join(entries))


def areas(
    title: str,
    steps: Sequence[float],
    shares: Sequence[tuple[str, Sequence[float]]],
    x_label: str = "optimizer step",
) -> Markup:
    """Shares of a whole at each step, stacked; at most `SERIES` of them have a colour each."""
    if not steps:
        return Markup("")
    x = _Scale(min(steps), max(steps), LEFT, WIDTH - RIGHT)
    y = _Scale(0.0, 1.0, HEIGHT - BOTTOM, TOP)
    empty = Plot(
        title,
        [Line(label, [Dot(s, v) for s, v in zip(steps, values, strict=True)]) for label, values in shares],
        x_label,
        share=True,
    )
    parts: list[Markup] = [_axes(empty, x, y)]
    below = [0.0] * len(steps)
    for i, (label, values) in enumerate(shares):
        above = [b + v for b, v in zip(below, values, strict=True)]
        edge = [*zip(steps, above, strict=True), *reversed(list(zip(steps, below, strict=True)))]
        path = "M" + "L".join(f"{x(s):.1f} {y(v):.1f}" for s, v in edge) + "Z"
        parts.append(
            Markup('<path class="area s{}" d="{}"><title>{}</title></path>').format(_class(i), path, plain(label))
        )
        below = above
    figure = Markup('<svg class="plot" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        WIDTH, HEIGHT, title, Markup("").join(parts)
    )
    keys = [
        Markup(
            '<span class="key"><svg viewBox="0 0 14 12" aria-hidden="true">'
            '<path class="area s{}" d="M1 1H13V11H1Z"/></svg>{}</span>'
        ).format(_class(i), plain(label))
        for i, (label, _) in enumerate(shares)
    ]
    return figure + Markup('<p class="legend">{}</p>').format(Markup("").join(keys))


def interval(value: float, low: float, high: float) -> Markup:
    """A share in [0, 1] with its interval on a thin ruler, for table cells."""
    return Markup(
        '<svg class="interval" viewBox="0 0 104 12" aria-hidden="true"><path class="ruler" d="M2 10H102"/>'
        '<path class="reach" d="M{:.1f} 6H{:.1f}"/><circle cx="{:.1f}" cy="6" r="3"/></svg>'
    ).format(2 + 100 * low, 2 + 100 * high, 2 + 100 * value)


def spark(values: Sequence[float]) -> Markup:
    """A curve of shares without axes, for table cells."""
    if len(values) < 2:
        return Markup("")
    top = max(*values, 1e-9)
    places = [f"{2 + 76 * i / (len(values) - 1):.1f} {18 - 16 * v / top:.1f}" for i, v in enumerate(values)]
    return Markup(
        '<svg class="spark" viewBox="0 0 80 20" aria-hidden="true"><path class="line s1" d="M{}"/></svg>'
    ).format("L".join(places))


def _scales(drawn: Plot, dots: Sequence[Dot]) -> tuple[_Scale, _Scale]:
    lows = [dot.low if dot.low is not None else dot.y for dot in dots]
    highs = [dot.high if dot.high is not None else dot.y for dot in dots]
    bottom, top = min(lows), max(highs)
    if drawn.share:
        bottom, top = 0.0, min(1.0, max(top * 1.05, 0.05))
    elif bottom >= 0:
        bottom = 0.0
    if top - bottom < drawn.least:
        middle = (top + bottom) / 2
        bottom, top = middle - drawn.least / 2, middle + drawn.least / 2
    if bottom == top:
        top = bottom + 1.0
    xs = [dot.x for dot in dots]
    right = max(xs) if max(xs) > min(xs) else min(xs) + 1
    return _Scale(min(xs), right, LEFT, WIDTH - RIGHT), _Scale(bottom, top, HEIGHT - BOTTOM, TOP)


def _axes(drawn: Plot, x: _Scale, y: _Scale) -> Markup:
    parts: list[Markup] = []
    for value in ticks(y.lowest, y.highest, 4):
        label = f"{100 * value:g}%" if drawn.share else short(value)
        parts.append(
            Markup('<path class="grid" d="M{} {:.1f}H{}"/><text class="tick end" x="{}" y="{:.1f}">{}</text>').format(
                LEFT, y(value), WIDTH - RIGHT, LEFT - 6, y(value) + 4, label
            )
        )
    for value in ticks(x.lowest, x.highest, 5):
        parts.append(
            Markup('<text class="tick middle" x="{:.1f}" y="{}">{}</text>').format(
                x(value), HEIGHT - BOTTOM + 15, short(value)
            )
        )
    parts.append(
        Markup('<text class="tick middle" x="{}" y="{}">{}</text>').format(
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4, plain(drawn.x_label)
        )
    )
    return Markup("").join(parts)


def _mark(place: float, note: str, x: _Scale) -> Markup:
    return Markup('<path class="mark" d="M{:.1f} {}V{}"><title>{}</title></path>').format(
        x(place), TOP, HEIGHT - BOTTOM, note
    )


def _line(line: Line, number: int, x: _Scale, y: _Scale) -> Markup:
    dots = [dot for dot in line.dots if math.isfinite(dot.y)]
    if not dots:
        return Markup("")
    band = Markup("")
    if all(dot.low is not None and dot.high is not None for dot in dots) and len(dots) > 1:
        edge = [(dot.x, dot.high or 0.0) for dot in dots] + [(dot.x, dot.low or 0.0) for dot in reversed(dots)]
        path = "M" + "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in edge) + "Z"
        band = Markup('<path class="band s{}" d="{}"/>').format(_class(number), path)
    path = "M" + "L".join(f"{x(dot.x):.1f} {y(dot.y):.1f}" for dot in dots)
    curve = Markup('<path class="line s{}" d="{}"/>').format(_class(number), path)
    points = [_point(dot, number, x, y, line) for dot in dots] if not line.step or len(dots) == 1 else []
    return band + curve + Markup("").join(points)


def _point(dot: Dot, number: int, x: _Scale, y: _Scale, line: Line) -> Markup:
    note = plain(dot.note or f"{line.label}: {short(dot.y)} at {short(dot.x)}")
    shape = Markup('<circle class="reachable" cx="{:.1f}" cy="{:.1f}" r="10"/>{}<title>{}</title>').format(
        x(dot.x), y(dot.y), _marker(number, x(dot.x), y(dot.y)), note
    )
    if dot.href is None:
        return Markup("<g>{}</g>").format(shape)
    return Markup('<a href="{}" aria-label="{}">{}</a>').format(dot.href, note, shape)


def _marker(number: int, x: float, y: float) -> Markup:
    shapes: Sequence[Callable[[], str]] = (
        lambda: f"M{x - 3.5:.1f} {y:.1f}a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0 -7 0Z",
        lambda: f"M{x - 3.2:.1f} {y - 3.2:.1f}h6.4v6.4h-6.4Z",
        lambda: f"M{x:.1f} {y - 4:.1f}l4 7h-8Z",
        lambda: f"M{x:.1f} {y - 4.4:.1f}l4.4 4.4l-4.4 4.4l-4.4 -4.4Z",
        lambda: f"M{x - 4:.1f} {y - 3:.1f}h8l-4 7Z",
        lambda: f"M{x - 4:.1f} {y - 1:.1f}h8v2h-8Z",
    )
    return Markup('<path class="dot s{}" d="{}"/>').format(_class(number), shapes[number % len(shapes)]())


def _class(number: int) -> int:
    return number % SERIES + 1


def _described(drawn: Plot) -> str:
    ends = [
        f"{line.label}: from {short(line.dots[0].y)} to {short(line.dots[-1].y)}" for line in drawn.lines if line.dots
    ]
    return plain(f"{drawn.title} against {drawn.x_label}. {'; '.join(ends)}")


def ticks(lowest: float, highest: float, most: int) -> list[float]:
    """Round numbers inside [lowest, highest], about `most` of them."""
    span = highest - lowest
    if span <= 0 or not math.isfinite(span):
        return [lowest]
    raw = span / most
    unit = 10 ** math.floor(math.log10(raw))
    step = next(unit * factor for factor in (1, 2, 2.5, 5, 10) if unit * factor >= raw * 0.999)
    first = math.ceil(lowest / step - 1e-9)
    count = math.floor(highest / step + 1e-9) - first + 1
    return [round((first + i) * step, 12) for i in range(count)]


def short(value: float) -> str:
    """A number in few characters: 1,200 and 0.0125, never 1.2e+03."""
    if not math.isfinite(value):
        return "unknown"
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    if abs(value) >= 1e6:
        return f"{value / 1e6:.3g}M"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
