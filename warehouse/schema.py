"""The tables: one place for names, types, units and meanings.

Every table is append-only and every row also carries `PROVENANCE`. Columns may be added (with a migration), never
renamed, retyped or removed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from warehouse.columns import PROVENANCE, Column, TableSchema, count, real, text

__all__ = ["PROVENANCE", "SCHEMA_VERSION", "SOURCES", "SUPERSEDED", "TABLES", "VIEW_COLUMNS", "Column", "TableSchema"]

SCHEMA_VERSION: Final = 4
"""Version of the tables and views that this code writes; a warehouse with a larger one is refused."""


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
POLICY_KINDS: Final = ("reference", "snapshot", "final", "evaluated")
LOGPROB_KINDS: Final = ("raw", "processed", "none")
FINISH_REASONS: Final = ("stop", "length")


_PROGRAM = (
    text("text", "the response decoded"),
    text("program_hash", "identity of the extracted program's behaviour: sha256 of its syntax tree, 32 hex digits"),
    text("normal_hash", "the same without docstrings: identity for deduplication and diversity"),
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
        text("recipe", "name of the recipe"),
        text("config_json", "resolved configuration (JSON)"),
        text("project_version", "version of this project"),
        count("snapshot", "snapshot the run reads from; it is kept from expiry"),
        text("status", "not written; the state of a run is in the view `run_states`"),
    ),
)
RUN_EVENTS = TableSchema(
    "run_events",
    "thing that happened in a run",
    (
        text("stage", "stage it happened in"),
        text("kind", "what kind of event", required=True),
        text("message", "one line for people"),
        text("payload_json", "details (JSON)"),
    ),
)
STAGES = TableSchema(
    "stages",
    "finished execution of a stage",
    (
        text("stage", "name of the stage", required=True),
        text("stage_version", "version of the stage's code"),
        text(
            "key", "sha256 over stage, version, configuration and inputs; equal keys need not run again", required=True
        ),
        text("status", "completed or skipped; what failed is an event", required=True),
        count("snapshot_in", "snapshot the stage read"),
        count("snapshot_out", "snapshot after its last batch"),
        count("rows", "rows it appended"),
        real("seconds", "wall-clock time (s)"),
        text("manifest_json", "what the stage returned (JSON)"),
    ),
)
PROBLEMS = TableSchema(
    "problems",
    "version of a problem",
    (
        text("problem_id", "identity of the problem", required=True),
        text("problem_set", "collection it belongs to"),
        text("split", "what it may be used for", required=True, choices=SPLITS),
        text("title", "short name"),
        text("source", "where it comes from"),
        text("licence", "licence of the statement and tests"),
        text("statement", "task in words"),
        text("style", "how a program is called: stdin or function"),
        text("entry_point", "function to call, for style function"),
        text("checker_json", "how outputs are compared (JSON)"),
        real("cpu_limit_s", "CPU time a test may take (s)"),
        count("memory_limit_bytes", "memory a test may take (bytes)"),
        text("suite_hash", "identity of tests, checker and limits together"),
        Column(
            "public_tests",
            'STRUCT("input" VARCHAR, "output" VARCHAR)[]',
            "examples that the statement shows; hidden tests are only in `tests`",
        ),
        text("content_hash", "identity of everything the problem says"),
        text("unjudgeable_reason", "why programs cannot be judged; null when they can"),
    ),
)
TESTS = TableSchema(
    "tests",
    "test of a suite; the only place of hidden inputs and expected outputs",
    (
        text("problem_id", "problem it belongs to", required=True),
        text("suite_hash", "suite it belongs to", required=True),
        count("position", "place in the suite, from 0", required=True),
        text("input", "standard input, or the call"),
        text("expected", "expected output; must never reach a prompt"),
        Column("hidden", "BOOLEAN", "false when the statement shows it", required=True),
    ),
)
SOLUTIONS = TableSchema(
    "solutions",
    "known program for a problem",
    (
        text("solution_id", "identity of the solution", required=True),
        text("problem_id", "problem it answers", required=True),
        text("language", "programming language"),
        text("program", "source text", required=True),
        text("claimed", "verdict that its source claims"),
        text("verified", "verdict that the sandbox gave; null: not judged"),
        text("origin", "who wrote it"),
    ),
)
PROMPTS = TableSchema(
    "prompts",
    "problem rendered for a model",
    (
        text("prompt_id", "identity of the token ids", required=True),
        text("problem_id", "problem it shows", required=True),
        text("template_id", "template that rendered it"),
        text("tokenizer_hash", "tokenizer that encoded it"),
        Column("token_ids", "INTEGER[]", "prompt as token ids", required=True),
        text("text", "prompt as text"),
    ),
)
POLICIES = TableSchema(
    "policies",
    "policy whose weights exist or existed",
    (
        text("policy_id", "sha256 over weights and configuration, 16 hex digits", required=True),
        text("kind", "what it is to runs (evaluated: to none)", required=True, choices=POLICY_KINDS),
        text("path", "folder of its checkpoint"),
        text("parent_policy_id", "policy it was trained from"),
        count("step", "optimizer steps since the parent"),
        text("tokenizer_hash", "its tokenizer"),
        count("parameters", "number of weights"),
    ),
)
TRAJECTORIES = TableSchema(
    "trajectories",
    "response to a prompt, judged or not",
    (
        text("trajectory_id", "identity of the response", required=True),
        text("problem_id", "problem it answers", required=True),
        text("prompt_id", "prompt it follows"),
        text("suite_hash", "suite that judged it"),
        text("source", "where the response comes from", required=True, choices=SOURCES),
        text("policy_start", "policy that sampled its first token; null for people"),
        text("policy_end", "policy that sampled its last token"),
        real("temperature", "sampling temperature"),
        real("top_p", "nucleus that was sampled from"),
        count("max_response_tokens", "length limit (tokens)"),
        count("seed", "seed of its randomness"),
        text("engine", "engine that sampled it"),
        count("prompt_tokens", "length of the prompt (tokens)"),
        count("prefix_tokens", "leading response tokens given, not sampled (tokens)"),
        Column("token_ids", "INTEGER[]", "response as token ids, prefix and end token included", required=True),
        _LOGPROBS,
        text("logprob_kind", "before or after temperature and nucleus", choices=LOGPROB_KINDS),
        *_PROGRAM,
        text("finish_reason", "stop: end token; length: cut off", choices=FINISH_REASONS),
        real("reward", "0 pass, -1 fail, between for shares of tests; null: not scored (infrastructure)"),
        text(
            "verdict",
            "verdict of the sandbox, or cut_off, too_long, or claimed (an imported reward, believed)",
        ),
        count("tests_passed", "tests passed"),
        count("tests_total", "tests in the suite"),
        text("parent_trajectory_id", "trajectory whose prefix it continues"),
        text("worker", "process that made it"),
        count("step", "optimizer step of the weights at its start"),
    ),
)
REFERENCE_LOGPROBS = TableSchema(
    "reference_logprobs",
    "trajectory scored by the reference policy",
    (
        text("trajectory_id", "scored trajectory", required=True),
        text("fingerprint", "weights, dtype, kernel and tokenizer that scored it", required=True),
        Column("logprobs", "FLOAT[]", "log-probability of each response token (nats)", required=True),
    ),
)
REFERENCE_COUNTS = TableSchema(
    "reference_counts",
    "share of the evidence for a soft value; rows add up",
    (
        text("problem_id", "problem", required=True),
        text("reference", "policy that was sampled", required=True),
        text("sampling", "temperature, nucleus and length limit", required=True),
        text("template_id", "prompt template", required=True),
        text("suite_hash", "suite that judged", required=True),
        count("n", "scored samples", required=True),
        count("k", "correct samples", required=True),
        text("prompt_id", "prompt that was answered; null: counted before it was recorded"),
    ),
)
TOKEN_VALUES = TableSchema(
    "token_values",
    "prefix of a trajectory whose success rate was estimated",
    (
        text("trajectory_id", "trajectory", required=True),
        count("position", "length of the prefix (response tokens)", required=True),
        text("prefix_hash", "identity of prompt and prefix"),
        text("reference", "policy that continued the prefix"),
        count("n", "scored continuations", required=True),
        count("k", "correct continuations", required=True),
        Column("pivotal", "BOOLEAN", "true when the success rate jumps at this token"),
        text("search_id", "search it belongs to"),
    ),
)
VERDICTS = TableSchema(
    "verdicts",
    "judgement of a program by a suite",
    (
        text("program_hash", "program", required=True),
        text("suite_hash", "suite", required=True),
        text("limits", "limits it ran under"),
        text("sandbox_version", "judge that decided"),
        text("verdict", "verdict", required=True),
        count("tests_passed", "tests passed"),
        count("tests_total", "tests in the suite"),
        real("cpu_s", "CPU time of all tests (s)"),
        count("memory_bytes", "largest memory of a test (bytes)"),
        text("detail", "one line for people"),
        text(
            "outcomes",
            "a letter per test in order, the first of its verdict, `.`: not run; null: judged before it was recorded",
        ),
        text("output", "what the program printed on the test that `detail` names, its first 1,000 bytes"),
    ),
)
CORPUS = TableSchema(
    "corpus",
    "member of an offline corpus",
    (
        text("corpus_id", "corpus", required=True),
        text("trajectory_id", "trajectory", required=True),
        text("problem_id", "problem it answers"),
        text("source", "what it counts as in the corpus", choices=SOURCES),
    ),
)
TRAIN_STEPS = TableSchema(
    "train_steps",
    "figure of an optimizer step",
    (
        count("step", "optimizer step, from 1", required=True),
        text("name", "which figure", required=True),
        real("value", "its value, in the unit that its name says", required=True),
    ),
)
TRAIN_BATCHES = TableSchema(
    "train_batches",
    "batch of an optimizer step, in order: what exact replay needs",
    (
        count("step", "optimizer step, from 1", required=True),
        Column("trajectory_ids", "VARCHAR[]", "trajectories in their order", required=True),
        Column("sources", "VARCHAR[]", "data source each was drawn from", required=True),
        count("max_snapshot", "newest snapshot any of them came from"),
    ),
)
EVAL_SAMPLES = TableSchema(
    "eval_samples",
    "judged sample of an evaluation",
    (
        text("policy_id", "evaluated policy", required=True),
        count("step", "optimizer step of the policy"),
        text("problem_set", "collection of problems"),
        text("problem_id", "problem", required=True),
        text("suite_hash", "suite that judged"),
        text("prompt_id", "prompt"),
        text("sampling", "temperature, nucleus and length limit"),
        count("sample", "number of the sample, from 0", required=True),
        count("seed", "seed of its randomness"),
        Column("token_ids", "INTEGER[]", "response as token ids", required=True),
        _LOGPROBS,
        *_PROGRAM,
        text("finish_reason", "stop: end token; length: cut off", choices=FINISH_REASONS),
        text("verdict", "verdict of the sandbox, or cut_off"),
        real("reward", "0 pass, -1 fail, between for shares of tests; null: not scored (infrastructure)"),
        real("entropy", "mean entropy of the policy over the sample's tokens (nats per token)"),
    ),
)
AUDITS = TableSchema(
    "audits",
    "problem whose stored-correct programs were run against each other",
    (
        text("audit_id", "identity of suite, programs, inputs and seed", required=True),
        text("problem_id", "audited problem", required=True),
        text("suite_hash", "suite that all the programs pass", required=True),
        text("sandbox_version", "judge that ran them"),
        count("seed", "seed of the inputs"),
        Column("programs", "VARCHAR[]", "program hashes of the programs, reference solutions included", required=True),
        Column("solutions", "VARCHAR[]", "program hashes of those that are reference solutions", required=True),
        count("inputs", "new inputs that counted", required=True),
        count("discarded", "new inputs that did not", required=True),
        text("discarded_json", "inputs that did not count, by reason (JSON)"),
        count("behaviours", "different behaviours among the programs", required=True),
        count("disagreeing", "inputs on which they part", required=True),
        Column("unstable", "VARCHAR[]", "program hashes of those that answer an input differently each time"),
        real("seconds", "wall-clock time (s)"),
    ),
)
AUDIT_FINDINGS = TableSchema(
    "audit_findings",
    "new input on which programs part that all passed the suite",
    (
        text("audit_id", "audit that found it", required=True),
        text("problem_id", "audited problem", required=True),
        text("suite_hash", "suite that all the programs pass", required=True),
        count("position", "number of the finding in its audit, from 0", required=True),
        text("input", "standard input, or the arguments of the call", required=True),
        text("expected", "output or value that is likely right; must never reach a prompt", required=True),
        text("basis", "who says so", required=True, choices=("reference", "majority")),
        count("groups", "different outputs", required=True),
        Column("dissenters", "VARCHAR[]", "program hashes of those who say otherwise", required=True),
        text("behaviour_json", "verdict of each of them on this input (JSON)"),
    ),
)
SUITE_VERSIONS = TableSchema(
    "suite_versions",
    "suite that an older one became when findings of an audit were accepted as tests",
    (
        text("problem_id", "problem it judges", required=True),
        text("suite_hash", "the new suite", required=True),
        text("parent_suite_hash", "suite that it extends; both stay", required=True),
        text(
            "parent_tests_hash",
            "identity of the older tests without limits: what is extended in new runs",
            required=True,
        ),
        count("version", "number of the suite, 1 being the one that the problem came with", required=True),
        Column("added", 'STRUCT("input" VARCHAR, "output" VARCHAR)[]', "tests that it has besides", required=True),
        Column("audit_ids", "VARCHAR[]", "audits that found them", required=True),
    ),
)
QUARANTINE = TableSchema(
    "quarantine",
    "batch that every view leaves out",
    (
        text("bad_batch_id", "batch to leave out", required=True),
        text("reason", "why", required=True),
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
