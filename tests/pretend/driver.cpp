// CUDA's driver as far as memory in pages goes: device memory is a file in the host's memory, whose pages are mapped as
// often as they are asked for, so that arrays in the same pages really are the same memory. What CUDA refuses is refused.
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <map>

namespace {
enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_SUPPORTED = 801 };
struct Location { int type, id; };
struct Properties {  // CUmemAllocationProp
    int type, handle_types;
    Location location;
    void *windows;
    struct { unsigned char compression, rdma; unsigned short usage; unsigned char reserved[4]; } flags;
};
static_assert(sizeof(Properties) == 32 && offsetof(Properties, windows) == 16, "as cuda.h lays it out");
struct Access { Location location; int flags; };
static_assert(sizeof(Access) == 12, "as cuda.h lays it out");
struct Memory { off_t at; size_t size; int n_mapped; bool released; };

size_t granularity = 2 << 20, used = 0, most = SIZE_MAX;
int file = -1;
off_t end = 0;
uint64_t last = 0x7000;
std::map<uint64_t, Memory> memories;
std::map<uint64_t, size_t> reserved;
std::map<uint64_t, std::pair<size_t, uint64_t>> mapped;  // by address: bytes, and whose

bool is_pinned_on_device(const Properties *p) {
    return p && p->type == 1 && p->location.type == 1 && !p->handle_types && !p->windows && !p->flags.compression
        && !p->flags.rdma && !p->flags.usage;
}
bool is_reserved(uint64_t at, size_t size) {
    auto found = reserved.upper_bound(at);
    return found != reserved.begin() && at + size <= (--found)->first + found->second;
}
void *address(uint64_t at) { return reinterpret_cast<void *>(at); }
void give_back(uint64_t handle) {
    Memory &memory = memories[handle];
    if (memory.n_mapped || !memory.released) return;
    fallocate64(file, 3, memory.at, memory.size);  // a hole
    used -= memory.size;
    memories.erase(handle);
}
}  // namespace

extern "C" {
void pretend_settings(size_t page_bytes, size_t most_bytes) { granularity = page_bytes, most = most_bytes; }
size_t pretend_used() { return used; }
size_t pretend_mapped() { return mapped.size(); }
size_t pretend_reserved() { return reserved.size(); }

int cuGetErrorString(int error, const char **text) { *text = "refused by the pretend driver"; return SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 102 ? granularity > 0 : 0;
    return SUCCESS;
}
int cuMemGetAllocationGranularity(size_t *bytes, const Properties *p, int option) {
    *bytes = granularity;
    return is_pinned_on_device(p) && granularity ? SUCCESS : INVALID_VALUE;
}
int cuMemCreate(uint64_t *handle, size_t size, const Properties *p, unsigned long long flags) {
    if (!granularity) return NOT_SUPPORTED;
    if (!is_pinned_on_device(p) || flags || !size || size % granularity) return INVALID_VALUE;
    if (used + size > most) return OUT_OF_MEMORY;
    if (file < 0) file = memfd_create("pretend", 0);
    if (ftruncate(file, end + size)) return OUT_OF_MEMORY;
    memories[*handle = ++last] = {end, size, 0, false};
    end += size, used += size;
    return SUCCESS;
}
int cuMemRelease(uint64_t handle) {
    auto found = memories.find(handle);
    if (found == memories.end() || found->second.released) return INVALID_VALUE;
    found->second.released = true;
    give_back(handle);
    return SUCCESS;
}
int cuMemAddressReserve(uint64_t *at, size_t size, size_t alignment, uint64_t wanted, unsigned long long flags) {
    if (!size || size % granularity || flags) return INVALID_VALUE;
    void *found = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return OUT_OF_MEMORY;
    reserved[*at = reinterpret_cast<uint64_t>(found)] = size;
    return SUCCESS;
}
int cuMemAddressFree(uint64_t at, size_t size) {
    auto found = reserved.find(at);
    auto there = mapped.lower_bound(at);
    if (found == reserved.end() || found->second != size || (there != mapped.end() && there->first < at + size))
        return INVALID_VALUE;
    munmap(address(at), size);
    reserved.erase(found);
    return SUCCESS;
}
int cuMemMap(uint64_t at, size_t size, size_t offset, uint64_t handle, unsigned long long flags) {
    auto found = memories.find(handle);
    if (found == memories.end() || offset || flags || size != found->second.size || at % granularity ||
        !is_reserved(at, size) || mapped.count(at))
        return INVALID_VALUE;
    if (mmap(address(at), size, PROT_NONE, MAP_SHARED | MAP_FIXED, file, found->second.at) == MAP_FAILED)
        return OUT_OF_MEMORY;
    mapped[at] = {size, handle};
    found->second.n_mapped++;
    return SUCCESS;
}
int cuMemUnmap(uint64_t at, size_t size) {
    auto found = mapped.find(at);
    if (found == mapped.end() || found->second.first != size) return INVALID_VALUE;
    uint64_t handle = found->second.second;
    mmap(address(at), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    mapped.erase(found);
    memories[handle].n_mapped--;
    give_back(handle);
    return SUCCESS;
}
int cuMemSetAccess(uint64_t at, size_t size, const Access *access, size_t count) {
    if (count != 1 || access->location.type != 1 || access->flags != 3) return INVALID_VALUE;
    size_t done = 0;
    for (auto part = mapped.find(at); part != mapped.end() && part->first == at + done && done < size; ++part)
        done += part->second.first;
    if (done != size) return INVALID_VALUE;  // not all of it is mapped
    return mprotect(address(at), size, PROT_READ | PROT_WRITE) ? INVALID_VALUE : SUCCESS;
}
}
