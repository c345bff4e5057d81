"""The order and the place of operators with which queries take the highest input rates."""
