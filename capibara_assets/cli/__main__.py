"""`python -m capibara_assets.cli`: runs the `capibara` command without its console script."""

from capibara_assets.cli.main import main

main()
