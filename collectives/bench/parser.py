"""Command lines whose mistakes are one line."""

from __future__ import annotations

import argparse
import os
from typing import NoReturn

RANK_VARIABLES = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")  # what launchers set


class Parser(argparse.ArgumentParser):
    """An argument parser that ends with exit code 2 and one line, said by rank 0, on a mistake."""

    def error(self, message: str) -> NoReturn:
        """The line, without the usage."""
        rank = next((os.environ[name] for name in RANK_VARIABLES if name in os.environ), "0")
        self.exit(2, f"{self.prog}: {message}; see -h\n" if rank == "0" else None)
