"""How spans are taken: the tracer, the device clocks, and the session that runs an engine under them."""
