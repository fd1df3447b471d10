"""AlphaEvolve's notebooks as task folders: their own statements judge a construction."""
