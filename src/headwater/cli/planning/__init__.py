"""Commands that compute and run no state: plan, tune, simulate, calibrate, reproduce."""
