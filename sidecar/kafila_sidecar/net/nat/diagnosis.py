"""What this machine's network does, in words: findings from measured facts. No I/O, no clock."""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafila_planner.model.reach import Reach, classify, is_direct
from kafila_planner.model.types import Filtering, Mapping, Node, Objective
from kafila_sidecar.net.candidates import Address
from kafila_sidecar.net.nat.behaviour import Nat
from kafila_sidecar.net.portmap.mapping import MappingOffer

GOOD, NOTE, PROBLEM = "good", "note", "problem"
CLOCK_TOLERANCE_S = (
    60.0  # more is a sign of a clock that is not kept, with which TLS to a model host fails sooner or later
)
SLOW_RTT_S = 0.25

KINDS = {
    Reach.PERMISSIVE: "open networks",
    Reach.ORDINARY: "ordinary home routers",
    Reach.RESTRICTIVE: "strict networks (mobile carriers, many companies)",
    Reach.ISOLATED: "networks without UDP",
}

_SERVER = "run `kafila-rendezvous` on any server with a public address and set KAFILA_RENDEZVOUS to the line it prints"


@dataclass(frozen=True, slots=True)
class Rendezvous:
    """How the configured rendezvous was reached; `failure` is one sentence when it was not."""

    place: str  # host:port
    failure: str = ""
    rtt_s: float | None = None  # of a call over TCP
    clock_ahead_s: float | None = None  # its clock less ours


@dataclass(frozen=True, slots=True)
class Facts:
    """All that was measured."""

    addresses: tuple[str, ...]  # of this machine, useful ones, best first
    rendezvous: Rendezvous | None  # None: none is configured
    nat: Nat
    unresolved: tuple[str, ...] = ()  # names of STUN servers that led nowhere
    mapping_offer: MappingOffer | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """One line. `level`: "good", "note", "problem"; `advice` says what to change, where something can be."""

    topic: str
    level: str
    sentence: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the findings come to: kinds of peers by how they are reached, and who reaches a rendezvous here."""

    reach: Reach
    direct_with: tuple[str, ...]
    relayed_with: tuple[str, ...]
    rendezvous_here: str  # "everybody", "this network"


def diagnose(facts: Facts) -> list[Finding]:
    """All findings, in the order in which people read them."""
    return [
        _addresses(facts.addresses),
        *_rendezvous(facts.rendezvous),
        *_servers(facts),
        _udp(facts),
        *_nat(facts.nat),
        *_reached(facts),
        _rendezvous_here(facts),
    ]


def judge(facts: Facts) -> Verdict:
    """The same in values."""
    nat = facts.nat
    reach = classify(
        Node("this machine", mapping=nat.mapping, filtering=nat.filtering, udp=nat.udp is not False),
        Objective.LATENCY,
    )
    return Verdict(
        reach=reach,
        direct_with=tuple(words for kind, words in KINDS.items() if is_direct(reach, kind)),
        relayed_with=tuple(words for kind, words in KINDS.items() if not is_direct(reach, kind)),
        rendezvous_here="everybody" if _open_address(facts) else "this network",
    )


def text(findings: Sequence[Finding]) -> str:
    """Ready for printing: a table of findings, then what to change."""
    marks = {GOOD: " ", NOTE: "·", PROBLEM: "!"}
    width = max(len(finding.topic) for finding in findings)
    lines = [f"{marks[finding.level]} {finding.topic:<{width}}  {finding.sentence}" for finding in findings]
    advice = [f"  - {finding.advice}" for finding in findings if finding.advice]
    return "\n".join([*lines, *(["", "What can be changed:", *advice] if advice else [])]) + "\n"


# ---- Finding by finding


def _addresses(addresses: Sequence[str]) -> Finding:
    real = [address for address in addresses if not ipaddress.ip_address(address).is_loopback]
    if not real:
        return Finding("Addresses", PROBLEM, "this machine has no network address", "connect it to a network")
    public = [address for address in real if ipaddress.ip_address(address).is_global]
    rest = f"; public: {', '.join(public)}" if public else "; none of them is public"
    return Finding("Addresses", GOOD, ", ".join(real) + rest)


def _rendezvous(rendezvous: Rendezvous | None) -> Iterator[Finding]:
    if rendezvous is None:
        sentence = "none is configured: a session that is created here runs one on this machine"
        yield Finding("Rendezvous", NOTE, sentence)
        return
    if rendezvous.failure:
        yield Finding("Rendezvous", PROBLEM, rendezvous.failure, "see that this machine reaches it over TCP")
        return
    rtt_s = rendezvous.rtt_s or 0.0
    is_slow = rtt_s > SLOW_RTT_S
    yield Finding(
        "Rendezvous",
        NOTE if is_slow else GOOD,
        f"{rendezvous.place} answers in {_milliseconds(rtt_s)}",
        "a rendezvous nearer to the members makes relayed hops quicker" if is_slow else "",
    )
    if rendezvous.clock_ahead_s is not None:
        yield _clock(rendezvous.clock_ahead_s)


def _clock(ahead_s: float) -> Finding:
    if abs(ahead_s) <= CLOCK_TOLERANCE_S:
        return Finding("Clock", GOOD, f"within {max(1.0, abs(ahead_s)):.0f} s of the rendezvous' clock")
    which = "behind" if ahead_s > 0 else "ahead of"
    sentence = f"this machine's clock is {abs(ahead_s):,.0f} s {which} the rendezvous' clock"
    return Finding("Clock", PROBLEM, sentence, "set the clock, or let the system keep it (NTP)")


def _servers(facts: Facts) -> Iterator[Finding]:
    silent = [place(address) for address in facts.nat.silent] if facts.nat.udp else []
    for named in (*facts.unresolved, *silent):
        sentence = (
            f"the STUN server {named} {'has no usable address' if named in facts.unresolved else 'does not answer'}"
        )
        yield Finding("STUN", NOTE, sentence, f"take {named} out of KAFILA_STUN, or repair it")


def _udp(facts: Facts) -> Finding:
    nat = facts.nat
    if nat.udp is None:
        sentence = "not known: there is no STUN server to ask"
        return Finding("UDP", NOTE, sentence, "set KAFILA_RENDEZVOUS, or KAFILA_STUN to any public STUN server")
    if nat.udp:
        rtt = f", a round trip takes {_milliseconds(nat.rtt_s)}" if nat.rtt_s is not None else ""
        return Finding("UDP", GOOD, f"passes{rtt}")
    asked = ", ".join(place(address) for address in nat.silent)
    return Finding(
        "UDP",
        PROBLEM,
        f"blocked: nothing came back from {asked}; every hop goes by relay inside the TLS connection to the rendezvous",
        "let this machine send UDP, or open the rendezvous' UDP ports in its own firewall if it is the one to blame",
    )


def _nat(nat: Nat) -> Iterator[Finding]:
    if not nat.udp:
        return
    if nat.mapped is not None:
        yield _translation(nat.mapped[0], is_translated=nat.is_translated is not False)
    yield _mapping(nat)
    yield _filtering(nat)


def _translation(seen_as: str, *, is_translated: bool) -> Finding:
    if is_translated:
        return Finding("Translation", GOOD, f"seen from outside as {seen_as}")
    sentence = "none between this machine and the servers that answered"
    if ipaddress.ip_address(seen_as).is_global:
        return Finding("Translation", GOOD, sentence)
    advice = "to learn about the way to the internet too, name a public STUN server in KAFILA_STUN"
    return Finding("Translation", NOTE, sentence + ", which are on this side of any router to the internet", advice)


def _mapping(nat: Nat) -> Finding:
    sentences = {
        Mapping.ENDPOINT_INDEPENDENT: (GOOD, "endpoint-independent: the same outer port for every peer"),
        Mapping.ADDRESS_DEPENDENT: (NOTE, "address-dependent: another outer port for each peer"),
        Mapping.ADDRESS_AND_PORT_DEPENDENT: (
            NOTE,
            "address-and-port-dependent: another outer port for each destination",
        ),
        Mapping.UNKNOWN: (NOTE, "unknown: too few answers to tell"),
    }
    level, sentence = sentences[nat.mapping]
    if nat.mapping is Mapping.UNKNOWN:
        advice = "name a further STUN server in KAFILA_STUN, and see that both UDP ports of the rendezvous are open"
    elif nat.mapping is Mapping.ENDPOINT_INDEPENDENT:
        advice = ""
    else:
        advice = "a router that maps endpoint-independently (RFC 4787), or a forwarded UDP port, makes more hops direct"
    assumed = " (assumed: one server address was asked; a further server in KAFILA_STUN settles it)"
    return Finding("Mapping", level, sentence + (assumed if nat.mapping_is_assumed else ""), advice)


def _filtering(nat: Nat) -> Finding:
    sentences = {
        Filtering.ENDPOINT_INDEPENDENT: "endpoint-independent: anybody may send to a mapped port",
        Filtering.ADDRESS_DEPENDENT: "address-dependent: only addresses that were sent to may answer",
        Filtering.ADDRESS_AND_PORT_DEPENDENT: "address-and-port-dependent: only ports that were sent to may answer",
        Filtering.UNKNOWN: "unknown: no server that answered can test it",
    }
    assumed = " (at worst: one server address was asked)" if nat.filtering_is_assumed else ""
    return Finding("Filtering", GOOD, sentences[nat.filtering] + assumed)


def _reached(facts: Facts) -> Iterator[Finding]:
    verdict = judge(facts)
    if facts.nat.udp is None:
        return
    if verdict.direct_with:
        yield Finding("Directly", GOOD, f"reaches {', '.join(verdict.direct_with)}")
    level = GOOD if verdict.direct_with else NOTE
    yield Finding("By relay", level, f"reaches {', '.join(verdict.relayed_with)}")


def _rendezvous_here(facts: Facts) -> Finding:
    topic, outside = "If run here", _open_address(facts)
    if outside is not None and (offer := facts.mapping_offer) and outside == offer.outside:
        return Finding(
            topic, GOOD, f"a rendezvous could be reached by everybody: the router maps ports by {offer.protocol}"
        )
    if outside is not None:
        sentence = f"a rendezvous could be reached by everybody at {outside}, unless a firewall is in the way"
        return Finding(topic, GOOD, sentence)
    sentence = "a rendezvous could be reached from this network only, as far as can be told"
    offer = facts.mapping_offer
    if offer is not None:
        sentence += f" (the router maps ports by {offer.protocol}, and is itself behind another one)"
    return Finding(topic, NOTE, sentence, f"for members elsewhere, {_SERVER}" if facts.rendezvous is None else "")


def _open_address(facts: Facts) -> str | None:
    """A public IPv4 address that leads here; of IPv6 home routers let in nothing that was not asked for."""
    offered = [facts.mapping_offer.outside] if facts.mapping_offer and facts.mapping_offer.outside else []
    known = (*facts.addresses, *offered)
    return next((a for a in known if ":" not in a and ipaddress.ip_address(a).is_global), None)


def place(address: Address) -> str:
    """host:port for people."""
    return f"[{address[0]}]:{address[1]}" if ":" in address[0] else f"{address[0]}:{address[1]}"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1e3:.1f} ms" if seconds < 0.01 else f"{seconds * 1e3:.0f} ms"
