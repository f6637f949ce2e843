/* What the stand-in's libraries share: the record of calls, threads' devices, streams, and what memory is a device's. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define SHARED __attribute__((visibility("default")))

/* Why a call matters to who reads the record. */
enum Kind { QUESTION = 'q', WORK = 'w', ALLOCATION = 'a', FROM_HOST = 'h', LAUNCH = 'k' };

typedef struct {
    char name[40], detail[72];
    int64_t thread;      /* the system's number of it */
    int32_t device;      /* this thread's; -1: it has chosen none */
    int32_t kind;
    int32_t capturing;   /* 1: this thread has a capture under way, 2: so has the call's stream, 3: both */
    int32_t is_refused;  /* the call is one that CUDA would refuse */
} Call;

typedef struct Graph { int64_t n_nodes; int is_open; } Graph;
typedef struct Stream { int device; unsigned flags; int priority; Graph *capture; } Stream;
typedef struct Event { int device; Graph *capture; } Event;

/* Adds a call to the record. All but questions make a context where the thread has none. Returns its place. */
SHARED int64_t standin_note(const char *name, int kind, Stream *stream, const char *detail);
/* Marks a call as refused; returns the code, so that it can be returned in turn. */
SHARED int standin_refuse(int64_t call, int code);
SHARED void standin_choose(int device);
SHARED int standin_device(void); /* this thread's; 0 where it has chosen none, as in CUDA */
SHARED int standin_n_devices(void);
SHARED int standin_has_context(int device);
/* Begins (+1) or ends (-1) a capture of this thread. */
SHARED void standin_capture(int change);
/* First in every call that stands in for one of CUDA's, and its end where CUDA would refuse it. */
#define NOTE(kind, stream, ...) char said[72]; snprintf(said, sizeof said, __VA_ARGS__); \
    int64_t call = standin_note(__func__, kind, (Stream *)(stream), said); (void)call
#define REFUSE(code) return standin_refuse(call, code)

/* The device in whose memory [address, address + n_bytes) lies whole; -1: in none's. */
SHARED int standin_owner(const void *address, size_t n_bytes);
SHARED Call *standin_calls(int64_t *n_calls);
/* Called, in the thread, for each call that breaks a rule; where it came from is then still to be seen. */
SHARED void standin_watch(void (*told)(int64_t call));

/* Addresses of a device's memory: an allocation's, another process' (is_mapped), or pages' (they have no file here). */
typedef struct Block { char *at; size_t n_bytes; int device, file, is_mapped; struct Block *next; } Block;
SHARED Block *standin_allocate(size_t n_bytes, int device);
SHARED Block *standin_map(int process, int file, size_t n_bytes, int device);
SHARED Block *standin_add(void *at, size_t n_bytes, int device, int file, int is_mapped);
SHARED void standin_forget(Block *block);
SHARED Block *standin_block(const void *address);
SHARED int standin_release(void *address);
