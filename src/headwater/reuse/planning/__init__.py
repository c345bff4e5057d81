"""What a new query uses of what runs, and what is made for it: one decision, at a site or in a network."""
