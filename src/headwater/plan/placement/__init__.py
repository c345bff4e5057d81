"""Which queries are admitted, and which site runs, holds, sends and serves what for them."""
