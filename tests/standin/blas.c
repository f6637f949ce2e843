/* cuBLAS as far as we call it: products are checked and do nothing. */
#define _GNU_SOURCE
#include "standin.h"

#include <stdio.h>
#include <stdlib.h>

enum { FINE = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13 };
typedef struct { int device; Stream *stream; void *workspace; } Handle;

int cublasCreate_v2(Handle **made) {
    standin_note(__func__, ALLOCATION, NULL, ""); /* it takes memory */
    *made = calloc(1, sizeof **made);
    (*made)->device = standin_device();
    return FINE;
}
int cublasDestroy_v2(Handle *handle) {
    standin_note(__func__, ALLOCATION, NULL, "");
    free(handle);
    return FINE;
}
int cublasGetVersion_v2(Handle *handle, int *version) { *version = 120900; return FINE; }
int cublasSetStream_v2(Handle *handle, Stream *stream) {
    standin_note(__func__, WORK, NULL, "");
    handle->stream = stream, handle->workspace = NULL;
    return FINE;
}
int cublasSetWorkspace_v2(Handle *handle, void *workspace, size_t n_bytes) {
    int64_t call = standin_note(__func__, WORK, NULL, "");
    if (standin_owner(workspace, n_bytes) != handle->device) return standin_refuse(call, INVALID_VALUE);
    handle->workspace = workspace;
    return FINE;
}
static int product(const char *name, Handle *handle, const void *a, const void *b, const void *c) {
    int64_t call = standin_note(name, LAUNCH, handle->stream, "");
    const void *all[] = {a, b, c};
    for (int i = 0; i < 3; i++)
        if (standin_owner(all[i], 1) != handle->device) return standin_refuse(call, INVALID_VALUE);
    if (handle->device != standin_device()) return standin_refuse(call, EXECUTION_FAILED);
    if (handle->stream && handle->stream->device != handle->device) return standin_refuse(call, EXECUTION_FAILED);
    if (handle->stream && handle->stream->capture) {
        if (!handle->workspace) return standin_refuse(call, EXECUTION_FAILED); /* cuBLAS would take memory */
        handle->stream->capture->n_nodes++;
    }
    return FINE;
}
int cublasGemmEx(Handle *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int at, int lda,
                 const void *b, int bt, int ldb, const void *beta, void *c, int ct, int ldc, int compute, int how) {
    return product(__func__, handle, a, b, c);
}
int cublasGemmStridedBatchedEx(Handle *handle, int ta, int tb, int m, int n, int k, const void *alpha, const void *a,
                               int at, int lda, long long sa, const void *b, int bt, int ldb, long long sb,
                               const void *beta, void *c, int ct, int ldc, long long sc, int n_batch, int compute,
                               int how) {
    return product(__func__, handle, a, b, c);
}
