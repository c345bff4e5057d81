"""How providers keep dissemination trees together: messages, locks and moves as state machines."""
