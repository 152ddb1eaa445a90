"""The process: forks, signals, threads of other libraries, imports."""
