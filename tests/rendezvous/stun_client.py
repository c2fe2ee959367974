"""What a STUN client sends and reads, for tests of the server."""

from aioice.stun import Class, Message, Method, parse_message

from kafila_rendezvous.address import Address

TRANSACTION = bytes(range(12))


def request(**attributes: object) -> bytes:
    named = {name.replace("_", "-").upper(): value for name, value in attributes.items()}
    return bytes(Message(Method.BINDING, Class.REQUEST, TRANSACTION, named))


def mapped(datagram: bytes) -> Address:
    address: Address = parse_message(datagram).attributes["XOR-MAPPED-ADDRESS"]
    return address
