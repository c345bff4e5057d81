"""Which provider runs which query: interests, objectives, mapping and its adaptation."""
