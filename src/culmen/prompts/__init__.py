"""What models are asked, and how their replies become candidates."""
