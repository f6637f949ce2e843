/* Memory in pages, which may lie at several addresses: each is a file, mapped wherever it is asked for.

   Rules and codes are those of the CUDA Driver API's documentation, "Virtual Memory Management". */
#define _GNU_SOURCE
#include "standin.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cuda.h"

#define PAGE ((size_t)2 << 20) /* as on an H100 */
#define LOCKED(work) pthread_mutex_lock(&lock); CUresult code = work; pthread_mutex_unlock(&lock); \
    return code ? standin_refuse(call, code) : 0

typedef struct { int file, n_mapped, is_released; size_t n_bytes; } Memory;
/* Reserved addresses, and whose memory lies at each page of them. */
typedef struct Range { char *at; size_t n_bytes; struct Range *next; Memory *pages[]; } Range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Range *ranges;

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    *value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
    return 0;
}
static int is_plain(const CUmemAllocationProp *of) {
    return of->type == CU_MEM_ALLOCATION_TYPE_PINNED && of->location.type == CU_MEM_LOCATION_TYPE_DEVICE
        && of->location.id >= 0 && of->location.id < standin_n_devices() && !of->requestedHandleTypes;
}
CUresult cuMemGetAllocationGranularity(size_t *n_bytes, const CUmemAllocationProp *of,
                                       CUmemAllocationGranularity_flags which) {
    *n_bytes = PAGE;
    return is_plain(of) ? 0 : CUDA_ERROR_INVALID_VALUE;
}

static CUresult create(CUmemGenericAllocationHandle *made, size_t n_bytes) {
    int file = memfd_create("device pages", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, n_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    Memory *memory = malloc(sizeof *memory);
    *memory = (Memory){file, 0, 0, n_bytes};
    *made = (CUmemGenericAllocationHandle)memory;
    return 0;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *made, size_t n_bytes, const CUmemAllocationProp *of,
                     unsigned long long flags) {
    NOTE(ALLOCATION, 0, "%zu bytes", n_bytes);
    if (flags || !n_bytes || n_bytes % PAGE || !is_plain(of)) REFUSE(CUDA_ERROR_INVALID_VALUE);
    LOCKED(create(made, n_bytes));
}
/* Gives a file back once nobody has its memory; what tells of it stays, so that a second release is seen. */
static CUresult let_go(Memory *memory) {
    if (memory->is_released && !memory->n_mapped) close(memory->file);
    return 0;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    NOTE(ALLOCATION, 0, "%llx", handle);
    Memory *memory = (Memory *)handle;
    if (memory->is_released) REFUSE(CUDA_ERROR_INVALID_VALUE);
    memory->is_released = 1;
    LOCKED(let_go(memory));
}

static CUresult reserve(CUdeviceptr *at, size_t n_bytes) {
    void *found = mmap(NULL, n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
    Range *range = calloc(1, sizeof *range + n_bytes / PAGE * sizeof(Memory *));
    range->at = found, range->n_bytes = n_bytes, range->next = ranges;
    ranges = range;
    *at = (CUdeviceptr)found;
    return 0;
}
CUresult cuMemAddressReserve(CUdeviceptr *at, size_t n_bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags) {
    NOTE(ALLOCATION, 0, "%zu bytes", n_bytes);
    if (!n_bytes || n_bytes % PAGE || flags) REFUSE(CUDA_ERROR_INVALID_VALUE);
    LOCKED(reserve(at, n_bytes));
}
static CUresult unreserve(char *at, size_t n_bytes) {
    Range **link = &ranges;
    while (*link && (*link)->at != at) link = &(*link)->next;
    Range *range = *link;
    if (!range || range->n_bytes != n_bytes) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n_bytes / PAGE; i++) if (range->pages[i]) return CUDA_ERROR_INVALID_VALUE;
    *link = range->next;
    munmap(at, n_bytes);
    free(range);
    return 0;
}
CUresult cuMemAddressFree(CUdeviceptr at, size_t n_bytes) {
    NOTE(ALLOCATION, 0, "%zu bytes at %llx", n_bytes, at);
    LOCKED(unreserve((char *)at, n_bytes));
}

/* Where it is said whose memory lies at an address; NULL: not all of it is reserved. */
static Memory **page_at(char *at, size_t n_bytes) {
    Range *range = ranges;
    while (range && !(at >= range->at && at + n_bytes <= range->at + range->n_bytes)) range = range->next;
    return range && (at - range->at) % PAGE == 0 && n_bytes ? range->pages + (at - range->at) / PAGE : NULL;
}
static CUresult map(char *at, size_t n_bytes, Memory *memory) {
    Memory **pages = page_at(at, n_bytes);
    if (!pages || memory->n_bytes != n_bytes || memory->is_released) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n_bytes / PAGE; i++) if (pages[i]) return CUDA_ERROR_INVALID_VALUE;
    if (mmap(at, n_bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->file, 0) == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    for (size_t i = 0; i < n_bytes / PAGE; i++) pages[i] = memory;
    memory->n_mapped++;
    return 0;
}
CUresult cuMemMap(CUdeviceptr at, size_t n_bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
    NOTE(ALLOCATION, 0, "%zu bytes at %llx", n_bytes, at);
    if (offset || flags) REFUSE(CUDA_ERROR_INVALID_VALUE);
    LOCKED(map((char *)at, n_bytes, (Memory *)handle));
}
static CUresult unmap(char *at, size_t n_bytes) {
    Memory **pages = page_at(at, n_bytes);
    if (!pages || !pages[0] || pages[0]->n_bytes != n_bytes) return CUDA_ERROR_INVALID_VALUE;
    Memory *memory = pages[0];
    Block *usable = standin_block(at);
    if (usable) standin_forget(usable);
    mmap(at, n_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    for (size_t i = 0; i < n_bytes / PAGE; i++) pages[i] = NULL;
    memory->n_mapped--;
    return let_go(memory);
}
CUresult cuMemUnmap(CUdeviceptr at, size_t n_bytes) {
    NOTE(ALLOCATION, 0, "%zu bytes at %llx", n_bytes, at);
    LOCKED(unmap((char *)at, n_bytes));
}
/* From now on the addresses are the device's memory, in one piece. */
static CUresult let_use(char *at, size_t n_bytes, int device) {
    Memory **pages = page_at(at, n_bytes);
    if (!pages) return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < n_bytes / PAGE; i++) if (!pages[i]) return CUDA_ERROR_INVALID_VALUE;
    if (mprotect(at, n_bytes, PROT_READ | PROT_WRITE)) return CUDA_ERROR_INVALID_VALUE;
    if (!standin_block(at)) standin_add(at, n_bytes, device, -1, 1);
    return 0;
}
CUresult cuMemSetAccess(CUdeviceptr at, size_t n_bytes, const CUmemAccessDesc *who, size_t n) {
    NOTE(ALLOCATION, 0, "%zu bytes at %llx", n_bytes, at);
    if (n != 1 || who->location.type != CU_MEM_LOCATION_TYPE_DEVICE || who->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        REFUSE(CUDA_ERROR_INVALID_VALUE);
    LOCKED(let_use((char *)at, n_bytes, who->location.id));
}
