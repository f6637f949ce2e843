# A recipe for Spack (https://spack.readthedocs.io), never built by it: put it into a repository of yours as
# packages/py_scaffe/package.py (py-scaffe/package.py before Spack 1.0), then
#   spack dev-build py-scaffe@develop    # in a checkout
from spack.package import *


class PyScaffe(PythonPackage):
    """A CUDA-aware MPI collective runtime and a Caffe-compatible trainer, after S-Caffe."""

    license("BSD-2-Clause")

    version("develop")

    variant("images", default=True, description="Read image files")
    variant("bf16", default=True, description="Train in bfloat16 on CPUs")

    depends_on("python@3.11:", type=("build", "run"))
    depends_on("py-setuptools@77.0.1:", type="build")
    depends_on("py-numpy@1.26:", type=("build", "run"))
    depends_on("py-numba@0.60:0.68", type=("build", "run"))
    depends_on("py-threadpoolctl@3.1:", type=("build", "run"))
    depends_on("py-h5py@3.8:", type=("build", "run"))
    depends_on("py-mpi4py@4.1:", type=("build", "run"))
    depends_on("py-protobuf@4.25:", type=("build", "run"))
    depends_on("py-lmdb@1.4.1:", type=("build", "run"))
    depends_on("onednn@3: cpu_runtime=omp", type="run", when="target=x86_64:")
    depends_on("opencv@4.5.5:4 +python3+imgcodecs", type="run", when="+images")
    depends_on("py-ml-dtypes@0.4:", type="run", when="+bf16")

    def setup_run_environment(self, env):
        """oneDNN is loaded by its path: the wheel that brings it elsewhere is not installed here."""
        if self.spec.satisfies("^onednn"):
            libraries = find_libraries("libdnnl", self.spec["onednn"].prefix, recursive=True)
            env.set("SCAFFE_ONEDNN", libraries[0])
