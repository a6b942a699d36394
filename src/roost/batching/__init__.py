"""Work in batches: a batch is one transaction. The policy, without I/O."""
