"""Every page over a finished run: it says what SQL says, links lead somewhere, the past is shown as it was."""

from __future__ import annotations

import csv
import io
import re
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tasks.estimators import soft_value, soft_value_of_share
from tasks.explorer.pages import PAGES
from tasks.explorer.policy_along import policy_along
from tasks.explorer.trajectory import _Settings
from tasks.run import runs
from tests.tasks.explorer.conftest import Pages, structure

FOUND = "SELECT count(*) FROM new_solutions"
PROBLEM = "SELECT problem_id FROM trajectories WHERE source = 'online' ORDER BY problem_id LIMIT 1"
SEARCHED = "SELECT trajectory_id FROM token_values WHERE starts_with(search_id, 'annotation/') ORDER BY ALL LIMIT 1"


@pytest.fixture(scope="module")
def problem(pages: Pages) -> str:
    return pages.value(PROBLEM)


def test_the_first_page_shows_the_run_and_what_training_found(pages: Pages) -> None:
    page = pages.html("/")
    assert 'href="/run?id=micro-1"' in page
    assert "finished" in page
    responses = pages.value("SELECT (SELECT count(*) FROM trajectories) + (SELECT count(*) FROM eval_samples)")
    assert f"<dd>{responses:,}</dd>" in page
    assert f">{pages.value(FOUND):,}</a>" in page


def test_the_page_of_a_step_lists_its_batch_in_order(pages: Pages) -> None:
    page = pages.html("/step", run="micro-1", step=2)
    batch = pages.value("SELECT trajectory_ids FROM train_batches WHERE step = 2 LIMIT 1")
    assert re.findall(r"/trajectory\?id=([^\"]+)\"", page) == batch
    assert "not visible at this snapshot" not in page


def test_problems_are_counted_as_sql_counts_them_and_can_be_filtered(pages: Pages) -> None:
    every = pages.value("SELECT count(DISTINCT problem_id) FROM problems")
    assert f"{every} problems" in pages.html("/problems")
    found = pages.value("SELECT count(DISTINCT problem_id) FROM new_solutions")
    assert f'<p class="quiet">{found} problem' in pages.html("/problems", kind="found")
    train = pages.value("SELECT count(DISTINCT problem_id) FROM problems WHERE split = 'train'")
    assert f"{train} problems" in pages.html("/problems", split="train")


def test_every_different_program_of_a_problem_is_on_its_pages_once(pages: Pages, problem: str) -> None:
    known = pages.value(
        "SELECT count(DISTINCT normal_hash) FROM (SELECT normal_hash FROM trajectories WHERE problem_id = $1 UNION ALL "
        "SELECT normal_hash FROM eval_samples WHERE problem_id = $1)",
        problem,
    )
    cards: list[str] = []
    for number in range(1, 2 + known // 10):
        cards += re.findall(r'id="p(\d+)"', pages.html("/problem", id=problem, page=number))
    assert len(cards) == len(set(cards)) == known


def test_a_prompt_through_training_counts_the_samples_of_each_step(pages: Pages, problem: str) -> None:
    rows = pages.store.rows(
        "SELECT step, count(*) AS n FROM trajectories WHERE problem_id = ? AND source = 'online' GROUP BY step",
        [problem],
    )
    for row in rows:
        assert f"<dt>samples</dt><dd>{row['n']}</dd>" in pages.html("/prompt", id=problem, step=row["step"])


def test_tokens_of_a_searched_trajectory_give_back_its_text(pages: Pages) -> None:
    identity = pages.value(SEARCHED)
    page = pages.html("/trajectory", id=identity[:20], colour="success")
    block = page[page.index("data-tokens>") + len("data-tokens>") :].split("</pre>")[0]
    shown = re.sub(r"<[^>]*>", "", block).replace("⏎", "").replace("∎", "")
    for code, letter in (("&gt;", ">"), ("&lt;", "<"), ("&#39;", "'"), ("&#34;", '"'), ("&amp;", "&")):
        shown = shown.replace(code, letter)
    assert shown == pages.value("SELECT text FROM trajectories WHERE trajectory_id = ? LIMIT 1", identity)
    pivotal = pages.value(
        "SELECT count(DISTINCT position) FROM token_values WHERE trajectory_id = ? AND pivotal AND position > 0",
        identity,
    )
    assert block.count(" pivotal") == pivotal
    assert "Success S along the tokens" in page


def test_stored_log_probabilities_give_the_advantages_of_online_responses(pages: Pages) -> None:
    identity = pages.value(
        "SELECT trajectory_id FROM trajectories SEMI JOIN reference_logprobs USING (trajectory_id) "
        "WHERE source = 'online' AND logprob_kind = 'raw' AND step > 0 ORDER BY ALL LIMIT 1"
    )
    own, reference = pages.store.rows(
        "SELECT sampled_logprobs, logprobs FROM trajectories JOIN reference_logprobs USING (trajectory_id) "
        "WHERE trajectory_id = ? LIMIT 1",
        [identity],
    )[0].values()
    page = pages.html("/trajectory", id=identity, colour="advantage")
    shown = [float(one) for one in re.findall(r"advantage ([+-][\d.]+) nats", page)]
    assert shown == pytest.approx([a - b for a, b in zip(own, reference, strict=True)], abs=6e-4)


def test_the_past_is_shown_as_it_was_and_links_stay_there(pages: Pages) -> None:
    before = pages.value("SELECT min(snapshot_id) - 1 FROM trajectories WHERE source = 'online'")
    page = pages.html("/", at=before)
    assert f"at snapshot {before} of" in page
    links = [link for link in structure(page).links if link.startswith("/") and "sql=" not in link]
    assert links
    assert all(f"at={before}" in link for link in links if "newest" not in link and link != "/")
    rows = pages.value("SELECT count(*) FROM trajectories WHERE snapshot_id <= ?", before)
    rows += pages.value("SELECT count(*) FROM eval_samples WHERE snapshot_id <= ?", before)
    assert f"<dd>{rows:,}</dd>" in page
    assert pages.reply("/", at=10**9).status == 404


def test_the_questions_behind_a_page_can_be_asked_again_by_hand(pages: Pages) -> None:
    asked = [link for link in structure(pages.html("/problems")).links if link.startswith("/ask?")]
    assert len(asked) >= 2
    for link in asked:
        parts = urlsplit(link)
        reply = pages.explorer.reply(parts.path, parts.query)
        assert reply.status == 200
        assert 'role="alert"' not in reply.body
        assert re.search(r"\d rows? in \d+ ms", reply.body)


def test_a_typed_question_is_answered_as_table_chart_plan_and_csv(pages: Pages) -> None:
    sql = "SELECT run_id, step, pass_at_1 FROM learning_curve ORDER BY step"
    expected = pages.store.rows(sql)
    assert f"{len(expected)} rows in" in pages.html("/ask", sql=sql)
    assert '<svg class="plot"' in pages.html("/ask", sql=sql, view="chart")
    assert "PROJECTION" in pages.html("/ask", sql=sql, view="plan").upper()
    reply = pages.reply("/ask.csv", sql=sql)
    found = list(csv.DictReader(io.StringIO(reply.body)))
    assert [float(row["pass_at_1"]) for row in found] == [row["pass_at_1"] for row in expected]
    assert 'role="alert"' in pages.html("/ask", sql="DROP TABLE x")


def test_every_example_question_has_an_answer(pages: Pages) -> None:
    examples = [link for link in structure(pages.html("/ask")).links if "sql=" in link]
    assert len(examples) >= 5
    for link in examples:
        parts = urlsplit(link)
        assert 'role="alert"' not in pages.explorer.reply(parts.path, parts.query).body


def test_the_sandbox_page_counts_every_judgement(pages: Pages) -> None:
    assert f"<dd>{pages.value('SELECT count(*) FROM verdicts'):,}</dd>" in pages.html("/sandbox")


@pytest.mark.parametrize(
    "path, filters, status",
    [
        ("/run", {}, 400),
        ("/run", {"id": "nothing"}, 404),
        ("/problem", {"id": "nothing"}, 404),
        ("/trajectory", {"id": "zzzz"}, 404),
        ("/step", {"run": "micro-1", "step": 99}, 404),
        ("/step", {"run": "micro-1", "step": "x"}, 400),
        ("/compare", {"run": ["micro-1"]}, 400),
        ("/compare", {"run": ["micro-1", "nothing"]}, 404),
        ("/problems", {"order": "none"}, 400),
        ("/problems", {"at": "x"}, 400),
        ("/", {"page": 10**30}, 400),
        ("/", {"page": 2**63 - 1}, 400),
        ("/problems", {"at": 10**30}, 400),
        ("/problems", {"q": "a" * 5000}, 400),
        ("/study", {"id": "nothing"}, 404),
        ("/nothing", {}, 404),
    ],
)
def test_what_is_not_there_or_not_understood_is_told(
    pages: Pages, path: str, filters: dict[str, object], status: int
) -> None:
    reply = pages.reply(path, **filters)
    assert reply.status == status
    structure(reply.body)


def test_every_link_of_every_page_leads_to_a_page(pages: Pages, problem: str) -> None:
    known = {
        "/run": {"id": "micro-1"},
        "/step": {"run": "micro-1", "step": 1},
        "/problem": {"id": problem},
        "/prompt": {"id": problem},
        "/trajectory": {"id": pages.value(SEARCHED)},
    }
    links: set[str] = set()
    for path in ("/", "/problems", "/sandbox", "/ask", "/studies", "/searched", *known):
        links |= set(structure(pages.html(path, **known.get(path, {}))).links)
    kinds: dict[str, list[str]] = {}
    for link in sorted(links):
        if link.startswith("/") and not link.startswith("/ask"):
            kinds.setdefault(urlsplit(link).path, []).append(link)
    assert set(kinds) <= set(PAGES)
    for of_kind in kinds.values():
        for link in of_kind[:3]:
            assert pages.explorer.reply(urlsplit(link).path, urlsplit(link).query).status == 200, link


def test_every_judged_program_says_what_came_of_each_test(pages: Pages, problem: str) -> None:
    page = pages.html("/problem", id=problem, order="often")
    assert page.count('class="outcomes"') > 0
    assert "was not recorded" not in page
    stored = pages.store.rows("SELECT DISTINCT outcomes, tests_total FROM verdicts WHERE verdict = 'accepted'")
    assert stored
    assert all(row["outcomes"] == "a" * row["tests_total"] for row in stored)


def test_entropies_of_a_samples_own_policy_have_the_mean_that_the_evaluation_stored(pages: Pages) -> None:
    (row,) = pages.store.rows(
        "SELECT policy_id, problem_id, sample, coalesce(seed, 0) AS seed, entropy FROM eval_samples "
        "JOIN policies USING (policy_id) WHERE policies.kind = 'final' AND entropy > 0 ORDER BY ALL LIMIT 1"
    )
    filters = {"of": row["policy_id"], "problem": row["problem_id"], "n": row["sample"], "seed": row["seed"]}
    assert "entropy 0." not in pages.html("/sample", **filters).split("data-tokens")[-1]
    filters |= {"policy": row["policy_id"], "colour": "entropy"}
    deadline = time.monotonic() + 500
    while pages.reply("/sample", **filters).status == 503 and time.monotonic() < deadline:
        time.sleep(0.1)
    page = pages.html("/sample", **filters)
    shown = [float(one) for one in re.findall(r"; entropy ([\d.]+) nats", page)]
    assert sum(shown) / len(shown) == pytest.approx(row["entropy"], abs=6e-3)


def own_values(pages: Pages, identity: str, policy: str) -> list[float]:
    """The policy's values along a trajectory, computed beside the page."""
    store, config = pages.store, runs.load_config(pages.store, "micro-1")
    row = store.rows("SELECT * FROM trajectories WHERE trajectory_id = ? LIMIT 1", [identity])[0]
    prompt = store.value("SELECT token_ids FROM prompts WHERE prompt_id = ? LIMIT 1", [row["prompt_id"]])
    reference = store.value("SELECT parent_policy_id FROM policies WHERE policy_id = ? LIMIT 1", [policy])
    folder = "SELECT path FROM policies WHERE policy_id = ? ORDER BY arrival LIMIT 1"
    folders = [Path(store.value(folder, [one])) for one in (policy, reference)]
    n, k = store.rows("SELECT n, k FROM q0 WHERE prompt_id = ?", [row["prompt_id"]])[0].values()
    start = soft_value(n, k, config.train.beta, prior=config.q0.prior)
    return policy_along(config, *folders, (prompt, row["token_ids"]), start).values


def test_values_of_a_chosen_policy_are_computed_and_begin_at_the_prompts(pages: Pages) -> None:
    identity = pages.value(SEARCHED)
    policy = pages.value("SELECT policy_id FROM policies WHERE kind = 'final' LIMIT 1")
    filters = {"id": identity, "policy": policy, "colour": "advantage"}
    deadline = time.monotonic() + 500
    while (reply := pages.reply("/trajectory", **filters)).status == 503 and time.monotonic() < deadline:
        assert "are being computed" in reply.body
    page = pages.html("/trajectory", **filters)
    shown = [float(one) for one in re.findall(r"value (-?[\d.]+) nats", page)]
    assert shown == pytest.approx(own_values(pages, identity, policy), abs=6e-3)
    assert f"policy {policy[:8]}: its own value" in page


def test_a_prompt_never_solved_starts_from_the_share_that_its_run_took() -> None:
    settings = _Settings(beta=0.1, prior=0.5, known_shares={"a": 0.001}, text="{}")
    assert settings.start("a", 10, 0) == soft_value_of_share(0.001, 0.1)
    assert settings.start("b", 10, 0) == soft_value(10, 0, 0.1, prior=0.5)
    assert settings.start("a", 10, 2) == soft_value(10, 2, 0.1)
    assert settings.start("a", 0, 0) == 0
