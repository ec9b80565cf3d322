"""The report of a run, of several runs and of a study.

stage, run_report  the stage and its page
study, arms, ranks, reached, study_results
                   a study's comparison, as a page, tables and JSON lines
comparison         paired differences of two runs
charts, chart_rendering, chart_sections, table_sections
                   what pages are made of

Pages in the browser are in `explorer`. Start reading at `run_report`.
"""
