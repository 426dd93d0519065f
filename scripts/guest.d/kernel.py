"""A kernel with soft-RoCE from Debian's package, which is unpacked and never installed, and a first RAM disk for it."""

import gzip
import pathlib
import re
import shutil
import subprocess

# What the guest loads, in this order; what these need is found in the modules themselves.
MODULES = ["virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "crc32_generic", "rdma_rxe", "rdma_ucm", "ib_uverbs"]


class Missing(Exception):
    """Something that is not to be had here."""


def unpacked(cache):
    """The directory of an unpacked kernel package, and the kernel's release; downloaded when it is not there yet."""
    name = _package()
    cache /= "petasos-guest"
    place = cache / name
    if not place.exists():
        part = cache / f"{name}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        print(f"downloading {name} to {cache}", flush=True)
        _run("apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", name, cwd=part)
        for package in part.glob("*.deb"):
            _run("dpkg", "-x", package.name, ".", cwd=part)
            package.unlink()
        part.rename(place)
    return place, name.removeprefix("linux-image-")


def ram_disk(place, release, init, at):
    """Writes a first RAM disk: busybox, the modules, and `init`."""
    busybox = shutil.which("busybox")
    if not busybox:
        raise Missing("busybox is not here: install busybox-static")
    if _dynamic(busybox):
        raise Missing("busybox needs libraries: install busybox-static")
    modules = _in_order(place / "lib/modules" / release)
    order = "".join(f"{module.name}\n" for module in modules).encode()
    files = [("bin", None, 0o755), ("modules", None, 0o755), ("init", init.read_bytes(), 0o755)]
    files.append(("bin/busybox", pathlib.Path(busybox).read_bytes(), 0o755))
    files += [(f"modules/{module.name}", module.read_bytes(), 0o644) for module in modules]
    files.append(("modules/order", order, 0o644))
    with gzip.open(at, "wb", compresslevel=1) as out:
        for number, (name, data, mode) in enumerate(files, 1):
            out.write(_entry(number, name, data, mode))
        out.write(_entry(0, "TRAILER!!!", b"", 0))


def _package():
    """The name of the kernel package that Debian's `linux-image-amd64` stands for now."""
    if not shutil.which("apt-get"):
        raise Missing("the kernel is taken from a Debian package, and this system has no apt-get")
    shown = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], capture_output=True, text=True, check=False)
    found = re.search(r"Depends: (linux-image-\S+-amd64)", shown.stdout)
    if not found:
        raise Missing("no package linux-image-amd64: run apt-get update, on Debian for x86-64")
    return found[1]


def _in_order(tree):
    """The modules' files, each after what it needs."""
    files = {path.stem.replace("-", "_"): path for path in tree.rglob("*.ko")}
    ordered = []

    def add(name):
        path = files.get(name.replace("-", "_"))
        # What is not a module is built into the kernel.
        if path is None or path in ordered:
            return
        needs = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for need in needs[1].decode().split(",") if needs else []:
            add(need)
        ordered.append(path)

    for name in MODULES:
        add(name)
    if files.get("rdma_rxe") not in ordered:
        raise Missing(f"no rdma_rxe in {tree}")
    return ordered


def _entry(number, name, data, mode):
    """A file or a directory of a cpio archive in the format `newc`."""
    kind = 0o040000 if data is None else 0o100000
    data = data or b""
    name = name.encode() + b"\0"
    fields = [number, kind | mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
    head = b"070701" + b"".join(b"%08x" % field for field in fields) + name
    return _padded(head) + _padded(data)


def _padded(data):
    return data + bytes(-len(data) % 4)


def _dynamic(program):
    """Whether a program asks for an interpreter."""
    return b"ld-linux" in pathlib.Path(program).read_bytes()[:4096]


def _run(*command, cwd):
    ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        raise Missing(f"{' '.join(command)}: {ran.stderr.strip() or ran.stdout.strip()}")
