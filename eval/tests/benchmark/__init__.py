"""The benchmark, with peers that are made up and with those that are installed."""
