"""Guests: booted under QEMU, given jobs, watched until they are done or their time is over."""

import shutil
import subprocess
import time

ADDRESS = "10.77.0.{}"


class Guests:
    """Some guests on one network. Each has the host's file system read-only, and `out` to write to."""

    def __init__(self, kernel, disk, out, names, accel):
        self.out, self.names, self.running = out, names, {}
        for number, name in enumerate(names, 1):
            peers = ",".join(other for other in names if other != name)
            words = f"console=ttyS0 no_timer_check panic=-1 guest.name={name} guest.address={ADDRESS.format(number)}"
            words += f" guest.peers={peers}" if peers else ""
            command = [
                *("nice", "-n", "10", "qemu-system-x86_64", "-accel", accel, "-M", "q35", "-cpu", "max", "-smp", "2", "-m", "2G"),
                *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-monitor", "none"),
                *("-kernel", str(kernel), "-initrd", str(disk), "-append", words),
                *("-serial", f"file:{out}/{name}.console"),
                *_shared("host", "/", ",readonly=on"),
                *_shared("out", out, ""),
                *_network(out, number, len(names)),
            ]
            log = open(out / f"{name}.qemu", "wb")
            self.running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            # The second connects to where the first listens.
            while number < len(names) and self.running[name].poll() is None and not (out / "net").exists():
                time.sleep(0.05)

    def wait(self, jobs, limit, told):
        """Until all have switched themselves off. Says of each job what it returned; `None` for those that did not
        end within `limit` seconds, or whose guest died."""
        codes, end = {}, time.monotonic() + limit
        while True:
            alive = [name for name, guest in self.running.items() if guest.poll() is None]
            for name in self.names:
                for job in jobs[name]:
                    code = self.out / f"{name}.{job}.code"
                    if (name, job) not in codes and code.exists():
                        codes[name, job] = int(code.read_text())
                        told(name, job, codes[name, job])
            if not alive or time.monotonic() > end:
                return {(n, j): codes.get((n, j)) for n in self.names for j in jobs[n]}
            time.sleep(0.2)

    def stop(self):
        for guest in self.running.values():
            if guest.poll() is None:
                guest.kill()
            guest.wait()


def _shared(tag, path, more):
    """A directory of the host that the guest sees over 9p."""
    fs = f"local,id={tag},path={path},security_model=none,multidevs=remap{more}"
    return "-fsdev", fs, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"


def _network(out, number, count):
    """A card with nothing behind it, or with the other guest."""
    backend = "hubport,hubid=0,id=net"
    if count == 2:
        server = "on" if number == 1 else "off"
        backend = f"stream,id=net,server={server},addr.type=unix,addr.path={out}/net"
    return "-netdev", backend, "-device", f"virtio-net-pci,netdev=net,mac=52:54:00:77:00:{number:02x}"


def missing():
    """What is to be installed before a guest can run."""
    return None if shutil.which("qemu-system-x86_64") else "QEMU is not here: install qemu-system-x86"
