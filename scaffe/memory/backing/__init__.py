"""Where arrays go that leave memory: a file below the host's, page-locked host memory below a device's."""
