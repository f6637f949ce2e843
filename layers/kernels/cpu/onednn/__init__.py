"""oneDNN through its C API (version 3): convolutions and poolings on channels-last arrays."""
