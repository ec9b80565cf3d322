"""The pages of `spo ui`: queries, templates and drawings, without a web server.

address    from a path to a page, and links back
pages      the list of pages
runs, run, problem, trajectory, studies, audits, ask
           one module for each page, its questions in the .sql file beside it
bundle     all pages as files
rendering  HTML from templates

The server is `flows/explorer_server`. Start reading at `pages`.
"""
