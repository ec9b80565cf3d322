"""Finds tests that are too weak: programs stored as correct that disagree on new inputs.

audits       chooses problems and stores findings
examination  runs the programs of a problem against each other
inputs       draws inputs: layouts read from the statement and from given tests
calls        the same for functions
acceptance   makes findings into tests of a new suite

Start reading at `audits.audit`.
"""
