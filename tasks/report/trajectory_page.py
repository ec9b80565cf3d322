"""One program as an HTML page: tokens shaded by success probability, pivotal tokens marked, values along the tokens.

The page of `spo show TRAJECTORY`, from plain rows; nothing here reads a warehouse.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from matplotlib.figure import Figure

from tasks.report.chart_rendering import Axes, Chart, Theme, svg
from tasks.report.html_template import render
from tasks.report.success import success_of_value


@dataclass(frozen=True, slots=True)
class ValueEstimate:
    """Rollouts after the first `position` tokens: k of n passed; S lies in [low, high] at the stated level.

    `pivotal`: token number `position`, counted from 1, changed S. The end of a correct trajectory is (1, 1).
    """

    position: int
    n: int
    k: int
    low: float
    high: float
    pivotal: bool = False

    @property
    def share(self) -> float:
        """The estimate of S."""
        return self.k / self.n


@dataclass(frozen=True, slots=True)
class ShownTrajectory:
    """What the page shows."""

    trajectory_id: str
    title: str
    """Of the problem."""
    statement: str
    tokens: Sequence[str]
    """Text of each response token, in order."""
    estimates: Sequence[ValueEstimate]
    """At increasing positions, at least at 0 (the prompt) and, for a correct trajectory, at the end."""
    beta: float
    policy_values: Sequence[float] = ()
    """The policy's own y_t = Q_t/beta in nats after each token; empty when unknown."""
    policy: str = ""
    facts: Sequence[tuple[str, str]] = ()
    """Further things to say about it, for the line below the title."""

    def __post_init__(self) -> None:
        positions = [estimate.position for estimate in self.estimates]
        if not positions or positions != sorted(set(positions)) or positions[0] < 0 or positions[-1] > len(self.tokens):
            raise ValueError(
                f"trajectory {self.trajectory_id!r}: estimates need increasing positions inside the response"
            )
        if len(self.policy_values) not in (0, len(self.tokens)):
            raise ValueError(f"trajectory {self.trajectory_id!r}: one policy value per token is needed, or none")


@dataclass(frozen=True, slots=True)
class _Token:
    """One token as the page's template sees it."""

    text: str
    shade: int
    """Per cent of the full shade: S after the token."""
    hint: str
    kind: str
    badge: str


_STYLE = """
.program { white-space: pre-wrap; line-height: 2; }
.program span { background: color-mix(in srgb, var(--heat) calc(var(--s) * .55%), transparent); }
.program .measured { border-bottom: 2px solid var(--heat); }
.program .pivotal { outline: 2px solid var(--ink); outline-offset: -1px; border-radius: 3px; font-weight: 700; }
.program sup { font: 700 .7rem/1 system-ui, sans-serif; margin: 0 .15rem; user-select: none; }
.program i { color: var(--quiet); font-style: normal; user-select: none; }
.scale { display: flex; align-items: center; gap: .5rem; font-size: .87rem; color: var(--quiet); flex-wrap: wrap; }
.scale b { width: 9rem; height: .8rem; border: 1px solid var(--faint);
  background: linear-gradient(90deg, transparent, color-mix(in srgb, var(--heat) 55%, transparent)); }
"""

_BODY = """
<header><h1>{{ shown.title }}</h1><p class="quiet">Trajectory {{ shown.trajectory_id }}
{%- for label, value in shown.facts %}; {{ label }} {{ value }}{% endfor %}</p></header>
<div class="facts">
{% for label, value in facts %}<div><span>{{ label }}</span><b>{{ value }}</b></div>{% endfor %}
</div>
<details><summary>Problem statement</summary><pre>{{ shown.statement }}</pre></details>
<h2>Program</h2>
<div class="scale"><span>S after the token: 0</span><b></b><span>1</span></div>
<p class="quiet">Underlined: estimated by rollouts, the others are interpolated. Framed: pivotal, with its change. Point
at a token for its numbers.</p>
<pre class="program">
{%- for token in tokens %}<span{% if token.kind %} class="{{ token.kind }}"{% endif %} style="--s: {{ token.shade }}"
 title="{{ token.hint }}">{{ token.text }}</span>
{%- if token.badge %}<sup>{{ token.badge }}</sup>{% endif %}
{%- endfor %}</pre>
<h2>Value along the tokens</h2>
<figure id="chart-values">{{ drawing }}</figure>
<h2>Pivotal tokens</h2>
{% if pivots %}
<div class="wide"><table><thead><tr><th class="number">token</th><th>text</th><th class="number">S before</th>
<th class="number">S after</th><th class="number">change</th></tr></thead><tbody>
{% for row in pivots %}<tr><td class="number">{{ row[0] }}</td><td><code>{{ row[1] }}</code></td>
{% for value in row[2:] %}<td class="number">{{ value }}</td>{% endfor %}</tr>
{% endfor %}
</tbody></table></div>
{% else %}<p class="quiet">None was found.</p>{% endif %}
"""


def trajectory_page(shown: ShownTrajectory) -> str:
    """The page, self-contained, light and dark."""
    pivots = [_pivot_row(shown, estimate) for estimate in shown.estimates if estimate.pivotal]
    start, rollouts = shown.estimates[0], sum(e.n for e in shown.estimates[1:] if e.position < len(shown.tokens))
    facts = [
        ("S of the prompt", f"{start.share:.3g}"),
        ("tokens", str(len(shown.tokens))),
        ("pivotal tokens", str(len(pivots))),
        ("rollouts of the search", f"{rollouts:,}"),
    ]
    drawing = Markup(svg(value_chart(shown)))
    return render(
        _BODY, shown.title, _STYLE, shown=shown, tokens=_tokens(shown), pivots=pivots, facts=facts, drawing=drawing
    )


def value_chart(shown: ShownTrajectory) -> Chart:
    """Monte-Carlo estimates and the policy's own values along the tokens, as probabilities and in nats."""
    positions = [estimate.position for estimate in shown.estimates]
    floor = math.exp(-1 / shown.beta)

    def nats(share: float) -> float:
        return math.log(share + (1 - share) * floor)

    def draw(figure: Figure, theme: Theme) -> None:
        panels: list[Axes] = list(figure.subplots(2, 1, sharex=True))
        for axes, scale in zip(panels, (float, nats), strict=True):
            values = [scale(estimate.share) for estimate in shown.estimates]
            reach = [
                [value - scale(e.low) for value, e in zip(values, shown.estimates, strict=True)],
                [scale(e.high) - value for value, e in zip(values, shown.estimates, strict=True)],
            ]
            look = {"fmt": "o", "color": theme.series[0], "markersize": 4.5, "capsize": 2, "linewidth": 1}
            axes.errorbar(positions, values, yerr=reach, label="rollouts of the reference policy", **look)
            if shown.policy_values:
                own = [success_of_value(y, shown.beta) if scale is float else y for y in shown.policy_values]
                label = f"{shown.policy or 'policy'}: its own value"
                axes.plot(range(1, len(own) + 1), own, "--", color=theme.series[1], linewidth=1.6, label=label)
            for estimate in shown.estimates:
                if estimate.pivotal:
                    axes.axvspan(estimate.position - 1, estimate.position, color=theme.faint, alpha=0.8, linewidth=0)
            axes.grid(True, axis="y")
        panels[0].set_ylabel("success S")
        panels[1].set_ylabel("y = Q/beta (nats)")
        panels[1].set_xlabel("tokens so far (shaded: pivotal)")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=2)

    alt = f"Success probability along {len(shown.tokens)} tokens, estimated at {len(positions)} positions."
    return Chart("values", "Value along the tokens", alt, draw, size=(8.4, 4.6))


def success_at(estimates: Sequence[ValueEstimate], position: int) -> float:
    """S after `position` tokens: the estimate there, else interpolated between the neighbouring estimates."""
    positions = [estimate.position for estimate in estimates]
    after = estimates[min(bisect_left(positions, position), len(estimates) - 1)]
    before = estimates[max(bisect_right(positions, position) - 1, 0)]
    if after.position <= before.position:
        return before.share
    weight = (position - before.position) / (after.position - before.position)
    return before.share + weight * (after.share - before.share)


def _tokens(shown: ShownTrajectory) -> list[_Token]:
    measured = {estimate.position: estimate for estimate in shown.estimates}
    return [_token(shown, index, measured.get(index + 1)) for index in range(len(shown.tokens))]


def _token(shown: ShownTrajectory, index: int, estimate: ValueEstimate | None) -> _Token:
    share = success_at(shown.estimates, index + 1)
    hint = f"token {index + 1}: S {share:.2f}" + (f" ({estimate.k}/{estimate.n})" if estimate else " (interpolated)")
    badge = ""
    if estimate and estimate.pivotal:
        change = share - success_at(shown.estimates, index)
        badge = f"{change:+.2f}"
        hint += f", changed by {change:+.2f}"
    if shown.policy_values:
        hint += f"; own value {shown.policy_values[index]:.2f} nats"
    kind = "pivotal" if badge else "measured" if estimate else ""
    return _Token(_visible(shown.tokens[index]), round(100 * share), hint, kind, badge)


def _visible(text: str) -> str:
    """The token's text, with a sign where a line ends or nothing would be seen."""
    return text.replace("\n", "⏎\n") if text else "∎"


def _pivot_row(shown: ShownTrajectory, after: ValueEstimate) -> tuple[str, ...]:
    before = next((e for e in shown.estimates if e.position == after.position - 1), None)
    share = before.share if before else success_at(shown.estimates, after.position - 1)
    counts = f"{share:.2f} ({before.k}/{before.n})" if before else f"{share:.2f}"
    text = repr(shown.tokens[after.position - 1])
    change = f"{after.share - share:+.2f}"
    return str(after.position), text, counts, f"{after.share:.2f} ({after.k}/{after.n})", change
