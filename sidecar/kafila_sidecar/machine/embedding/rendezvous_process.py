"""A rendezvous in a process of its own: what strangers do to it takes nothing from the sidecar, and can't end it."""

import asyncio
import contextlib
import json
import logging
import sys
from asyncio.subprocess import PIPE, Process
from dataclasses import dataclass
from pathlib import Path

from kafila_sidecar.errors import Refused, Unavailable
from kafila_sidecar.net.candidates import is_port
from kafila_sidecar.session.keeping.file import read_whole, write_whole

log = logging.getLogger(__name__)

START_DEADLINE_S = 30.0
STOP_DEADLINE_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 10.0  # before it is started again
PREDECESSOR_S = 0.5  # whoever served at the same ports for a sidecar that died may be ending
PORTS_FILE = "ports"
STEADY_S = 60.0  # whoever ran so long starts again without a long pause


@dataclass(frozen=True, slots=True)
class ServedPorts:
    """Where the process answers, and its certificate's fingerprint."""

    port: int
    udp_ports: tuple[int, int]
    fingerprint: str


class RendezvousProcess:
    """Runs until `stop`, or until this process ends in whatever way. If it dies it is started again where it was."""

    def __init__(self, folder: Path) -> None:
        """`folder` keeps its key, and which mailboxes live."""
        self._folder = folder
        self._process: Process | None = None
        self._keeping: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        """None between its death and its next start."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> ServedPorts:
        """Where it served before, if those ports are free, so that codes and mailboxes of that time are good again.

        Raises Refused when it can't serve, Unavailable when it can't be started.
        """
        self._process, served = await self._launch_again() or await self._launch("0.0.0.0:0")
        keep_ports(self._folder, served)
        self._keeping = asyncio.create_task(self._keep(served), name="keep the rendezvous")
        return served

    async def stop(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
        if self._process is not None:
            await _end(self._process)

    async def _keep(self, served: ServedPorts) -> None:
        """Whoever died is started again: with the same key and ports, members come back by themselves."""
        loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
        while True:
            since = loop.time()
            if self._process is not None:
                status = await self._process.wait()
                log.warning("rendezvous_died status=%d", status)
            pause_s = FIRST_PAUSE_S if loop.time() - since > STEADY_S else min(2 * pause_s, LONGEST_PAUSE_S)
            await asyncio.sleep(pause_s)
            try:
                self._process, _ = await self._launch(f"0.0.0.0:{served.port}", "--udp", str(served.udp_ports[0]))
            except (Refused, Unavailable) as error:
                self._process = None
                log.warning("rendezvous_not_started code=%s", error.code)

    async def _launch_again(self) -> tuple[Process, ServedPorts] | None:
        if (ports := kept_ports(self._folder)) is None:
            return None
        for pause_s in (PREDECESSOR_S, PREDECESSOR_S, None):
            try:
                return await self._launch(f"0.0.0.0:{ports[0]}", "--udp", str(ports[1]))
            except Refused as error:
                log.info("rendezvous_ports_taken reason=%s", error)
            if pause_s is not None:
                await asyncio.sleep(pause_s)
        return None

    async def _launch(self, listen: str, *further: str) -> tuple[Process, ServedPorts]:
        command = (sys.executable, "-m", "kafila_rendezvous", "--embedded", "--data", str(self._folder))
        try:
            process = await asyncio.create_subprocess_exec(
                *command, "--listen", listen, *further, stdin=PIPE, stdout=PIPE, start_new_session=True
            )
        except OSError as error:
            raise Unavailable(f"the rendezvous can't be started: {error.strerror or error}") from error
        try:
            return process, await _served(process)
        except BaseException:
            await _end(process)
            raise


def keep_ports(folder: Path, served: ServedPorts) -> None:
    """For the next start."""
    text = json.dumps({"port": served.port, "udp_port": served.udp_ports[0]})
    try:
        write_whole(folder / PORTS_FILE, text.encode())
    except OSError as error:
        log.warning("rendezvous_ports_not_kept error=%s", error.strerror)


def kept_ports(folder: Path) -> tuple[int, int] | None:
    """TCP and first UDP port of the last run; None where they are not known."""
    try:
        kept = json.loads(read_whole(folder / PORTS_FILE) or b"null")
        ports = int(kept["port"]), int(kept["udp_port"])
    except (ValueError, TypeError, KeyError):
        return None
    return ports if all(is_port(port) for port in ports) else None


async def _served(process: Process) -> ServedPorts:
    """What its first line says."""
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_DEADLINE_S):
            said = json.loads(await process.stdout.readline())
        if "error" in said:
            raise Refused(said["error"])
        return ServedPorts(said["port"], (said["udp_ports"][0], said["udp_ports"][1]), said["fingerprint"])
    except (TimeoutError, ValueError, KeyError) as error:
        raise Unavailable("the rendezvous on this machine did not start: the sidecar's log says why") from error


async def _end(process: Process) -> None:
    """Its standard input ends, which tells it to stop; who doesn't is killed."""
    assert process.stdin is not None
    process.stdin.close()
    try:
        async with asyncio.timeout(STOP_DEADLINE_S):
            await process.wait()
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
