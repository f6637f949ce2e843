/* CUDA's runtime for a host compiler: its calls and types, from the toolkit's own headers. */
#pragma once
#include "cuda_runtime_api.h"
#include "driver_functions.h"
