from kafila_proto import ring_pb2 as _ring_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class KeptSession(_message.Message):
    __slots__ = ("session", "name", "signing_key", "certificate", "agreement_key", "log", "key", "words", "places", "lend_bytes", "typed", "stub_model", "formed", "seen_at", "note", "spare_bytes", "model", "reach", "rests_until")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIGNING_KEY_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_KEY_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    WORDS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    LEND_BYTES_FIELD_NUMBER: _ClassVar[int]
    TYPED_FIELD_NUMBER: _ClassVar[int]
    STUB_MODEL_FIELD_NUMBER: _ClassVar[int]
    FORMED_FIELD_NUMBER: _ClassVar[int]
    SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    SPARE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    RESTS_UNTIL_FIELD_NUMBER: _ClassVar[int]
    session: bytes
    name: str
    signing_key: bytes
    certificate: bytes
    agreement_key: bytes
    log: _containers.RepeatedCompositeFieldContainer[_ring_pb2.SignedEntry]
    key: bytes
    words: _containers.RepeatedScalarFieldContainer[str]
    places: _containers.RepeatedCompositeFieldContainer[KeptPlace]
    lend_bytes: int
    typed: str
    stub_model: bytes
    formed: bool
    seen_at: float
    note: str
    spare_bytes: int
    model: str
    reach: _containers.RepeatedCompositeFieldContainer[KeptReach]
    rests_until: float
    def __init__(self, session: _Optional[bytes] = ..., name: _Optional[str] = ..., signing_key: _Optional[bytes] = ..., certificate: _Optional[bytes] = ..., agreement_key: _Optional[bytes] = ..., log: _Optional[_Iterable[_Union[_ring_pb2.SignedEntry, _Mapping]]] = ..., key: _Optional[bytes] = ..., words: _Optional[_Iterable[str]] = ..., places: _Optional[_Iterable[_Union[KeptPlace, _Mapping]]] = ..., lend_bytes: _Optional[int] = ..., typed: _Optional[str] = ..., stub_model: _Optional[bytes] = ..., formed: _Optional[bool] = ..., seen_at: _Optional[float] = ..., note: _Optional[str] = ..., spare_bytes: _Optional[int] = ..., model: _Optional[str] = ..., reach: _Optional[_Iterable[_Union[KeptReach, _Mapping]]] = ..., rests_until: _Optional[float] = ...) -> None: ...

class KeptReach(_message.Message):
    __slots__ = ("fingerprint", "candidates")
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    fingerprint: bytes
    candidates: _ring_pb2.Candidates
    def __init__(self, fingerprint: _Optional[bytes] = ..., candidates: _Optional[_Union[_ring_pb2.Candidates, _Mapping]] = ...) -> None: ...

class KeptPlace(_message.Message):
    __slots__ = ("address", "room", "mailbox", "host", "secret", "first")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    SECRET_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    address: str
    room: int
    mailbox: int
    host: int
    secret: bytes
    first: bool
    def __init__(self, address: _Optional[str] = ..., room: _Optional[int] = ..., mailbox: _Optional[int] = ..., host: _Optional[int] = ..., secret: _Optional[bytes] = ..., first: _Optional[bool] = ...) -> None: ...
