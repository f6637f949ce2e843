"""Whether the MPI takes device memory, as the library and the environment say."""


import pytest

from scaffe.collectives.cuda.messages import aware


class Library:
    """Stands for libmpi."""

    def __init__(self, open_mpi=None, mpich=None):
        if open_mpi is not None:
            self.MPIX_Query_cuda_support = lambda: open_mpi
        if mpich is not None:
            def query(kind, answer):
                answer._obj.value = mpich
                return 0
            self.MPIX_GPU_query_support = query


@pytest.mark.parametrize(("library", "kinds", "environment", "answer", "word"), [
    (Library(), None, {}, False, "cannot be asked"),
    (Library(open_mpi=1), None, {}, True, "MPIX_Query_cuda_support says yes"),
    (Library(open_mpi=0), None, {}, False, "MPIX_Query_cuda_support says no"),
    (Library(mpich=1), None, {}, True, "MPIX_GPU_query_support says yes"),
    (Library(), "mpi,system,cuda", {}, True, "mpi_memory_alloc_kinds"),
    (Library(open_mpi=1), None, {"UCX_TLS": "rc,sm"}, False, "UCX_TLS says no"),
    (Library(open_mpi=1), None, {"UCX_TLS": "rc,cuda_copy,cuda_ipc"}, True, "UCX_TLS says yes"),
    (Library(open_mpi=1), None, {"UCX_TLS": "^cuda_copy,tcp"}, False, "UCX_TLS says no"),
    (Library(open_mpi=1), None, {"UCX_TLS": "^cuda_ipc"}, True, "UCX_TLS says yes"),
    (Library(mpich=1), None, {"MPIR_CVAR_ENABLE_GPU": "0"}, False, "MPIR_CVAR_ENABLE_GPU says no"),
    (Library(mpich=1), None, {"MPICH_GPU_SUPPORT_ENABLED": "1"}, True, "MPICH_GPU_SUPPORT_ENABLED says yes"),
    (Library(open_mpi=0), None, {"SCAFFE_CUDA_AWARE": "1"}, True, "SCAFFE_CUDA_AWARE=1"),
    (Library(open_mpi=1), None, {"SCAFFE_CUDA_AWARE": "0"}, False, "SCAFFE_CUDA_AWARE=0"),
])
def test_the_mpi_is_asked(monkeypatch, library, kinds, environment, answer, word):
    monkeypatch.setattr(aware, "_loaded", lambda: library)
    monkeypatch.setattr(aware, "_info", lambda: None if kinds is None else "cuda" in kinds)
    assert aware.is_cuda_aware(environment) == answer
    assert word in aware.reason(environment)


UCX = "7f00-7f01 r-xp 0 fe:01 1 /opt/ucx/lib/libucp.so.0\n"


@pytest.mark.parametrize(("maps", "answer"), [
    ("", True), (UCX, False), (f"{UCX}7f02-7f03 r-xp 0 fe:01 2 /opt/ucx/lib/ucx/libuct_cuda.so.0\n", True)])
def test_an_mpi_library_is_not_believed_where_the_ucx_below_it_has_no_cuda(monkeypatch, maps, answer):
    monkeypatch.setattr(aware, "_loaded", lambda: Library(open_mpi=1))
    monkeypatch.setattr(aware, "_info", lambda: None)
    monkeypatch.setattr(aware, "_maps", lambda: maps)
    assert aware.is_cuda_aware({}) == answer
    assert ("libuct_cuda" in aware.reason({})) == bool(maps)
