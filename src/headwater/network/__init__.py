"""Sites and the links between them: where they come from, and how far apart they are."""
