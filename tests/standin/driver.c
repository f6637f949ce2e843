/* CUDA's driver as far as CuPy and cuDNN's run-time compiled engines call it: kernels are found and do nothing. */
#define _GNU_SOURCE
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda.h"

typedef struct { char *image; size_t n_bytes; } Module;
typedef struct { char name[64]; } Function;

CUresult cuInit(unsigned flags) { return 0; }
CUresult cuDriverGetVersion(int *version) { *version = CUDA_VERSION; return 0; }
/* Undocumented tables, which NVRTC asks for too: there are none. */
CUresult cuGetExportTable(const void **table, const CUuuid *name) { *table = NULL; return CUDA_ERROR_NOT_FOUND; }
CUresult cuGetErrorName(CUresult error, const char **text) { *text = "stand-in"; return 0; }
CUresult cuGetErrorString(CUresult error, const char **text) { *text = "refused by the stand-in"; return 0; }
CUresult cuCtxGetCurrent(CUcontext *found) {
    int device = standin_device();
    *found = standin_has_context(device) ? (CUcontext)(uintptr_t)(device + 1) : NULL;
    return 0;
}
CUresult cuCtxGetDevice(CUdevice *device) { *device = standin_device(); return 0; }
CUresult cuDeviceGetCount(int *n) { *n = standin_n_devices(); return 0; }

/* The bytes of an image that is an ELF file or text: as many as name what is in it. */
static size_t bytes_of(const char *image) {
    if (memcmp(image, "\177ELF", 4)) return strlen(image);
    uint64_t sections = *(const uint64_t *)(image + 40);
    uint16_t each = *(const uint16_t *)(image + 58), n = *(const uint16_t *)(image + 60);
    return sections + (size_t)each * n;
}
CUresult cuModuleLoadData(CUmodule *made, const void *image) {
    NOTE(WORK, 0, "%zu bytes", bytes_of(image));
    Module *module = malloc(sizeof *module);
    module->n_bytes = bytes_of(image);
    module->image = memcpy(malloc(module->n_bytes), image, module->n_bytes);
    *made = (CUmodule)module;
    return 0;
}
CUresult cuModuleUnload(CUmodule module) { NOTE(WORK, 0, ""); return 0; }
CUresult cuModuleGetFunction(CUfunction *made, CUmodule module, const char *name) {
    NOTE(WORK, 0, "%s", name);
    Module *in = (Module *)module;
    if (!memmem(in->image, in->n_bytes, name, strlen(name))) REFUSE(CUDA_ERROR_NOT_FOUND);
    Function *function = calloc(1, sizeof *function);
    snprintf(function->name, sizeof function->name, "%s", name);
    *made = (CUfunction)function;
    return 0;
}
CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
    return 0;
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) { return 0; }
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, CUfunction function, int block, size_t shared) {
    *n = 8;
    return 0;
}
CUresult cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, CUstream stream, void **parameters, void **extra) {
    NOTE(LAUNCH, stream, "%s", ((Function *)function)->name);
    if ((uintptr_t)stream > 2 && ((Stream *)stream)->device != standin_device()) REFUSE(CUDA_ERROR_INVALID_HANDLE);
    if (!gx || !gy || !gz || !bx || !by || !bz || bx * by * bz > 1024 || gy > 65535 || gz > 65535)
        REFUSE(CUDA_ERROR_INVALID_VALUE);
    if ((uintptr_t)stream > 2 && ((Stream *)stream)->capture) ((Stream *)stream)->capture->n_nodes++;
    return 0;
}
CUresult cuStreamGetCtx(CUstream stream, CUcontext *found) {
    *found = (CUcontext)(uintptr_t)(((Stream *)stream)->device + 1);
    return 0;
}

/* In a recording: a node that records the event at each launch, so that the event belongs to no capture. */
CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    NOTE(WORK, stream, "stream %p, flags %u", (void *)stream, flags);
    Graph *graph = (uintptr_t)stream > 2 ? ((Stream *)stream)->capture : NULL;
    if (flags != CU_EVENT_RECORD_EXTERNAL || !graph) REFUSE(CUDA_ERROR_INVALID_VALUE);
    if (((Event *)event)->device != ((Stream *)stream)->device) REFUSE(CUDA_ERROR_INVALID_HANDLE);
    graph->n_nodes++;
    return 0;
}

/* Libraries: modules that cuDNN's engines load. */

CUresult cuLibraryLoadData(CUlibrary *made, const void *image, CUjit_option *options, void **values, unsigned n,
                           CUlibraryOption *library_options, void **library_values, unsigned n_library) {
    return cuModuleLoadData((CUmodule *)made, image);
}
CUresult cuLibraryUnload(CUlibrary library) { return 0; }
CUresult cuLibraryGetKernel(CUkernel *made, CUlibrary library, const char *name) {
    return cuModuleGetFunction((CUfunction *)made, (CUmodule)library, name);
}
CUresult cuKernelGetFunction(CUfunction *made, CUkernel kernel) { *made = (CUfunction)kernel; return 0; }
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device) {
    return 0;
}
