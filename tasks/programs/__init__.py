"""From a response to a program and its identity.

fences      code blocks of a text
extraction  the program that a response answers with
identity    what makes two programs the same
stubs       the beginning of a function that a prompt may show

Problems and prompts belong in `problems`, running programs in `sandbox`. Start reading at `extraction`.
"""
