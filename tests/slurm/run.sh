#!/bin/bash
# make test-slurm: the job files on a SLURM of Debian's packages, which it installs if it can. Where there is no SLURM and
# no way to get one it says so and is content.
set -euo pipefail
cd "$(dirname "$0")/../.."
export PATH="$PATH:/usr/sbin:/sbin" # where the daemons are; not every login has them in its path
PACKAGES=(slurm-wlm munge libpmix-dev) # libpmix-dev: SLURM's PMIx plugin opens libpmix.so by that name

skip() { echo "test-slurm: skipped: $1"; exit 0; }

install() { # without starting the packages' own daemons
    local policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' >"$policy"
        chmod +x "$policy"
        # shellcheck disable=SC2064
        trap "rm -f $policy" RETURN
    fi
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${PACKAGES[@]}"; } \
        >/tmp/test-slurm-apt.log 2>&1
}

if ! dpkg -s "${PACKAGES[@]}" >/dev/null 2>&1; then
    command -v apt-get >/dev/null || skip "no SLURM, and no apt-get"
    [ "$(id -u)" = 0 ] || skip "no SLURM, and only root can install it"
    install || skip "apt-get cannot install ${PACKAGES[*]} (/tmp/test-slurm-apt.log)"
fi
exec "$@"
