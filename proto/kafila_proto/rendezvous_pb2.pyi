from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CreateRequest(_message.Message):
    __slots__ = ("protocol", "capacity")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    capacity: int
    def __init__(self, protocol: _Optional[int] = ..., capacity: _Optional[int] = ...) -> None: ...

class CreateReply(_message.Message):
    __slots__ = ("room", "secret", "mailbox", "idle_ttl_s")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    IDLE_TTL_S_FIELD_NUMBER: _ClassVar[int]
    room: int
    secret: bytes
    mailbox: int
    idle_ttl_s: float
    def __init__(self, room: _Optional[int] = ..., secret: _Optional[bytes] = ..., mailbox: _Optional[int] = ..., idle_ttl_s: _Optional[float] = ...) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("protocol", "room")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    room: int
    def __init__(self, protocol: _Optional[int] = ..., room: _Optional[int] = ...) -> None: ...

class JoinReply(_message.Message):
    __slots__ = ("secret", "mailbox", "admitter", "idle_ttl_s")
    SECRET_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    ADMITTER_FIELD_NUMBER: _ClassVar[int]
    IDLE_TTL_S_FIELD_NUMBER: _ClassVar[int]
    secret: bytes
    mailbox: int
    admitter: int
    idle_ttl_s: float
    def __init__(self, secret: _Optional[bytes] = ..., mailbox: _Optional[int] = ..., admitter: _Optional[int] = ..., idle_ttl_s: _Optional[float] = ...) -> None: ...

class AttendRequest(_message.Message):
    __slots__ = ("room", "mailbox", "secret")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    room: int
    mailbox: int
    secret: bytes
    def __init__(self, room: _Optional[int] = ..., mailbox: _Optional[int] = ..., secret: _Optional[bytes] = ...) -> None: ...

class Event(_message.Message):
    __slots__ = ("present", "arrived", "departed", "mail")
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    ARRIVED_FIELD_NUMBER: _ClassVar[int]
    DEPARTED_FIELD_NUMBER: _ClassVar[int]
    MAIL_FIELD_NUMBER: _ClassVar[int]
    present: Present
    arrived: int
    departed: int
    mail: Mail
    def __init__(self, present: _Optional[_Union[Present, _Mapping]] = ..., arrived: _Optional[int] = ..., departed: _Optional[int] = ..., mail: _Optional[_Union[Mail, _Mapping]] = ...) -> None: ...

class Present(_message.Message):
    __slots__ = ("mailboxes", "observed_address", "udp")
    MAILBOXES_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UDP_FIELD_NUMBER: _ClassVar[int]
    mailboxes: _containers.RepeatedScalarFieldContainer[int]
    observed_address: str
    udp: UdpPlace
    def __init__(self, mailboxes: _Optional[_Iterable[int]] = ..., observed_address: _Optional[str] = ..., udp: _Optional[_Union[UdpPlace, _Mapping]] = ...) -> None: ...

class Mail(_message.Message):
    __slots__ = ("sender", "body")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    sender: int
    body: bytes
    def __init__(self, sender: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class PostRequest(_message.Message):
    __slots__ = ("room", "mailbox", "secret", "to", "body")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    room: int
    mailbox: int
    secret: bytes
    to: _containers.RepeatedScalarFieldContainer[int]
    body: bytes
    def __init__(self, room: _Optional[int] = ..., mailbox: _Optional[int] = ..., secret: _Optional[bytes] = ..., to: _Optional[_Iterable[int]] = ..., body: _Optional[bytes] = ...) -> None: ...

class PostReply(_message.Message):
    __slots__ = ("missed",)
    MISSED_FIELD_NUMBER: _ClassVar[int]
    missed: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, missed: _Optional[_Iterable[int]] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("room", "mailbox", "secret")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    room: int
    mailbox: int
    secret: bytes
    def __init__(self, room: _Optional[int] = ..., mailbox: _Optional[int] = ..., secret: _Optional[bytes] = ...) -> None: ...

class LeaveReply(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GreetRequest(_message.Message):
    __slots__ = ("protocol",)
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    def __init__(self, protocol: _Optional[int] = ...) -> None: ...

class GreetReply(_message.Message):
    __slots__ = ("observed_address", "udp", "time_s")
    OBSERVED_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    UDP_FIELD_NUMBER: _ClassVar[int]
    TIME_S_FIELD_NUMBER: _ClassVar[int]
    observed_address: str
    udp: UdpPlace
    time_s: float
    def __init__(self, observed_address: _Optional[str] = ..., udp: _Optional[_Union[UdpPlace, _Mapping]] = ..., time_s: _Optional[float] = ...) -> None: ...

class UdpPlace(_message.Message):
    __slots__ = ("host", "port", "alternate_port", "alternate_host")
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    ALTERNATE_PORT_FIELD_NUMBER: _ClassVar[int]
    ALTERNATE_HOST_FIELD_NUMBER: _ClassVar[int]
    host: str
    port: int
    alternate_port: int
    alternate_host: str
    def __init__(self, host: _Optional[str] = ..., port: _Optional[int] = ..., alternate_port: _Optional[int] = ..., alternate_host: _Optional[str] = ...) -> None: ...

class RelayRequest(_message.Message):
    __slots__ = ("room", "mailbox", "secret", "peer")
    ROOM_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    room: int
    mailbox: int
    secret: bytes
    peer: int
    def __init__(self, room: _Optional[int] = ..., mailbox: _Optional[int] = ..., secret: _Optional[bytes] = ..., peer: _Optional[int] = ...) -> None: ...

class RelayReply(_message.Message):
    __slots__ = ("token", "ttl_s", "bytes_per_s", "key")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    TTL_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    ttl_s: float
    bytes_per_s: int
    key: bytes
    def __init__(self, token: _Optional[bytes] = ..., ttl_s: _Optional[float] = ..., bytes_per_s: _Optional[int] = ..., key: _Optional[bytes] = ...) -> None: ...

class RelayDatagram(_message.Message):
    __slots__ = ("datagram",)
    DATAGRAM_FIELD_NUMBER: _ClassVar[int]
    datagram: bytes
    def __init__(self, datagram: _Optional[bytes] = ...) -> None: ...
