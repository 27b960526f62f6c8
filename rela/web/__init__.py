"""What the explorer and the server share: refusals in one line, bounds on requests and connections, a quiet end."""
