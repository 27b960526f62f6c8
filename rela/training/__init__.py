"""Learning: loss, schedule, checkpoints and the loop."""
