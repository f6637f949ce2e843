"""How slices of a buffer become messages: host memory, half precision on the wire, polling."""
