"""Set: members of each key."""
