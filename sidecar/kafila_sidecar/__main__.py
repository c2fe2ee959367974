"""`kafila-sidecar`: wires every part together and serves until its parent is gone or a signal comes."""

import argparse
import asyncio
import faulthandler
import logging
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from kafila_rendezvous.allowance import NEEDED_FILES, grpc_threads, lacking, lacking_threads, leave_no_core
from kafila_rendezvous.leaving import leave
from kafila_sidecar.errors import Exhausted
from kafila_sidecar.foreign import HarmlessFormatter, line
from kafila_sidecar.lack import as_typed, keep_file_limit
from kafila_sidecar.logbook import LogBook

if TYPE_CHECKING:
    from kafila_sidecar.config import Config

log = logging.getLogger("kafila_sidecar")

STDERR = 2
PROGRAM = "kafila-sidecar"  # begins the line in which it says why it ends

START_DEADLINE_S = 90  # less than the server that started it waits, which then could only guess why
STOP_GRACE_S = 2.0  # for calls, while sessions are being left
STOP_DEADLINE_S = 10  # then the system ends this process, whatever MLX is busy with


def main(argv: list[str] | None = None) -> NoReturn:
    """Runs, and ends this process; what it can't run without ends it in one sentence."""
    status = 0
    try:
        _serve(argv)
    except Exception as error:  # noqa: BLE001  # however it ends
        status = 1
        lack = as_typed(error)
        if lack is None and not isinstance(error, OSError):
            traceback.print_exc()
        else:
            print(f"{PROGRAM}: {line(str(lack or error))}", file=sys.stderr)
    leave(status)


def _serve(argv: list[str] | None) -> None:
    from kafila_sidecar.config import Config, default_data

    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Runs this machine's part of Kafila sessions; `ollama serve` starts it."
    )
    parser.add_argument("--version", action=ShowVersions, nargs=0, help="show what runs here and exit")
    parser.add_argument("--socket", type=Path, required=True, help="unix socket to serve on (made with mode 0600)")
    parser.add_argument(
        "--data", type=Path, default=default_data(os.environ), help="folder for weights and what else is kept"
    )
    parser.add_argument("--log-level", default=os.environ.get("KAFILA_LOG_LEVEL", "INFO"))
    options = parser.parse_args(argv)
    leave_no_core()
    faulthandler.enable()  # what a library ends in native code says where, since there is no core
    start_in_time()
    told = logging.StreamHandler(sys.stderr)
    told.setFormatter(HarmlessFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=options.log_level.upper(), handlers=[told])
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # it shows addresses, which may be signed
    logging.getLogger("quic").setLevel(logging.ERROR)  # it warns of every packet of a stranger
    logging.getLogger("zeroconf").setLevel(logging.ERROR)  # it shows a traceback for each network that is gone
    config = Config.read(os.environ, socket_path=options.socket, data=options.data.absolute())
    keep_file_limit()
    if sentence := lacking(files=NEEDED_FILES, threads=grpc_threads()):
        raise Exhausted(sentence)
    asyncio.run(run(config, keep_log(config.data / "logs")))


def keep_log(folder: Path) -> LogBook | None:
    """From now on what is logged is kept there too; None where that can't be."""
    try:
        book = LogBook(folder, lambda: ())
    except OSError as error:
        log.warning("log_not_kept error=%s", error.strerror)
        return None
    logging.getLogger().addHandler(book)
    return book


def start_in_time() -> None:
    """Ends this process in words unless `has_started` is called in time. With too little memory, threads that die as
    they begin leave who started them waiting for ever."""
    signal.signal(signal.SIGALRM, _too_late)
    signal.alarm(START_DEADLINE_S)


def has_started() -> None:
    """This process serves."""
    signal.alarm(0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _too_late(*_: object) -> None:
    """At once, whatever hangs: an exception would wait for the threads that don't come."""
    why = "this machine is too busy, or this process gets too little memory (`ulimit -v`)"
    os.write(STDERR, f"{PROGRAM}: it did not start within {START_DEADLINE_S} s: {why}\n".encode())
    os._exit(1)


class ShowVersions(argparse.Action):
    """`--version`; reads the versions only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from kafila_sidecar.versions import versions

        print(versions())
        parser.exit()


async def run(config: "Config", book: LogBook | None = None) -> None:
    """Serves until standard input ends (the parent is gone) or SIGTERM or SIGINT comes."""
    from kafila_sidecar.machine.node import open_node
    from kafila_sidecar.service import start_server

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    _watch_parent(loop, stop)
    async with open_node(config) as node:
        if book is not None:
            book.names = node.names
        if sentence := lacking_threads(grpc_threads()):  # what was imported took addresses; gRPC retries, and aborts
            raise Exhausted(sentence)
        server = await start_server(node, config.socket)
        has_started()
        log.info("sidecar_ready")
        try:
            await stop.wait()
        finally:
            signal.alarm(STOP_DEADLINE_S)
            node.stop_all()
            await server.stop(STOP_GRACE_S)
            config.socket.unlink(missing_ok=True)


def _watch_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """Our parent holds our standard input open; its end is our end. A terminal or /dev/null says nothing."""
    if sys.stdin is None or not _is_pipe(stdin := sys.stdin.fileno()):
        return

    def readable() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            stop.set()

    loop.add_reader(stdin, readable)


def _is_pipe(descriptor: int) -> bool:
    from stat import S_ISFIFO, S_ISSOCK

    mode = os.fstat(descriptor).st_mode
    return S_ISFIFO(mode) or S_ISSOCK(mode)


if __name__ == "__main__":
    main()
