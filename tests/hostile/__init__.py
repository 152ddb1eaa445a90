"""Input that means harm, or none: the answer is right, or a typed error that takes no memory."""
