/* The record of calls, threads' devices, and device memory: files without a name, which other processes can map. */
#define _GNU_SOURCE
#include "standin.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MOST_CALLS (4 << 20)
#define MOST_DEVICES 16

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Call *calls;
static int64_t n_calls;
static Block *blocks;
static int contexts[MOST_DEVICES];
static __thread int chosen = -1, n_captures;
static void (*tell)(int64_t);

static int breaks_a_rule(const Call *call) {
    int in_capture = call->capturing && (call->kind == ALLOCATION || call->kind == FROM_HOST);
    return call->is_refused || in_capture || (call->kind != QUESTION && call->device < 0);
}

int64_t standin_note(const char *name, int kind, Stream *stream, const char *detail) {
    pthread_mutex_lock(&lock);
    if (!calls) calls = mmap(NULL, sizeof(Call) * MOST_CALLS, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (n_calls == MOST_CALLS) { fprintf(stderr, "stand-in: more than %d calls\n", MOST_CALLS); abort(); }
    int64_t place = n_calls++;
    Call *call = calls + place;
    snprintf(call->name, sizeof call->name, "%s", name);
    snprintf(call->detail, sizeof call->detail, "%s", detail);
    call->thread = syscall(SYS_gettid);
    call->device = chosen;
    call->kind = kind;
    call->capturing = (n_captures > 0) | ((uintptr_t)stream > 2 && stream->capture ? 2 : 0);
    if (kind != QUESTION) contexts[standin_device()] = 1;
    pthread_mutex_unlock(&lock);
    if (tell && breaks_a_rule(call)) tell(place);
    return place;
}

int standin_refuse(int64_t call, int code) {
    calls[call].is_refused = 1;
    if (tell) tell(call);
    return code;
}

void standin_choose(int device) { chosen = device; }
int standin_device(void) { return chosen < 0 ? 0 : chosen; }
int standin_has_context(int device) { return contexts[device]; }
void standin_capture(int change) { n_captures += change; }
void standin_watch(void (*told)(int64_t)) { tell = told; }
Call *standin_calls(int64_t *n) { *n = n_calls; return calls; }

int standin_n_devices(void) {
    const char *said = getenv("SCAFFE_STANDIN_DEVICES");
    int n = said ? atoi(said) : 1;
    return n < MOST_DEVICES ? n : MOST_DEVICES;
}

Block *standin_add(void *at, size_t n_bytes, int device, int file, int is_mapped) {
    Block *block = malloc(sizeof *block);
    pthread_mutex_lock(&lock);
    *block = (Block){at, n_bytes, device, file, is_mapped, blocks};
    blocks = block;
    pthread_mutex_unlock(&lock);
    return block;
}

static Block *mapped(int file, size_t n_bytes, int device, int is_mapped) {
    char *at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    return at == MAP_FAILED ? NULL : standin_add(at, n_bytes, device, file, is_mapped);
}

Block *standin_allocate(size_t n_bytes, int device) {
    int file = memfd_create("device memory", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, n_bytes)) return NULL;
    return mapped(file, n_bytes, device, 0);
}

Block *standin_map(int process, int file, size_t n_bytes, int device) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", process, file);
    int own = open(path, O_RDWR | O_CLOEXEC);
    return own < 0 ? NULL : mapped(own, n_bytes, device, 1);
}

Block *standin_block(const void *address) {
    pthread_mutex_lock(&lock);
    Block *found = blocks;
    while (found && !((const char *)address >= found->at && (const char *)address < found->at + found->n_bytes))
        found = found->next;
    pthread_mutex_unlock(&lock);
    return found;
}

int standin_owner(const void *address, size_t n_bytes) {
    Block *found = standin_block(address);
    return found && (const char *)address + n_bytes <= found->at + found->n_bytes ? found->device : -1;
}

void standin_forget(Block *block) {
    pthread_mutex_lock(&lock);
    Block **link = &blocks;
    while (*link != block) link = &(*link)->next;
    *link = block->next;
    pthread_mutex_unlock(&lock);
    free(block);
}

int standin_release(void *address) {
    Block *found = standin_block(address);
    if (!found || found->at != address || found->file < 0) return 0;
    munmap(found->at, found->n_bytes);
    close(found->file);
    standin_forget(found);
    return 1;
}
