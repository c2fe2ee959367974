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
    __slots__ = ("mailboxes", "observed_address")
    MAILBOXES_FIELD_NUMBER: _ClassVar[int]
    OBSERVED_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    mailboxes: _containers.RepeatedScalarFieldContainer[int]
    observed_address: str
    def __init__(self, mailboxes: _Optional[_Iterable[int]] = ..., observed_address: _Optional[str] = ...) -> None: ...

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
