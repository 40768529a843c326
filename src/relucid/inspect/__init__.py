"""What a network has learned."""
