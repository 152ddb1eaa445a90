"""Sessions in forks, signals, nested runs, at the end of a process."""
