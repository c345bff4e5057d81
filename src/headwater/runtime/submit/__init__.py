"""From statements to the catalog: check a text, execute it, and assign new queries to units."""
