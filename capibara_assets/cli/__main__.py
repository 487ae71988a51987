"""`python -m capibara_assets.cli`: the command where its script is not installed."""

from capibara_assets.cli.main import main

main()
