"""Networks in narrow types: made by the usual tools, and timed beside other engines."""
