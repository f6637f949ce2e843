/* CUDA's runtime as far as CuPy calls it: memory is the host's, copies are done at once, kernels do nothing.

   Rules and codes are those of the CUDA Runtime API's documentation: "Device Management", "Stream Management", "Event
   Management", and of the programming guide's "CUDA Graphs: Prohibited and Unhandled Operations". */
#define _GNU_SOURCE
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda_profiler_api.h"
#include "cuda_runtime_api.h"

cudaError_t cudaGetLastError(void) { return 0; }
cudaError_t cudaPeekAtLastError(void) { return 0; }
const char *cudaGetErrorName(cudaError_t error) { return error == 0 ? "cudaSuccess" : "stand-in"; }
const char *cudaGetErrorString(cudaError_t error) {
    static __thread char text[32];
    snprintf(text, sizeof text, "CUDA error %d", error);
    return text;
}
cudaError_t cudaDriverGetVersion(int *version) { *version = CUDART_VERSION; return 0; }
cudaError_t cudaRuntimeGetVersion(int *version) { *version = CUDART_VERSION; return 0; }
cudaError_t cudaProfilerStart(void) { return 0; }
cudaError_t cudaProfilerStop(void) { return 0; }

/* Devices: an H100's numbers. */

cudaError_t cudaGetDeviceCount(int *n) { *n = standin_n_devices(); return *n ? 0 : cudaErrorNoDevice; }
cudaError_t cudaGetDevice(int *device) { NOTE(QUESTION, 0, ""); *device = standin_device(); return 0; }
cudaError_t cudaSetDevice(int device) {
    if (device < 0 || device >= standin_n_devices()) return cudaErrorInvalidDevice;
    standin_choose(device);
    NOTE(WORK, 0, "%d", device); /* since CUDA 12 this makes the context */
    return 0;
}
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    switch ((int)attribute) {
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        case cudaDevAttrMultiProcessorCount: *value = 132; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = 48 << 10; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMaxGridDimX: *value = 0x7fffffff; break;
        case cudaDevAttrPciDeviceId: *value = device + 1; break;
        default: *value = 1;
    }
    return 0;
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    memset(p, 0, sizeof *p);
    strcpy(p->name, "stand-in for a card");
    p->major = 9, p->multiProcessorCount = 132, p->warpSize = 32, p->totalGlobalMem = (size_t)80 << 30;
    p->maxThreadsPerBlock = 1024, p->sharedMemPerBlock = 48 << 10, p->regsPerBlock = 65536, p->l2CacheSize = 50 << 20;
    p->memoryBusWidth = 5120, p->memoryClockRate = 2619000, p->clockRate = 1980000, p->pciBusID = device + 1;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024, p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 0x7fffffff, p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    return 0;
}
cudaError_t cudaDeviceGetPCIBusId(char *text, int n, int device) {
    snprintf(text, n, "0000:%02x:00.0", device + 1);
    return 0;
}
cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text) {
    *device = strtol(text + 5, NULL, 16) - 1;
    return *device >= 0 && *device < standin_n_devices() ? 0 : cudaErrorInvalidDevice;
}
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) { *can = device != peer; return 0; }
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) { NOTE(WORK, 0, "%d", peer); return 0; }
cudaError_t cudaDeviceSynchronize(void) { NOTE(WORK, 0, ""); return 0; }

/* Memory. */

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    NOTE(WORK, 0, "");
    *free_bytes = (size_t)79 << 30, *total = (size_t)80 << 30;
    return 0;
}
cudaError_t cudaMalloc(void **at, size_t n_bytes) {
    NOTE(ALLOCATION, 0, "%zu bytes", n_bytes);
    Block *block = standin_allocate(n_bytes, standin_device());
    *at = block ? block->at : NULL;
    return block ? 0 : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void *at) {
    NOTE(at ? ALLOCATION : WORK, 0, "%p", at);
    if (at && !standin_release(at)) REFUSE(cudaErrorInvalidValue);
    return 0;
}
cudaError_t cudaHostAlloc(void **at, size_t n_bytes, unsigned flags) {
    NOTE(ALLOCATION, 0, "%zu bytes", n_bytes);
    return posix_memalign(at, 4096, n_bytes) ? cudaErrorMemoryAllocation : 0;
}
cudaError_t cudaFreeHost(void *at) { NOTE(ALLOCATION, 0, "%p", at); free(at); return 0; }
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *found, const void *at) {
    NOTE(QUESTION, 0, "");
    int device = standin_owner(at, 1);
    memset(found, 0, sizeof *found);
    found->type = device < 0 ? cudaMemoryTypeUnregistered : cudaMemoryTypeDevice, found->device = device;
    found->devicePointer = device < 0 ? NULL : (void *)at;
    return 0;
}

/* What is copied while a stream is captured becomes a node; here nodes do nothing. */
static cudaError_t copy(int64_t call, void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind, Stream *on) {
    int reads = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    int writes = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    if (n_bytes && ((reads && standin_owner(from, n_bytes) < 0) || (writes && standin_owner(to, n_bytes) < 0)))
        REFUSE(cudaErrorInvalidValue);
    if (on && on->capture) on->capture->n_nodes++;
    else memmove(to, from, n_bytes);
    return 0;
}
static int from_host(const void *from, enum cudaMemcpyKind kind) {
    int is = kind == cudaMemcpyHostToDevice || (kind == cudaMemcpyDefault && standin_owner(from, 1) < 0);
    return is ? FROM_HOST : WORK;
}
cudaError_t cudaMemcpy(void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind) {
    NOTE(from_host(from, kind), 0, "%zu bytes, kind %d", n_bytes, kind);
    return copy(call, to, from, n_bytes, kind, NULL);
}
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n_bytes, enum cudaMemcpyKind kind, cudaStream_t on) {
    NOTE(from_host(from, kind), on, "%zu bytes, kind %d, stream %p", n_bytes, kind, (void *)on);
    return copy(call, to, from, n_bytes, kind, (Stream *)on);
}
cudaError_t cudaMemcpyPeerAsync(void *to, int there, const void *from, int here, size_t n_bytes, cudaStream_t on) {
    NOTE(WORK, on, "%zu bytes from %d to %d", n_bytes, here, there);
    return copy(call, to, from, n_bytes, cudaMemcpyDeviceToDevice, (Stream *)on);
}
static cudaError_t fill(int64_t call, void *at, int value, size_t n_bytes, Stream *on) {
    if (n_bytes && standin_owner(at, n_bytes) < 0) REFUSE(cudaErrorInvalidValue);
    if (on && on->capture) on->capture->n_nodes++;
    else memset(at, value, n_bytes);
    return 0;
}
cudaError_t cudaMemset(void *at, int value, size_t n_bytes) {
    NOTE(WORK, 0, "%zu bytes", n_bytes);
    return fill(call, at, value, n_bytes, NULL);
}
cudaError_t cudaMemsetAsync(void *at, int value, size_t n_bytes, cudaStream_t on) {
    NOTE(WORK, on, "%zu bytes", n_bytes);
    return fill(call, at, value, n_bytes, (Stream *)on);
}

/* Memory and events between processes. */

typedef struct { int process, file, device; size_t n_bytes; } Named;

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *handle, void *at) {
    NOTE(WORK, 0, "%p", at);
    Block *block = standin_block(at);
    if (!block || block->is_mapped) REFUSE(cudaErrorInvalidValue);
    Named named = {getpid(), block->file, block->device, block->n_bytes};
    memset(handle, 0, sizeof *handle);
    memcpy(handle, &named, sizeof named);
    return 0;
}
cudaError_t cudaIpcOpenMemHandle(void **at, cudaIpcMemHandle_t handle, unsigned flags) {
    NOTE(WORK, 0, "");
    Named named;
    memcpy(&named, &handle, sizeof named);
    if (named.process == getpid()) REFUSE(cudaErrorDeviceUninitialized); /* not in the process that made it */
    Block *block = standin_map(named.process, named.file, named.n_bytes, standin_device());
    if (!block) REFUSE(cudaErrorMapBufferObjectFailed);
    *at = block->at;
    return 0;
}
cudaError_t cudaIpcCloseMemHandle(void *at) {
    NOTE(WORK, 0, "%p", at);
    Block *block = standin_block(at);
    if (!block || !block->is_mapped || !standin_release(at)) REFUSE(cudaErrorInvalidValue);
    return 0;
}
cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *handle, cudaEvent_t event) {
    NOTE(WORK, 0, "%p", (void *)event);
    memset(handle, 0, sizeof *handle);
    return 0;
}

/* Streams. */

static cudaError_t new_stream(cudaStream_t *made, unsigned flags, int priority) {
    Stream *stream = calloc(1, sizeof *stream);
    stream->device = standin_device(), stream->flags = flags, stream->priority = priority;
    *made = (cudaStream_t)stream;
    return 0;
}
cudaError_t cudaStreamCreate(cudaStream_t *made) { NOTE(WORK, 0, ""); return new_stream(made, 0, 0); }
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *made, unsigned flags) {
    NOTE(WORK, 0, "");
    return new_stream(made, flags, 0);
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *made, unsigned flags, int priority) {
    NOTE(WORK, 0, "priority %d", priority);
    return new_stream(made, flags, priority);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) { NOTE(WORK, 0, "%p", (void *)stream); return 0; }
cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned *flags) {
    *flags = ((Stream *)stream)->flags;
    return 0;
}
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority) {
    *priority = ((Stream *)stream)->priority;
    return 0;
}
static Graph *capture_of(cudaStream_t stream) { return (uintptr_t)stream > 2 ? ((Stream *)stream)->capture : NULL; }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    NOTE(WORK, stream, "%p", (void *)stream);
    if (capture_of(stream)) REFUSE(cudaErrorStreamCaptureUnsupported);
    return 0;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    NOTE(WORK, stream, "%p", (void *)stream);
    if (capture_of(stream)) REFUSE(cudaErrorStreamCaptureUnsupported);
    return 0;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status) {
    *status = capture_of(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return 0;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t run, void *data) {
    NOTE(WORK, stream, "%p", (void *)stream);
    if (!capture_of(stream)) run(data);
    return 0;
}

/* Events. One that was recorded while its stream was captured belongs to that capture. */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *made, unsigned flags) {
    NOTE(WORK, 0, "");
    Event *event = calloc(1, sizeof *event);
    event->device = standin_device();
    *made = (cudaEvent_t)event;
    return 0;
}
cudaError_t cudaEventCreate(cudaEvent_t *made) { return cudaEventCreateWithFlags(made, 0); }
cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *made, cudaIpcEventHandle_t handle) {
    NOTE(WORK, 0, "");
    return cudaEventCreateWithFlags(made, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) { NOTE(WORK, 0, "%p", (void *)event); return 0; }
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    NOTE(WORK, stream, "stream %p", (void *)stream);
    int device = (uintptr_t)stream > 2 ? ((Stream *)stream)->device : standin_device();
    if (((Event *)event)->device != device) REFUSE(cudaErrorInvalidResourceHandle);
    ((Event *)event)->capture = capture_of(stream);
    return 0;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    NOTE(WORK, stream, "stream %p", (void *)stream);
    Graph *here = capture_of(stream), *there = ((Event *)event)->capture;
    if (here == there) return 0;
    if (here || !there->is_open || (uintptr_t)stream <= 2) REFUSE(cudaErrorStreamCaptureIsolation);
    ((Stream *)stream)->capture = there; /* this stream is captured too from now on */
    return 0;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    NOTE(WORK, 0, "%p", (void *)event);
    if (((Event *)event)->capture) REFUSE(cudaErrorCapturedEvent);
    return 0;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    NOTE(WORK, 0, "%p", (void *)event);
    if (((Event *)event)->capture) REFUSE(cudaErrorCapturedEvent);
    return 0;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) { *ms = 1; return 0; }

/* Graphs. */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode) {
    NOTE(WORK, 0, "stream %p, mode %d", (void *)stream, mode);
    if ((uintptr_t)stream <= 2 || capture_of(stream)) REFUSE(cudaErrorStreamCaptureUnsupported);
    Graph *graph = calloc(1, sizeof *graph);
    graph->is_open = 1;
    ((Stream *)stream)->capture = graph;
    standin_capture(1);
    return 0;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *made) {
    Graph *graph = capture_of(stream);
    if (graph) standin_capture(-1), graph->is_open = 0, ((Stream *)stream)->capture = NULL;
    NOTE(WORK, 0, "%ld nodes", graph ? (long)graph->n_nodes : -1L);
    if (!graph) REFUSE(cudaErrorIllegalState);
    *made = (cudaGraph_t)graph;
    return 0;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph, unsigned long long flags) {
    NOTE(WORK, 0, "");
    *made = (cudaGraphExec_t)graph;
    return 0;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    NOTE(LAUNCH, stream, "%ld nodes", (long)((Graph *)graph)->n_nodes);
    return 0;
}
cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream) { NOTE(WORK, stream, ""); return 0; }
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { NOTE(WORK, 0, ""); return 0; }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { NOTE(WORK, 0, ""); return 0; }
