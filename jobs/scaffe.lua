-- A module file for Lmod. Install scaffe into a folder of its own, with the cluster's MPI loaded:
--   python3 -m venv /opt/scaffe && /opt/scaffe/bin/pip install scaffe
-- then put this file into a folder of MODULEPATH as scaffe/VERSION.lua, and name that folder and the MPI below.
local root = "/opt/scaffe"
whatis("Name: scaffe")
whatis("Description: Caffe's nets on one core or on many ranks under MPI")
depends_on("openmpi")
prepend_path("PATH", pathJoin(root, "bin"))
local mpi = os.getenv("MPI_HOME")
if mpi then
  setenv("MPI4PY_LIBMPI", pathJoin(mpi, "lib", "libmpi.so"))
end
