"""The command `spo`, one module for each group of commands.

main          registers the commands, turns errors into one message
run_commands  run, resume, plan, status
watch         submits a flow and shows its stages while it runs
summary       the end of a run on the terminal

A command reads its options, calls `flows` or `tasks`, and prints. Start reading at `main`.
Imports of large libraries belong inside functions: `spo --help` must start at once.
"""
