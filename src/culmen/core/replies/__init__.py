"""Reading of models' replies: the text that was meant, or a fault with its name."""
