"""From prompts to judged rows.

sampler            draws responses, has programs judged, returns rows
assignment         which prompts, how many samples, which seeds
known_verdicts     programs that were judged before
background_judging, awaited_verdicts
                   judging beside sampling
reference_counts   pi_0's counts (n, k) of prompts

Engines belong in `engines`, storing rows in the stages. Start reading at `sampler`.
"""
