/* The words of CUDA's headers that only its own compiler needs: nothing. */
#pragma once
#define CUDARTAPI
#define CUDART_CB
#define __host__
#define __device__
#define __device_builtin__
#define __cudart_builtin__
#define __device_builtin_texture_type__
#define __device_builtin_surface_type__
#define __inline__ inline
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __align__(n)
