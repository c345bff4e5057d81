"""Commands that compute and run no state: plan, tune, calibrate, reproduce."""
