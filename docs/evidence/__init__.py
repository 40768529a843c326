"""The pages of results: what stands on them, in what order and in which words."""
