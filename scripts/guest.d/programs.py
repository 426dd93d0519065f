"""What guests run: the programs and libraries of the host, and what is built here."""

import ctypes.util
import json
import os
import pathlib
import platform
import shutil
import subprocess

from kernel import Missing

ROOT = pathlib.Path(__file__).resolve().parents[2]

# Debian's package, and how one sees that it is there.
PACKAGES = {
    "qemu-system-x86": lambda: shutil.which("qemu-system-x86_64"),
    "busybox-static": lambda: shutil.which("busybox"),
    "iproute2": lambda: shutil.which("rdma", path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
    "ibverbs-providers": lambda: any(pathlib.Path("/usr/lib").glob("*/libibverbs/librxe-rdmav*.so")),
    "libfabric1": lambda: ctypes.util.find_library("fabric"),
}


def present(install):
    """Raises `Missing` if something is not here, after it was installed if that is wanted."""
    if platform.machine() != "x86_64":
        raise Missing(f"guests are for x86-64, and this is {platform.machine()}")
    missing = [name for name, found in PACKAGES.items() if not found()]
    if missing and install and shutil.which("apt-get"):
        sudo = [] if os.getuid() == 0 else ["sudo"]
        subprocess.run([*sudo, "apt-get", "update", "-qq"], check=False)
        subprocess.run([*sudo, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *missing], check=False)
        missing = [name for name in missing if not PACKAGES[name]()]
    if missing:
        raise Missing(f"not here: apt-get install {' '.join(missing)} (or: scripts/guest --install)")


def built():
    """Builds the command and the tests; the paths of their programs, by the names of variables."""
    command = _executables("build", "-p", "petasos-cli")
    tests = _executables("test", "-p", "petasos-ofi", "--no-run")
    return {
        "PETASOS": command["petasos"],
        "CONFORMANCE": tests["conformance"],
        "KEPT": tests["kept"],
        "PROCESSES": tests["processes"],
        "FORKS": tests["forks"],
    }


def _executables(*arguments):
    command = ["cargo", *arguments, "--message-format=json-render-diagnostics"]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    messages = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(b"{")]
    return {m["target"]["name"]: m["executable"] for m in messages if m.get("executable")}
