"""Guests: booted under QEMU, given jobs, watched until they have done or their time is over."""

import shlex
import shutil
import subprocess
import time

ADDRESSES = ["10.77.0.1", "10.77.0.2"]


class Guests:
    """One guest, or two on a network of their own. Each sees the host's files, and writes to `out`."""

    def __init__(self, kernel, disk, out, jobs, wanted, settings, accel):
        """`jobs` has a directory of shell scripts for each guest, `wanted` chooses among their names; `settings` are
        variables for all of them."""
        self.out, self.running = out, {}
        self.jobs = {name: sorted(job.name for job in place.iterdir() if wanted(job.name)) for name, place in jobs.items()}
        for number, (name, place) in enumerate(jobs.items()):
            shutil.copytree(place, out / f"{name}.jobs")
            own = {"HERE": ADDRESSES[number], "THERE": ADDRESSES[1 - number], "GUESTS": len(jobs)}
            own |= {"NETWORK": f"ofi+verbs://{ADDRESSES[number]}", "JOBS": " ".join(self.jobs[name])}
            lines = [f"{key}={shlex.quote(str(value))}\n" for key, value in (settings | own).items()]
            (out / f"{name}.settings").write_text("".join(lines))
        for number, name in enumerate(jobs):
            command = [
                *("nice", "-n", "10", "qemu-system-x86_64", "-accel", accel, "-M", "q35", "-cpu", "max"),
                *("-smp", "2", "-m", "3G", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
                *("-kernel", str(kernel), "-initrd", str(disk), "-serial", f"file:{out}/{name}.console"),
                *("-append", f"console=ttyS0 loglevel=4 no_timer_check panic=-1 guest={name}"),
                *_shared("host", "/", ",readonly=on"),
                *_shared("out", out, ""),
                *_network(out, number, len(jobs)),
            ]
            with open(out / f"{name}.qemu", "wb") as log:
                self.running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            # The second connects to where the first listens.
            while number + 1 < len(jobs) and self.alive() and not (out / "network").exists():
                time.sleep(0.05)

    def alive(self):
        return [name for name, guest in self.running.items() if guest.poll() is None]

    def wait(self, limit, told):
        """Until all have switched themselves off, for `limit` seconds at most. Tells of each job that ended:
        (guest, job, exit code, seconds); what did not end has `None` for both."""
        left = [(name, job) for name, jobs in self.jobs.items() for job in jobs]
        until = time.monotonic() + limit
        while True:
            over = not self.alive() or time.monotonic() > until
            for name, job in left[:]:
                end = self.out / f"{name}.{job}.end"
                if end.exists():
                    told(name, job, *(int(word) for word in end.read_text().split()))
                    left.remove((name, job))
            if over:
                break
            time.sleep(0.2)
        for name, job in left:
            told(name, job, None, None)

    def stop(self):
        for guest in self.running.values():
            guest.kill()
            guest.wait()


def _shared(tag, path, more):
    """A directory of the host that the guest sees over 9p."""
    files = f"local,id={tag},path={path},security_model=none,multidevs=remap{more}"
    return "-fsdev", files, "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"


def _network(out, number, count):
    """A card with nothing behind it, or with the other guest."""
    backend = "hubport,hubid=0,id=net"
    if count == 2:
        server = "on" if number == 0 else "off"
        backend = f"stream,id=net,server={server},addr.type=unix,addr.path={out}/network"
    return "-netdev", backend, "-device", f"virtio-net-pci,netdev=net,mac=52:54:00:77:00:0{number + 1}"
