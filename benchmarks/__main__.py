"""`python -m benchmarks NAME [options] --json`: the figures behind the promises, one JSON line each; --list."""

from benchmarks.command import main

if __name__ == "__main__":
    main()
