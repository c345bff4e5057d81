"""Several sites that run one state: which site does what, and how segments are copied between them."""
