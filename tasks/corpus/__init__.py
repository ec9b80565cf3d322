"""The offline corpus: correct programs of pi_0, of people, of other models and of earlier runs.

stage               the stage; its SQL says what is in reach
known_programs, files, other_models
                    where programs come from
ingestion           judges what arrives and stores it
selection           which of them are kept
reference_logprobs  log pi_0 of every response, stored once

Rollouts of other programs belong in `extras/importing`. Start reading at `stage`.
"""
