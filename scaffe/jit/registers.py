"""What the processor's registers for vectors hold, which decides the shapes of kernels that keep sums in them."""

from __future__ import annotations

from typing import Final

from llvmlite.binding import get_host_cpu_features

_features = get_host_cpu_features()
HAS_AVX512: Final = bool(_features.get("avx512f"))
"""32 registers of 16 float32, instead of 16 registers of 8."""
HAS_FMA: Final = bool(_features.get("avx2") and _features.get("fma"))
HAS_AMX: Final = bool(_features.get("amx-tile"))
LANES: Final = 16 if HAS_AVX512 else 8
"""float32 in the widest registers; narrower ones take as many as they need."""
