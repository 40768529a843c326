"""Building blocks of ReLU networks: drop-in modules that need torch only."""
