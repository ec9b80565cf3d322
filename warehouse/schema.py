"""The tables: one place for names, types, units and meanings.

Every table is append-only and every row also carries `PROVENANCE`. Columns may be added (with a migration), never
renamed, retyped or removed.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

SCHEMA_VERSION: Final = 2
"""Version of the tables and views that this code writes; a warehouse with a larger one is refused."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its SQL type, what it holds and in which unit; `required` columns are never null."""

    name: str
    type: str
    meaning: str
    required: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table: one row per `row`."""

    name: str
    row: str
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column | None:
        """The column of that name, provenance included; None when there is none."""
        return next((column for column in (*self.columns, *PROVENANCE) if column.name == name), None)


PROVENANCE: Final = (
    Column("run_id", "VARCHAR", "run that appended the row", required=True),
    Column("batch_id", "VARCHAR", "unit of work that produced the row; appended at most once", required=True),
    Column("created_at", "TIMESTAMPTZ", "when the batch was staged (UTC)", required=True),
    Column("schema_version", "INTEGER", "version of the schema that wrote the row", required=True),
)

VIEW_COLUMNS: Final = (
    Column("snapshot_id", "BIGINT", "snapshot that made the row visible"),
    Column("arrival", "BIGINT", "place of the row in the order in which the table's rows became visible"),
)
"""What every table's view shows beside the stored columns. "Newest" is the largest `arrival`: the order of the
snapshots and, within one, that in which a process staged its batches. `created_at` follows the clock, which jumps."""

SUPERSEDED: Final = "superseded"
"""How the reason of a quarantined batch begins whose rows are in a newer batch: the past still shows it."""

SOURCES: Final = ("online", "reference", "prior_spo", "prior_ppo", "other_model", "human", "pivotal_rollout")
SPLITS: Final = ("train", "evaluation")
POLICY_KINDS: Final = ("reference", "snapshot", "final")
LOGPROB_KINDS: Final = ("raw", "processed", "none")
FINISH_REASONS: Final = ("stop", "length")


def _text(name: str, meaning: str, *, required: bool = False, choices: tuple[str, ...] = ()) -> Column:
    return Column(name, "VARCHAR", meaning, required, choices)


def _count(name: str, meaning: str, *, required: bool = False) -> Column:
    return Column(name, "BIGINT", meaning, required)


def _real(name: str, meaning: str, *, required: bool = False) -> Column:
    return Column(name, "DOUBLE", meaning, required)


_PROGRAM = (
    _text("text", "the response decoded"),
    _text("program_hash", "identity of the extracted program's behaviour: sha256 of its syntax tree, 32 hex digits"),
    _text("normal_hash", "the same without docstrings: identity for deduplication and diversity"),
)

_LOGPROBS = Column(
    "sampled_logprobs",
    "FLOAT[]",
    "log-probability of each of `token_ids` under what sampled it (nats); null elements: not sampled here (a prefix)",
)

RUNS = TableSchema(
    "runs",
    "run of the pipeline; `run_id` is its name",
    (
        _text("recipe", "name of the recipe"),
        _text("config_json", "resolved configuration (JSON)"),
        _text("project_version", "version of this project"),
        _count("snapshot", "snapshot the run reads from; it is kept from expiry"),
        _text("status", "state when the row was written"),
    ),
)
RUN_EVENTS = TableSchema(
    "run_events",
    "thing that happened in a run",
    (
        _text("stage", "stage it happened in"),
        _text("kind", "what kind of event", required=True),
        _text("message", "one line for people"),
        _text("payload_json", "details (JSON)"),
    ),
)
STAGES = TableSchema(
    "stages",
    "finished execution of a stage",
    (
        _text("stage", "name of the stage", required=True),
        _text("stage_version", "version of the stage's code"),
        _text(
            "key", "sha256 over stage, version, configuration and inputs; equal keys need not run again", required=True
        ),
        _text("status", "completed, skipped or failed", required=True),
        _count("snapshot_in", "snapshot the stage read"),
        _count("snapshot_out", "snapshot after its last batch"),
        _count("rows", "rows it appended"),
        _real("seconds", "wall-clock time (s)"),
        _text("manifest_json", "what the stage returned (JSON)"),
    ),
)
PROBLEMS = TableSchema(
    "problems",
    "version of a problem",
    (
        _text("problem_id", "identity of the problem", required=True),
        _text("problem_set", "collection it belongs to"),
        _text("split", "what it may be used for", required=True, choices=SPLITS),
        _text("title", "short name"),
        _text("source", "where it comes from"),
        _text("licence", "licence of the statement and tests"),
        _text("statement", "task in words"),
        _text("style", "how a program is called: stdin or function"),
        _text("entry_point", "function to call, for style function"),
        _text("checker_json", "how outputs are compared (JSON)"),
        _real("cpu_limit_s", "CPU time a test may take (s)"),
        _count("memory_limit_bytes", "memory a test may take (bytes)"),
        _text("suite_hash", "identity of tests, checker and limits together"),
        Column(
            "public_tests",
            'STRUCT("input" VARCHAR, "output" VARCHAR)[]',
            "examples that the statement shows; hidden tests are only in `tests`",
        ),
        _text("content_hash", "identity of everything the problem says"),
        _text("unjudgeable_reason", "why programs cannot be judged; null when they can"),
    ),
)
TESTS = TableSchema(
    "tests",
    "test of a suite; the only place of hidden inputs and expected outputs",
    (
        _text("problem_id", "problem it belongs to", required=True),
        _text("suite_hash", "suite it belongs to", required=True),
        _count("position", "place in the suite, from 0", required=True),
        _text("input", "standard input, or the call"),
        _text("expected", "expected output; must never reach a prompt"),
        Column("hidden", "BOOLEAN", "false when the statement shows it", required=True),
    ),
)
SOLUTIONS = TableSchema(
    "solutions",
    "known program for a problem",
    (
        _text("solution_id", "identity of the solution", required=True),
        _text("problem_id", "problem it answers", required=True),
        _text("language", "programming language"),
        _text("program", "source text", required=True),
        _text("claimed", "verdict that its source claims"),
        _text("verified", "verdict that the sandbox gave; null: not judged"),
        _text("origin", "who wrote it"),
    ),
)
PROMPTS = TableSchema(
    "prompts",
    "problem rendered for a model",
    (
        _text("prompt_id", "identity of the token ids", required=True),
        _text("problem_id", "problem it shows", required=True),
        _text("template_id", "template that rendered it"),
        _text("tokenizer_hash", "tokenizer that encoded it"),
        Column("token_ids", "INTEGER[]", "prompt as token ids", required=True),
        _text("text", "prompt as text"),
    ),
)
POLICIES = TableSchema(
    "policies",
    "policy whose weights exist or existed",
    (
        _text("policy_id", "sha256 over weights and configuration, 16 hex digits", required=True),
        _text("kind", "what it is", required=True, choices=POLICY_KINDS),
        _text("path", "folder of its checkpoint"),
        _text("parent_policy_id", "policy it was trained from"),
        _count("step", "optimizer steps since the parent"),
        _text("tokenizer_hash", "its tokenizer"),
        _count("parameters", "number of weights"),
    ),
)
TRAJECTORIES = TableSchema(
    "trajectories",
    "response to a prompt, judged or not",
    (
        _text("trajectory_id", "identity of the response", required=True),
        _text("problem_id", "problem it answers", required=True),
        _text("prompt_id", "prompt it follows"),
        _text("suite_hash", "suite that judged it"),
        _text("source", "where the response comes from", required=True, choices=SOURCES),
        _text("policy_start", "policy that sampled its first token; null for people"),
        _text("policy_end", "policy that sampled its last token"),
        _real("temperature", "sampling temperature"),
        _real("top_p", "nucleus that was sampled from"),
        _count("max_response_tokens", "length limit (tokens)"),
        _count("seed", "seed of its randomness"),
        _text("engine", "engine that sampled it"),
        _count("prompt_tokens", "length of the prompt (tokens)"),
        _count("prefix_tokens", "leading response tokens given, not sampled (tokens)"),
        Column("token_ids", "INTEGER[]", "response as token ids, prefix and end token included", required=True),
        _LOGPROBS,
        _text("logprob_kind", "before or after temperature and nucleus", choices=LOGPROB_KINDS),
        *_PROGRAM,
        _text("finish_reason", "stop: end token; length: cut off", choices=FINISH_REASONS),
        _real("reward", "0 pass, -1 fail, between for shares of tests; null: not scored (infrastructure)"),
        _text(
            "verdict",
            "verdict of the sandbox, or cut_off, too_long, or claimed (an imported reward, believed)",
        ),
        _count("tests_passed", "tests passed"),
        _count("tests_total", "tests in the suite"),
        _text("parent_trajectory_id", "trajectory whose prefix it continues"),
        _text("worker", "process that made it"),
        _count("step", "optimizer step of the weights at its start"),
    ),
)
REFERENCE_LOGPROBS = TableSchema(
    "reference_logprobs",
    "trajectory scored by the reference policy",
    (
        _text("trajectory_id", "scored trajectory", required=True),
        _text("fingerprint", "weights, dtype, kernel and tokenizer that scored it", required=True),
        Column("logprobs", "FLOAT[]", "log-probability of each response token (nats)", required=True),
    ),
)
REFERENCE_COUNTS = TableSchema(
    "reference_counts",
    "share of the evidence for a soft value; rows add up",
    (
        _text("problem_id", "problem", required=True),
        _text("reference", "policy that was sampled", required=True),
        _text("sampling", "temperature, nucleus and length limit", required=True),
        _text("template_id", "prompt template", required=True),
        _text("suite_hash", "suite that judged", required=True),
        _count("n", "scored samples", required=True),
        _count("k", "correct samples", required=True),
    ),
)
TOKEN_VALUES = TableSchema(
    "token_values",
    "prefix of a trajectory whose success rate was estimated",
    (
        _text("trajectory_id", "trajectory", required=True),
        _count("position", "length of the prefix (response tokens)", required=True),
        _text("prefix_hash", "identity of prompt and prefix"),
        _text("reference", "policy that continued the prefix"),
        _count("n", "scored continuations", required=True),
        _count("k", "correct continuations", required=True),
        Column("pivotal", "BOOLEAN", "true when the success rate jumps at this token"),
        _text("search_id", "search it belongs to"),
    ),
)
VERDICTS = TableSchema(
    "verdicts",
    "judgement of a program by a suite",
    (
        _text("program_hash", "program", required=True),
        _text("suite_hash", "suite", required=True),
        _text("limits", "limits it ran under"),
        _text("sandbox_version", "judge that decided"),
        _text("verdict", "verdict", required=True),
        _count("tests_passed", "tests passed"),
        _count("tests_total", "tests in the suite"),
        _real("cpu_s", "CPU time of all tests (s)"),
        _count("memory_bytes", "largest memory of a test (bytes)"),
        _text("detail", "one line for people"),
    ),
)
CORPUS = TableSchema(
    "corpus",
    "member of an offline corpus",
    (
        _text("corpus_id", "corpus", required=True),
        _text("trajectory_id", "trajectory", required=True),
        _text("problem_id", "problem it answers"),
        _text("source", "what it counts as in the corpus", choices=SOURCES),
    ),
)
TRAIN_STEPS = TableSchema(
    "train_steps",
    "figure of an optimizer step",
    (
        _count("step", "optimizer step, from 1", required=True),
        _text("name", "which figure", required=True),
        _real("value", "its value, in the unit that its name says", required=True),
    ),
)
TRAIN_BATCHES = TableSchema(
    "train_batches",
    "batch of an optimizer step, in order: what exact replay needs",
    (
        _count("step", "optimizer step, from 1", required=True),
        Column("trajectory_ids", "VARCHAR[]", "trajectories in their order", required=True),
        Column("sources", "VARCHAR[]", "data source each was drawn from", required=True),
        _count("max_snapshot", "newest snapshot any of them came from"),
    ),
)
EVAL_SAMPLES = TableSchema(
    "eval_samples",
    "judged sample of an evaluation",
    (
        _text("policy_id", "evaluated policy", required=True),
        _count("step", "optimizer step of the policy"),
        _text("problem_set", "collection of problems"),
        _text("problem_id", "problem", required=True),
        _text("suite_hash", "suite that judged"),
        _text("prompt_id", "prompt"),
        _text("sampling", "temperature, nucleus and length limit"),
        _count("sample", "number of the sample, from 0", required=True),
        _count("seed", "seed of its randomness"),
        Column("token_ids", "INTEGER[]", "response as token ids", required=True),
        _LOGPROBS,
        *_PROGRAM,
        _text("finish_reason", "stop: end token; length: cut off", choices=FINISH_REASONS),
        _text("verdict", "verdict of the sandbox, or cut_off"),
        _real("reward", "0 pass, -1 fail, between for shares of tests; null: not scored (infrastructure)"),
        _real("entropy", "mean entropy of the policy over the sample's tokens (nats per token)"),
    ),
)
AUDITS = TableSchema(
    "audits",
    "problem whose stored-correct programs were run against each other",
    (
        _text("audit_id", "identity of suite, programs, inputs and seed", required=True),
        _text("problem_id", "audited problem", required=True),
        _text("suite_hash", "suite that all the programs pass", required=True),
        _text("sandbox_version", "judge that ran them"),
        _count("seed", "seed of the inputs"),
        Column("programs", "VARCHAR[]", "program hashes of the programs, reference solutions included", required=True),
        Column("solutions", "VARCHAR[]", "program hashes of those that are reference solutions", required=True),
        _count("inputs", "new inputs that counted", required=True),
        _count("discarded", "new inputs that did not", required=True),
        _text("discarded_json", "inputs that did not count, by reason (JSON)"),
        _count("behaviours", "different behaviours among the programs", required=True),
        _count("disagreeing", "inputs on which they part", required=True),
        Column("unstable", "VARCHAR[]", "program hashes of those that answer an input differently each time"),
        _real("seconds", "wall-clock time (s)"),
    ),
)
AUDIT_FINDINGS = TableSchema(
    "audit_findings",
    "new input on which programs part that all passed the suite",
    (
        _text("audit_id", "audit that found it", required=True),
        _text("problem_id", "audited problem", required=True),
        _text("suite_hash", "suite that all the programs pass", required=True),
        _count("position", "number of the finding in its audit, from 0", required=True),
        _text("input", "standard input, or the arguments of the call", required=True),
        _text("expected", "output or value that is likely right; must never reach a prompt", required=True),
        _text("basis", "who says so", required=True, choices=("reference", "majority")),
        _count("groups", "different outputs", required=True),
        Column("dissenters", "VARCHAR[]", "program hashes of those who say otherwise", required=True),
        _text("behaviour_json", "verdict of each of them on this input (JSON)"),
    ),
)
SUITE_VERSIONS = TableSchema(
    "suite_versions",
    "suite that an older one became when findings of an audit were accepted as tests",
    (
        _text("problem_id", "problem it judges", required=True),
        _text("suite_hash", "the new suite", required=True),
        _text("parent_suite_hash", "suite that it extends; both stay", required=True),
        _text(
            "parent_tests_hash",
            "identity of the older tests without limits: what is extended in new runs",
            required=True,
        ),
        _count("version", "number of the suite, 1 being the one that the problem came with", required=True),
        Column("added", 'STRUCT("input" VARCHAR, "output" VARCHAR)[]', "tests that it has besides", required=True),
        Column("audit_ids", "VARCHAR[]", "audits that found them", required=True),
    ),
)
QUARANTINE = TableSchema(
    "quarantine",
    "batch that every view leaves out",
    (
        _text("bad_batch_id", "batch to leave out", required=True),
        _text("reason", "why", required=True),
    ),
)

TABLES: Final = MappingProxyType(
    {
        table.name: table
        for table in (
            RUNS,
            RUN_EVENTS,
            STAGES,
            PROBLEMS,
            TESTS,
            SOLUTIONS,
            PROMPTS,
            POLICIES,
            TRAJECTORIES,
            REFERENCE_LOGPROBS,
            REFERENCE_COUNTS,
            TOKEN_VALUES,
            VERDICTS,
            CORPUS,
            TRAIN_STEPS,
            TRAIN_BATCHES,
            EVAL_SAMPLES,
            AUDITS,
            AUDIT_FINDINGS,
            SUITE_VERSIONS,
            QUARANTINE,
        )
    }
)
