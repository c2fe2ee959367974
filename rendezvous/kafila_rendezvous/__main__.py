"""`kafila-rendezvous`: runs a rendezvous until it is told to stop."""

import argparse
import asyncio
import contextlib
import importlib.metadata
import json
import logging
import os
import signal
import socket
import sys
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from kafila_rendezvous.allowance import NEEDED_FILES, grpc_threads, lacking, leave_no_core
from kafila_rendezvous.certificate import KeyPair, keep_key_pair, read_key_pair
from kafila_rendezvous.config import (
    DEFAULT_FOLDER,
    DEFAULT_PORT,
    PROTOCOL,
    WILDCARDS,
    RendezvousConfig,
    RendezvousLimits,
)
from kafila_rendezvous.errors import CannotServe, RendezvousError
from kafila_rendezvous.leaving import leave
from kafila_rendezvous.memory import give_back_regularly
from kafila_rendezvous.numbers import HOST as NUMBERS_HOST
from kafila_rendezvous.series import EVERY, embedded_series
from kafila_rendezvous.server import Serving, serve

MOST_RELAY_MIB_PER_S = 1 << 20  # far more than any line carries


def main() -> NoReturn:
    """Ends this process: exit status 0 after SIGINT, SIGTERM or --version, 2 when it can't serve."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    options = _options(sys.argv[1:])
    leave_no_core()
    with contextlib.suppress(KeyboardInterrupt):
        try:
            config = _config(options)
            if lack := lacking(files=NEEDED_FILES, threads=grpc_threads()):
                raise CannotServe(lack)
            asyncio.run(_run(config, embedded=options.embedded))
        except (RendezvousError, OSError) as error:
            if options.embedded:
                print(json.dumps({"error": str(error)}), flush=True)
            print(f"kafila-rendezvous: {error}", file=sys.stderr)
            leave(2)
    leave(0)


async def _run(config: RendezvousConfig, *, embedded: bool) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, stopped.set)
    if embedded:
        loop.add_reader(sys.stdin.fileno(), _end_with_parent, stopped)
    async with serve(config) as serving:
        print(json.dumps(asdict(serving)) if embedded else "\n".join(_lines(config, serving)), flush=True)
        giving_back = asyncio.create_task(give_back_regularly(), name="give memory back")
        await stopped.wait()
        giving_back.cancel()


def _end_with_parent(stopped: asyncio.Event) -> None:
    """Standard input is a pipe whose other end only the parent has: it says nothing, and ends when the parent does."""
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stopped.set()


def _lines(config: RendezvousConfig, serving: Serving) -> list[str]:
    wildcard = config.host in WILDCARDS
    host = _own_address() if wildcard else config.host
    place = f"[{host}]:{serving.port}" if ":" in host else f"{host}:{serving.port}"
    lines = ["Members reach this rendezvous with:"]
    if serving.fingerprint is None:
        lines.append(f"  KAFILA_RENDEZVOUS=grpc+insecure://{place}")
        lines.append("There is no TLS: for this machine and private networks only.")
    else:
        lines.append(f"  KAFILA_RENDEZVOUS={place}#{serving.fingerprint}")
    one, other = serving.udp_ports
    lines.append(f"A firewall has to let in TCP port {serving.port} and UDP ports {one} and {other}.")
    if serving.metrics_port is not None:
        lines.append(f"Prometheus finds numbers at http://{NUMBERS_HOST}:{serving.metrics_port}/metrics.")
    if wildcard:
        lines.append(f"If members reach this machine under another name than {host}, write that one.")
    return lines


def _own_address() -> str:
    """The address that packets to the outside would carry; connecting a UDP socket sends none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # RFC 5737: documentation only
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostname()


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kafila-rendezvous", description="Introduces the members of Kafila sessions.")
    parser.add_argument("--version", action="store_true", help="the version, and that of the protocol")
    parser.add_argument("--listen", default=f"0.0.0.0:{DEFAULT_PORT}", metavar="HOST:PORT", help="default: %(default)s")
    parser.add_argument(
        "--udp", type=int, metavar="PORT", help="for STUN and relay, and the port after it; default: as --listen"
    )
    parser.add_argument(
        "--alternate",
        metavar="ADDRESS",
        help="a second public address of this machine, to tell NATs apart exactly; --listen then names the first",
    )
    parser.add_argument("--cert", type=Path, metavar="FILE", help="PEM certificate chain; goes with --key")
    parser.add_argument("--key", type=Path, metavar="FILE", help="PEM private key; goes with --cert")
    parser.add_argument("--insecure", action="store_true", help="no TLS; loopback and private networks only")
    parser.add_argument(
        "--data",
        type=Path,
        default=DEFAULT_FOLDER,
        metavar="FOLDER",
        help="keeps the certificate, and which mailboxes live; default: %(default)s",
    )
    parser.add_argument(
        "--relay-rate",
        type=_rate,
        default=RendezvousLimits().relay_bytes_per_address_and_s,
        metavar="MIB",
        help="what the relay carries for one address in a second, in MiB; default: 32",
    )
    parser.add_argument(
        "--metrics", type=int, metavar="PORT", help="answer Prometheus on this machine's port; default: nowhere"
    )
    parser.add_argument(
        "--embedded",
        action="store_true",
        help="for a sidecar: says its ports in one line of JSON, and ends when standard input does",
    )
    options = parser.parse_args(arguments)
    if options.version:
        print(f"kafila-rendezvous {importlib.metadata.version('kafila')}, protocol {PROTOCOL}")
        sys.exit()
    return options


def _config(options: argparse.Namespace) -> RendezvousConfig:
    host, port = _host_and_port(options.listen)
    key_pair = _key_pair(options)
    return RendezvousConfig(
        host=host,
        port=port,
        udp_port=options.udp,
        alternate=options.alternate,
        key_pair=key_pair,
        notes=options.data / "mailboxes",
        metrics_port=options.metrics,
        series=embedded_series(key_pair.fingerprint) if options.embedded and key_pair else EVERY,
        limits=RendezvousLimits(relay_bytes_per_address_and_s=options.relay_rate),
    )


def _key_pair(options: argparse.Namespace) -> KeyPair | None:
    if (options.cert is None) != (options.key is None):
        raise CannotServe("--cert and --key go together")
    if options.insecure and options.cert:
        raise CannotServe("--insecure uses no certificate: leave --cert and --key out")
    if options.insecure:
        return None
    if options.cert:
        return read_key_pair(options.cert, options.key)
    return keep_key_pair(options.data)


def _rate(text: str) -> int:
    """MiB a second as bytes. Raises ArgumentTypeError for what would carry nothing, or is no number."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= MOST_RELAY_MIB_PER_S:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of MiB from 1 to {MOST_RELAY_MIB_PER_S}")
    return int(text) << 20


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise CannotServe(f"--listen {text!r} is not HOST:PORT, as in 0.0.0.0:{DEFAULT_PORT}")
    return host.strip("[]"), int(port)


if __name__ == "__main__":
    main()
