"""Commands that run an engine: run, up and site, with Spark and its log files."""
