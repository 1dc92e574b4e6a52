"""The sandboxes: places that a judge runs in."""
