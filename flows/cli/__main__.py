"""`python -m flows.cli`: the command `spo`."""

from flows.cli.main import main

if __name__ == "__main__":
    main()
