// cuBLAS's C functions that we call; what they do is Python's, called back with the function's name and its numbers.
#include <cstddef>

typedef int (*Callback)(const char* name, const long long* numbers);
static Callback callback;

template <class... N> static int call(const char* name, N... numbers) {
    long long all[] = {(long long)numbers...};
    return callback(name, all);
}

extern "C" {
void set_callback(Callback wanted) { callback = wanted; }

int cublasCreate_v2(void** handle) {
    static size_t n_handles;
    *handle = (void*)++n_handles;
    return call("create", *handle);
}
int cublasSetStream_v2(void* handle, void* stream) { return call("setStream", handle, stream); }
int cublasSetWorkspace_v2(void* handle, void* place, size_t n_bytes) {
    return call("setWorkspace", handle, place, n_bytes);
}
int cublasGemmEx(void* handle, int transa, int transb, int m, int n, int k, const void* alpha, const void* a, int a_type,
                 int lda, const void* b, int b_type, int ldb, const void* beta, void* c, int c_type, int ldc, int compute,
                 int algorithm) {
    return call("gemm", handle, transa, transb, m, n, k, alpha, a, a_type, lda, 0, b, b_type, ldb, 0, beta, c, c_type,
                ldc, 0, 1, compute, algorithm);
}
int cublasGemmStridedBatchedEx(void* handle, int transa, int transb, int m, int n, int k, const void* alpha,
                               const void* a, int a_type, int lda, long long a_step, const void* b, int b_type, int ldb,
                               long long b_step, const void* beta, void* c, int c_type, int ldc, long long c_step,
                               int n_batch, int compute, int algorithm) {
    return call("gemm", handle, transa, transb, m, n, k, alpha, a, a_type, lda, a_step, b, b_type, ldb, b_step, beta, c,
                c_type, ldc, c_step, n_batch, compute, algorithm);
}
}
