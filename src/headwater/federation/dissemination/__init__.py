"""Trees that carry a stream from its origin to many providers within their tolerances."""
