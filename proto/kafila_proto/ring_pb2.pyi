from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Parcel(_message.Message):
    __slots__ = ("admission", "envelope")
    ADMISSION_FIELD_NUMBER: _ClassVar[int]
    ENVELOPE_FIELD_NUMBER: _ClassVar[int]
    admission: Admission
    envelope: Sealed
    def __init__(self, admission: _Optional[_Union[Admission, _Mapping]] = ..., envelope: _Optional[_Union[Sealed, _Mapping]] = ...) -> None: ...

class Admission(_message.Message):
    __slots__ = ("start", "reply", "confirm", "offer", "enrol", "admitted", "refusal", "refused", "knock", "challenge", "proof", "welcome", "wait", "moved_to")
    START_FIELD_NUMBER: _ClassVar[int]
    REPLY_FIELD_NUMBER: _ClassVar[int]
    CONFIRM_FIELD_NUMBER: _ClassVar[int]
    OFFER_FIELD_NUMBER: _ClassVar[int]
    ENROL_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    KNOCK_FIELD_NUMBER: _ClassVar[int]
    CHALLENGE_FIELD_NUMBER: _ClassVar[int]
    PROOF_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    WAIT_FIELD_NUMBER: _ClassVar[int]
    MOVED_TO_FIELD_NUMBER: _ClassVar[int]
    start: PakeStart
    reply: PakeReply
    confirm: PakeConfirm
    offer: Sealed
    enrol: Sealed
    admitted: Sealed
    refusal: Refusal
    refused: Sealed
    knock: Knock
    challenge: Challenge
    proof: Sealed
    welcome: Sealed
    wait: Sealed
    moved_to: Sealed
    def __init__(self, start: _Optional[_Union[PakeStart, _Mapping]] = ..., reply: _Optional[_Union[PakeReply, _Mapping]] = ..., confirm: _Optional[_Union[PakeConfirm, _Mapping]] = ..., offer: _Optional[_Union[Sealed, _Mapping]] = ..., enrol: _Optional[_Union[Sealed, _Mapping]] = ..., admitted: _Optional[_Union[Sealed, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., refused: _Optional[_Union[Sealed, _Mapping]] = ..., knock: _Optional[_Union[Knock, _Mapping]] = ..., challenge: _Optional[_Union[Challenge, _Mapping]] = ..., proof: _Optional[_Union[Sealed, _Mapping]] = ..., welcome: _Optional[_Union[Sealed, _Mapping]] = ..., wait: _Optional[_Union[Sealed, _Mapping]] = ..., moved_to: _Optional[_Union[Sealed, _Mapping]] = ...) -> None: ...

class Knock(_message.Message):
    __slots__ = ("ephemeral", "token")
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    ephemeral: bytes
    token: bytes
    def __init__(self, ephemeral: _Optional[bytes] = ..., token: _Optional[bytes] = ...) -> None: ...

class Challenge(_message.Message):
    __slots__ = ("ephemeral", "sealed")
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    ephemeral: bytes
    sealed: Sealed
    def __init__(self, ephemeral: _Optional[bytes] = ..., sealed: _Optional[_Union[Sealed, _Mapping]] = ...) -> None: ...

class ChallengeBody(_message.Message):
    __slots__ = ("log_length", "log_head", "name", "signature")
    LOG_LENGTH_FIELD_NUMBER: _ClassVar[int]
    LOG_HEAD_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    log_length: int
    log_head: bytes
    name: str
    signature: bytes
    def __init__(self, log_length: _Optional[int] = ..., log_head: _Optional[bytes] = ..., name: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...

class ProofBody(_message.Message):
    __slots__ = ("signature", "version", "planner", "mlx_lm_version", "protocol", "oldest_protocol", "entries", "vote", "leaves")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PLANNER_FIELD_NUMBER: _ClassVar[int]
    MLX_LM_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    VOTE_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    version: str
    planner: int
    mlx_lm_version: str
    protocol: int
    oldest_protocol: int
    entries: _containers.RepeatedCompositeFieldContainer[SignedEntry]
    vote: bytes
    leaves: bool
    def __init__(self, signature: _Optional[bytes] = ..., version: _Optional[str] = ..., planner: _Optional[int] = ..., mlx_lm_version: _Optional[str] = ..., protocol: _Optional[int] = ..., oldest_protocol: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[SignedEntry, _Mapping]]] = ..., vote: _Optional[bytes] = ..., leaves: _Optional[bool] = ...) -> None: ...

class WelcomeBody(_message.Message):
    __slots__ = ("name", "key", "log", "signature")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    name: str
    key: bytes
    log: _containers.RepeatedCompositeFieldContainer[SignedEntry]
    signature: bytes
    def __init__(self, name: _Optional[str] = ..., key: _Optional[bytes] = ..., log: _Optional[_Iterable[_Union[SignedEntry, _Mapping]]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class WaitBody(_message.Message):
    __slots__ = ("signature",)
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    signature: bytes
    def __init__(self, signature: _Optional[bytes] = ...) -> None: ...

class RefusedBody(_message.Message):
    __slots__ = ("refusal", "log", "signature")
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    refusal: Refusal
    log: _containers.RepeatedCompositeFieldContainer[SignedEntry]
    signature: bytes
    def __init__(self, refusal: _Optional[_Union[Refusal, _Mapping]] = ..., log: _Optional[_Iterable[_Union[SignedEntry, _Mapping]]] = ..., signature: _Optional[bytes] = ...) -> None: ...

class CallBody(_message.Message):
    __slots__ = ("number", "is_answer", "rooms", "padding", "is_in", "takeovers")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    IS_ANSWER_FIELD_NUMBER: _ClassVar[int]
    ROOMS_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    IS_IN_FIELD_NUMBER: _ClassVar[int]
    TAKEOVERS_FIELD_NUMBER: _ClassVar[int]
    number: bytes
    is_answer: bool
    rooms: _containers.RepeatedCompositeFieldContainer[SessionRoom]
    padding: bytes
    is_in: bool
    takeovers: int
    def __init__(self, number: _Optional[bytes] = ..., is_answer: _Optional[bool] = ..., rooms: _Optional[_Iterable[_Union[SessionRoom, _Mapping]]] = ..., padding: _Optional[bytes] = ..., is_in: _Optional[bool] = ..., takeovers: _Optional[int] = ...) -> None: ...

class SessionRoom(_message.Message):
    __slots__ = ("address", "room")
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    address: str
    room: int
    def __init__(self, address: _Optional[str] = ..., room: _Optional[int] = ...) -> None: ...

class PakeStart(_message.Message):
    __slots__ = ("protocol", "message", "oldest_protocol")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    message: bytes
    oldest_protocol: int
    def __init__(self, protocol: _Optional[int] = ..., message: _Optional[bytes] = ..., oldest_protocol: _Optional[int] = ...) -> None: ...

class PakeReply(_message.Message):
    __slots__ = ("message", "protocol")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    message: bytes
    protocol: int
    def __init__(self, message: _Optional[bytes] = ..., protocol: _Optional[int] = ...) -> None: ...

class PakeConfirm(_message.Message):
    __slots__ = ("mac",)
    MAC_FIELD_NUMBER: _ClassVar[int]
    mac: bytes
    def __init__(self, mac: _Optional[bytes] = ...) -> None: ...

class Sealed(_message.Message):
    __slots__ = ("nonce", "ciphertext", "key", "pair")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    CIPHERTEXT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    PAIR_FIELD_NUMBER: _ClassVar[int]
    nonce: bytes
    ciphertext: bytes
    key: int
    pair: int
    def __init__(self, nonce: _Optional[bytes] = ..., ciphertext: _Optional[bytes] = ..., key: _Optional[int] = ..., pair: _Optional[int] = ...) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("code", "sentence")
    CODE_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    code: str
    sentence: str
    def __init__(self, code: _Optional[str] = ..., sentence: _Optional[str] = ...) -> None: ...

class OfferBody(_message.Message):
    __slots__ = ("confirm_mac", "session", "terms", "host", "members_present", "version", "planner", "mlx_lm_version", "protocol", "oldest_protocol", "rendezvous_fingerprint")
    CONFIRM_MAC_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_PRESENT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PLANNER_FIELD_NUMBER: _ClassVar[int]
    MLX_LM_VERSION_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    confirm_mac: bytes
    session: bytes
    terms: SessionTerms
    host: str
    members_present: int
    version: str
    planner: int
    mlx_lm_version: str
    protocol: int
    oldest_protocol: int
    rendezvous_fingerprint: str
    def __init__(self, confirm_mac: _Optional[bytes] = ..., session: _Optional[bytes] = ..., terms: _Optional[_Union[SessionTerms, _Mapping]] = ..., host: _Optional[str] = ..., members_present: _Optional[int] = ..., version: _Optional[str] = ..., planner: _Optional[int] = ..., mlx_lm_version: _Optional[str] = ..., protocol: _Optional[int] = ..., oldest_protocol: _Optional[int] = ..., rendezvous_fingerprint: _Optional[str] = ...) -> None: ...

class EnrolBody(_message.Message):
    __slots__ = ("name", "certificate", "version", "mlx_lm_version", "agreement", "planner", "protocol", "oldest_protocol")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MLX_LM_VERSION_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    PLANNER_FIELD_NUMBER: _ClassVar[int]
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    OLDEST_PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    name: str
    certificate: bytes
    version: str
    mlx_lm_version: str
    agreement: bytes
    planner: int
    protocol: int
    oldest_protocol: int
    def __init__(self, name: _Optional[str] = ..., certificate: _Optional[bytes] = ..., version: _Optional[str] = ..., mlx_lm_version: _Optional[str] = ..., agreement: _Optional[bytes] = ..., planner: _Optional[int] = ..., protocol: _Optional[int] = ..., oldest_protocol: _Optional[int] = ...) -> None: ...

class AdmittedBody(_message.Message):
    __slots__ = ("name", "key", "log")
    NAME_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    name: str
    key: bytes
    log: _containers.RepeatedCompositeFieldContainer[SignedEntry]
    def __init__(self, name: _Optional[str] = ..., key: _Optional[bytes] = ..., log: _Optional[_Iterable[_Union[SignedEntry, _Mapping]]] = ...) -> None: ...

class SessionTerms(_message.Message):
    __slots__ = ("model", "revision", "members_wanted", "context_tokens", "concurrency", "strategy", "objective", "require", "exclude", "weight_bytes", "rendezvous_at_host", "folder", "describing_bytes", "quantization", "quantize_bits", "replanning", "no_guesses", "draft", "draft_revision", "draft_bytes")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_WANTED_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_AT_HOST_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    DESCRIBING_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_BITS_FIELD_NUMBER: _ClassVar[int]
    REPLANNING_FIELD_NUMBER: _ClassVar[int]
    NO_GUESSES_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    DRAFT_REVISION_FIELD_NUMBER: _ClassVar[int]
    DRAFT_BYTES_FIELD_NUMBER: _ClassVar[int]
    model: str
    revision: str
    members_wanted: int
    context_tokens: int
    concurrency: int
    strategy: str
    objective: str
    require: _containers.RepeatedScalarFieldContainer[str]
    exclude: _containers.RepeatedScalarFieldContainer[str]
    weight_bytes: int
    rendezvous_at_host: bool
    folder: bool
    describing_bytes: int
    quantization: str
    quantize_bits: int
    replanning: str
    no_guesses: bool
    draft: str
    draft_revision: str
    draft_bytes: int
    def __init__(self, model: _Optional[str] = ..., revision: _Optional[str] = ..., members_wanted: _Optional[int] = ..., context_tokens: _Optional[int] = ..., concurrency: _Optional[int] = ..., strategy: _Optional[str] = ..., objective: _Optional[str] = ..., require: _Optional[_Iterable[str]] = ..., exclude: _Optional[_Iterable[str]] = ..., weight_bytes: _Optional[int] = ..., rendezvous_at_host: _Optional[bool] = ..., folder: _Optional[bool] = ..., describing_bytes: _Optional[int] = ..., quantization: _Optional[str] = ..., quantize_bits: _Optional[int] = ..., replanning: _Optional[str] = ..., no_guesses: _Optional[bool] = ..., draft: _Optional[str] = ..., draft_revision: _Optional[str] = ..., draft_bytes: _Optional[int] = ...) -> None: ...

class LogEntry(_message.Message):
    __slots__ = ("index", "previous", "session", "founded", "admitted", "removed", "taken_over", "locked", "returned", "replanning")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PREVIOUS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    FOUNDED_FIELD_NUMBER: _ClassVar[int]
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    TAKEN_OVER_FIELD_NUMBER: _ClassVar[int]
    LOCKED_FIELD_NUMBER: _ClassVar[int]
    RETURNED_FIELD_NUMBER: _ClassVar[int]
    REPLANNING_FIELD_NUMBER: _ClassVar[int]
    index: int
    previous: bytes
    session: bytes
    founded: Founded
    admitted: Admitted
    removed: Removed
    taken_over: TakenOver
    locked: Locked
    returned: Returned
    replanning: Replanning
    def __init__(self, index: _Optional[int] = ..., previous: _Optional[bytes] = ..., session: _Optional[bytes] = ..., founded: _Optional[_Union[Founded, _Mapping]] = ..., admitted: _Optional[_Union[Admitted, _Mapping]] = ..., removed: _Optional[_Union[Removed, _Mapping]] = ..., taken_over: _Optional[_Union[TakenOver, _Mapping]] = ..., locked: _Optional[_Union[Locked, _Mapping]] = ..., returned: _Optional[_Union[Returned, _Mapping]] = ..., replanning: _Optional[_Union[Replanning, _Mapping]] = ...) -> None: ...

class Founded(_message.Message):
    __slots__ = ("terms", "host")
    TERMS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    terms: SessionTerms
    host: Admitted
    def __init__(self, terms: _Optional[_Union[SessionTerms, _Mapping]] = ..., host: _Optional[_Union[Admitted, _Mapping]] = ...) -> None: ...

class Admitted(_message.Message):
    __slots__ = ("name", "certificate", "mailbox", "agreement")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATE_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    AGREEMENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    certificate: bytes
    mailbox: int
    agreement: bytes
    def __init__(self, name: _Optional[str] = ..., certificate: _Optional[bytes] = ..., mailbox: _Optional[int] = ..., agreement: _Optional[bytes] = ...) -> None: ...

class Removed(_message.Message):
    __slots__ = ("name", "reason", "rekey")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REKEY_FIELD_NUMBER: _ClassVar[int]
    name: str
    reason: str
    rekey: bytes
    def __init__(self, name: _Optional[str] = ..., reason: _Optional[str] = ..., rekey: _Optional[bytes] = ...) -> None: ...

class TakenOver(_message.Message):
    __slots__ = ("successor", "reason", "resignation", "ballots", "standing", "rekey")
    SUCCESSOR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RESIGNATION_FIELD_NUMBER: _ClassVar[int]
    BALLOTS_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    REKEY_FIELD_NUMBER: _ClassVar[int]
    successor: str
    reason: str
    resignation: bytes
    ballots: _containers.RepeatedCompositeFieldContainer[Ballot]
    standing: int
    rekey: bytes
    def __init__(self, successor: _Optional[str] = ..., reason: _Optional[str] = ..., resignation: _Optional[bytes] = ..., ballots: _Optional[_Iterable[_Union[Ballot, _Mapping]]] = ..., standing: _Optional[int] = ..., rekey: _Optional[bytes] = ...) -> None: ...

class Ballot(_message.Message):
    __slots__ = ("voter", "signature")
    VOTER_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    voter: str
    signature: bytes
    def __init__(self, voter: _Optional[str] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Returned(_message.Message):
    __slots__ = ("admitted", "mailbox")
    ADMITTED_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    admitted: int
    mailbox: int
    def __init__(self, admitted: _Optional[int] = ..., mailbox: _Optional[int] = ...) -> None: ...

class Locked(_message.Message):
    __slots__ = ("locked",)
    LOCKED_FIELD_NUMBER: _ClassVar[int]
    locked: bool
    def __init__(self, locked: _Optional[bool] = ...) -> None: ...

class Replanning(_message.Message):
    __slots__ = ("replanning",)
    REPLANNING_FIELD_NUMBER: _ClassVar[int]
    replanning: str
    def __init__(self, replanning: _Optional[str] = ...) -> None: ...

class SignedEntry(_message.Message):
    __slots__ = ("entry", "signature", "rekey")
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    REKEY_FIELD_NUMBER: _ClassVar[int]
    entry: bytes
    signature: bytes
    rekey: bytes
    def __init__(self, entry: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., rekey: _Optional[bytes] = ...) -> None: ...

class Rekey(_message.Message):
    __slots__ = ("ephemeral", "keys")
    EPHEMERAL_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ephemeral: bytes
    keys: _containers.RepeatedCompositeFieldContainer[WrappedKey]
    def __init__(self, ephemeral: _Optional[bytes] = ..., keys: _Optional[_Iterable[_Union[WrappedKey, _Mapping]]] = ...) -> None: ...

class WrappedKey(_message.Message):
    __slots__ = ("member", "sealed")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    member: int
    sealed: bytes
    def __init__(self, member: _Optional[int] = ..., sealed: _Optional[bytes] = ...) -> None: ...

class Envelope(_message.Message):
    __slots__ = ("sender", "sequence", "control", "signature", "log_length", "log_head")
    SENDER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CONTROL_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    LOG_LENGTH_FIELD_NUMBER: _ClassVar[int]
    LOG_HEAD_FIELD_NUMBER: _ClassVar[int]
    sender: str
    sequence: int
    control: bytes
    signature: bytes
    log_length: int
    log_head: bytes
    def __init__(self, sender: _Optional[str] = ..., sequence: _Optional[int] = ..., control: _Optional[bytes] = ..., signature: _Optional[bytes] = ..., log_length: _Optional[int] = ..., log_head: _Optional[bytes] = ...) -> None: ...

class Control(_message.Message):
    __slots__ = ("epoch", "entries", "capability", "candidates", "plan", "link", "go", "progress", "ready", "fault", "goodbye", "measured", "vote", "standing", "ask", "holds", "draws", "moved", "moved_in", "leaving", "begun", "busy", "roll_call", "present")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    LINK_FIELD_NUMBER: _ClassVar[int]
    GO_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    MEASURED_FIELD_NUMBER: _ClassVar[int]
    VOTE_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    HOLDS_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    MOVED_IN_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    ROLL_CALL_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    entries: LogEntries
    capability: Capability
    candidates: Candidates
    plan: PlanProposal
    link: LinkReport
    go: Go
    progress: Progress
    ready: Ready
    fault: Fault
    goodbye: Goodbye
    measured: Measured
    vote: Vote
    standing: Standing
    ask: Ask
    holds: Holds
    draws: Draws
    moved: Moved
    moved_in: MovedIn
    leaving: Leaving
    begun: Begun
    busy: Busy
    roll_call: RollCall
    present: RollCall
    def __init__(self, epoch: _Optional[int] = ..., entries: _Optional[_Union[LogEntries, _Mapping]] = ..., capability: _Optional[_Union[Capability, _Mapping]] = ..., candidates: _Optional[_Union[Candidates, _Mapping]] = ..., plan: _Optional[_Union[PlanProposal, _Mapping]] = ..., link: _Optional[_Union[LinkReport, _Mapping]] = ..., go: _Optional[_Union[Go, _Mapping]] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., fault: _Optional[_Union[Fault, _Mapping]] = ..., goodbye: _Optional[_Union[Goodbye, _Mapping]] = ..., measured: _Optional[_Union[Measured, _Mapping]] = ..., vote: _Optional[_Union[Vote, _Mapping]] = ..., standing: _Optional[_Union[Standing, _Mapping]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ..., holds: _Optional[_Union[Holds, _Mapping]] = ..., draws: _Optional[_Union[Draws, _Mapping]] = ..., moved: _Optional[_Union[Moved, _Mapping]] = ..., moved_in: _Optional[_Union[MovedIn, _Mapping]] = ..., leaving: _Optional[_Union[Leaving, _Mapping]] = ..., begun: _Optional[_Union[Begun, _Mapping]] = ..., busy: _Optional[_Union[Busy, _Mapping]] = ..., roll_call: _Optional[_Union[RollCall, _Mapping]] = ..., present: _Optional[_Union[RollCall, _Mapping]] = ...) -> None: ...

class LogEntries(_message.Message):
    __slots__ = ("entries",)
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.RepeatedCompositeFieldContainer[SignedEntry]
    def __init__(self, entries: _Optional[_Iterable[_Union[SignedEntry, _Mapping]]] = ...) -> None: ...

class Capability(_message.Message):
    __slots__ = ("member_json", "device", "kafila")
    MEMBER_JSON_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    KAFILA_FIELD_NUMBER: _ClassVar[int]
    member_json: str
    device: str
    kafila: str
    def __init__(self, member_json: _Optional[str] = ..., device: _Optional[str] = ..., kafila: _Optional[str] = ...) -> None: ...

class Candidates(_message.Message):
    __slots__ = ("candidates",)
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    candidates: _containers.RepeatedCompositeFieldContainer[Candidate]
    def __init__(self, candidates: _Optional[_Iterable[_Union[Candidate, _Mapping]]] = ...) -> None: ...

class Candidate(_message.Message):
    __slots__ = ("kind", "address", "port", "priority")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    kind: str
    address: str
    port: int
    priority: int
    def __init__(self, kind: _Optional[str] = ..., address: _Optional[str] = ..., port: _Optional[int] = ..., priority: _Optional[int] = ...) -> None: ...

class PlanProposal(_message.Message):
    __slots__ = ("problem_json", "plan_json", "rests_s")
    PROBLEM_JSON_FIELD_NUMBER: _ClassVar[int]
    PLAN_JSON_FIELD_NUMBER: _ClassVar[int]
    RESTS_S_FIELD_NUMBER: _ClassVar[int]
    problem_json: str
    plan_json: str
    rests_s: float
    def __init__(self, problem_json: _Optional[str] = ..., plan_json: _Optional[str] = ..., rests_s: _Optional[float] = ...) -> None: ...

class LinkReport(_message.Message):
    __slots__ = ("peer", "up", "path", "rtt_s", "punch_s", "handshake_s", "bytes_per_s")
    PEER_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    RTT_S_FIELD_NUMBER: _ClassVar[int]
    PUNCH_S_FIELD_NUMBER: _ClassVar[int]
    HANDSHAKE_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    peer: str
    up: bool
    path: str
    rtt_s: float
    punch_s: float
    handshake_s: float
    bytes_per_s: float
    def __init__(self, peer: _Optional[str] = ..., up: _Optional[bool] = ..., path: _Optional[str] = ..., rtt_s: _Optional[float] = ..., punch_s: _Optional[float] = ..., handshake_s: _Optional[float] = ..., bytes_per_s: _Optional[float] = ...) -> None: ...

class Go(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Begun(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Leaving(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Progress(_message.Message):
    __slots__ = ("doing", "fetched_bytes", "total_bytes", "rate_bytes_per_s", "waits_for")
    DOING_FIELD_NUMBER: _ClassVar[int]
    FETCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    RATE_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    doing: str
    fetched_bytes: int
    total_bytes: int
    rate_bytes_per_s: float
    waits_for: str
    def __init__(self, doing: _Optional[str] = ..., fetched_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ..., rate_bytes_per_s: _Optional[float] = ..., waits_for: _Optional[str] = ...) -> None: ...

class Holds(_message.Message):
    __slots__ = ("files",)
    FILES_FIELD_NUMBER: _ClassVar[int]
    files: _containers.RepeatedCompositeFieldContainer[HeldFile]
    def __init__(self, files: _Optional[_Iterable[_Union[HeldFile, _Mapping]]] = ...) -> None: ...

class HeldFile(_message.Message):
    __slots__ = ("file", "starts", "ends")
    FILE_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    ENDS_FIELD_NUMBER: _ClassVar[int]
    file: int
    starts: _containers.RepeatedScalarFieldContainer[int]
    ends: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, file: _Optional[int] = ..., starts: _Optional[_Iterable[int]] = ..., ends: _Optional[_Iterable[int]] = ...) -> None: ...

class Draws(_message.Message):
    __slots__ = ("sources",)
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, sources: _Optional[_Iterable[str]] = ...) -> None: ...

class Moved(_message.Message):
    __slots__ = ("number", "address", "room", "since", "at_host", "residents")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ROOM_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    AT_HOST_FIELD_NUMBER: _ClassVar[int]
    RESIDENTS_FIELD_NUMBER: _ClassVar[int]
    number: int
    address: str
    room: int
    since: int
    at_host: bool
    residents: _containers.RepeatedCompositeFieldContainer[Resident]
    def __init__(self, number: _Optional[int] = ..., address: _Optional[str] = ..., room: _Optional[int] = ..., since: _Optional[int] = ..., at_host: _Optional[bool] = ..., residents: _Optional[_Iterable[_Union[Resident, _Mapping]]] = ...) -> None: ...

class Resident(_message.Message):
    __slots__ = ("member", "mailbox")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    member: int
    mailbox: int
    def __init__(self, member: _Optional[int] = ..., mailbox: _Optional[int] = ...) -> None: ...

class MovedIn(_message.Message):
    __slots__ = ("number", "mailbox")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    MAILBOX_FIELD_NUMBER: _ClassVar[int]
    number: int
    mailbox: int
    def __init__(self, number: _Optional[int] = ..., mailbox: _Optional[int] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Fault(_message.Message):
    __slots__ = ("member", "kind", "code", "sentence")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    member: str
    kind: str
    code: str
    sentence: str
    def __init__(self, member: _Optional[str] = ..., kind: _Optional[str] = ..., code: _Optional[str] = ..., sentence: _Optional[str] = ...) -> None: ...

class Goodbye(_message.Message):
    __slots__ = ("resignation",)
    RESIGNATION_FIELD_NUMBER: _ClassVar[int]
    resignation: bytes
    def __init__(self, resignation: _Optional[bytes] = ...) -> None: ...

class Vote(_message.Message):
    __slots__ = ("successor", "log_length", "standing", "signature")
    SUCCESSOR_FIELD_NUMBER: _ClassVar[int]
    LOG_LENGTH_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    successor: str
    log_length: int
    standing: int
    signature: bytes
    def __init__(self, successor: _Optional[str] = ..., log_length: _Optional[int] = ..., standing: _Optional[int] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("member",)
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    member: str
    def __init__(self, member: _Optional[str] = ...) -> None: ...

class Standing(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class RollCall(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class Busy(_message.Message):
    __slots__ = ("tokens_per_s", "waiting", "asking")
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ASKING_FIELD_NUMBER: _ClassVar[int]
    tokens_per_s: float
    waiting: int
    asking: _containers.RepeatedCompositeFieldContainer[Asking]
    def __init__(self, tokens_per_s: _Optional[float] = ..., waiting: _Optional[int] = ..., asking: _Optional[_Iterable[_Union[Asking, _Mapping]]] = ...) -> None: ...

class Asking(_message.Message):
    __slots__ = ("member", "prompt_tokens", "answer_tokens", "waits")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    WAITS_FIELD_NUMBER: _ClassVar[int]
    member: str
    prompt_tokens: int
    answer_tokens: int
    waits: bool
    def __init__(self, member: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., answer_tokens: _Optional[int] = ..., waits: _Optional[bool] = ...) -> None: ...

class Measured(_message.Message):
    __slots__ = ("trace_json",)
    TRACE_JSON_FIELD_NUMBER: _ClassVar[int]
    trace_json: str
    def __init__(self, trace_json: _Optional[str] = ...) -> None: ...

class Request(_message.Message):
    __slots__ = ("epoch", "generate", "id", "replay")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    GENERATE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    generate: bytes
    id: bytes
    replay: Replay
    def __init__(self, epoch: _Optional[int] = ..., generate: _Optional[bytes] = ..., id: _Optional[bytes] = ..., replay: _Optional[_Union[Replay, _Mapping]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("reply", "refusal", "interrupted", "tokens", "beginning", "scores")
    REPLY_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    INTERRUPTED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    BEGINNING_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    reply: bytes
    refusal: Refusal
    interrupted: str
    tokens: _containers.RepeatedScalarFieldContainer[int]
    beginning: Beginning
    scores: _containers.RepeatedCompositeFieldContainer[Score]
    def __init__(self, reply: _Optional[bytes] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., interrupted: _Optional[str] = ..., tokens: _Optional[_Iterable[int]] = ..., beginning: _Optional[_Union[Beginning, _Mapping]] = ..., scores: _Optional[_Iterable[_Union[Score, _Mapping]]] = ...) -> None: ...

class Score(_message.Message):
    __slots__ = ("logprob", "top", "top_logprobs")
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    logprob: float
    top: _containers.RepeatedScalarFieldContainer[int]
    top_logprobs: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, logprob: _Optional[float] = ..., top: _Optional[_Iterable[int]] = ..., top_logprobs: _Optional[_Iterable[float]] = ...) -> None: ...

class Beginning(_message.Message):
    __slots__ = ("prompt", "seed")
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    prompt: _containers.RepeatedScalarFieldContainer[int]
    seed: int
    def __init__(self, prompt: _Optional[_Iterable[int]] = ..., seed: _Optional[int] = ...) -> None: ...

class Replay(_message.Message):
    __slots__ = ("beginning", "answer", "prompt_s", "output_s", "times", "scores")
    BEGINNING_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PROMPT_S_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_S_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    SCORES_FIELD_NUMBER: _ClassVar[int]
    beginning: Beginning
    answer: _containers.RepeatedScalarFieldContainer[int]
    prompt_s: float
    output_s: float
    times: int
    scores: _containers.RepeatedCompositeFieldContainer[Score]
    def __init__(self, beginning: _Optional[_Union[Beginning, _Mapping]] = ..., answer: _Optional[_Iterable[int]] = ..., prompt_s: _Optional[float] = ..., output_s: _Optional[float] = ..., times: _Optional[int] = ..., scores: _Optional[_Iterable[_Union[Score, _Mapping]]] = ...) -> None: ...

class WeightsAsk(_message.Message):
    __slots__ = ("describe", "units")
    DESCRIBE_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    describe: Describe
    units: Units
    def __init__(self, describe: _Optional[_Union[Describe, _Mapping]] = ..., units: _Optional[_Union[Units, _Mapping]] = ...) -> None: ...

class Describe(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Units(_message.Message):
    __slots__ = ("revision", "units")
    REVISION_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    revision: str
    units: _containers.RepeatedCompositeFieldContainer[Unit]
    def __init__(self, revision: _Optional[str] = ..., units: _Optional[_Iterable[_Union[Unit, _Mapping]]] = ...) -> None: ...

class Unit(_message.Message):
    __slots__ = ("file", "start", "end")
    FILE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    file: int
    start: int
    end: int
    def __init__(self, file: _Optional[int] = ..., start: _Optional[int] = ..., end: _Optional[int] = ...) -> None: ...

class WeightsTold(_message.Message):
    __slots__ = ("vouched", "absent", "data", "refusal")
    VOUCHED_FIELD_NUMBER: _ClassVar[int]
    ABSENT_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    vouched: Vouched
    absent: Absent
    data: bytes
    refusal: Refusal
    def __init__(self, vouched: _Optional[_Union[Vouched, _Mapping]] = ..., absent: _Optional[_Union[Absent, _Mapping]] = ..., data: _Optional[bytes] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ...) -> None: ...

class Vouched(_message.Message):
    __slots__ = ("by", "sha256", "signature")
    BY_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    by: str
    sha256: bytes
    signature: bytes
    def __init__(self, by: _Optional[str] = ..., sha256: _Optional[bytes] = ..., signature: _Optional[bytes] = ...) -> None: ...

class Absent(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
