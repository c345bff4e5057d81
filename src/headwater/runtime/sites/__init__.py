"""Several sites that run one state: what each of them does, and how segments get from one to another."""
