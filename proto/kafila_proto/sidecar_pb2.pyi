from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class DoneReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DONE_REASON_STOP: _ClassVar[DoneReason]
    DONE_REASON_LENGTH: _ClassVar[DoneReason]
    DONE_REASON_CLOSED: _ClassVar[DoneReason]
DONE_REASON_STOP: DoneReason
DONE_REASON_LENGTH: DoneReason
DONE_REASON_CLOSED: DoneReason

class HelloRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class HelloReply(_message.Message):
    __slots__ = ("version", "pid", "device", "usable_memory_bytes")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    USABLE_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    version: str
    pid: int
    device: str
    usable_memory_bytes: int
    def __init__(self, version: _Optional[str] = ..., pid: _Optional[int] = ..., device: _Optional[str] = ..., usable_memory_bytes: _Optional[int] = ...) -> None: ...

class CreateSessionRequest(_message.Message):
    __slots__ = ("model", "members", "context_tokens", "concurrency", "memory_bytes", "strategy", "objective", "require", "exclude", "rendezvous", "name", "spare_bytes", "quantize_bits", "no_guesses", "draft", "replanning", "choose_plan")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    REQUIRE_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPARE_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_BITS_FIELD_NUMBER: _ClassVar[int]
    NO_GUESSES_FIELD_NUMBER: _ClassVar[int]
    DRAFT_FIELD_NUMBER: _ClassVar[int]
    REPLANNING_FIELD_NUMBER: _ClassVar[int]
    CHOOSE_PLAN_FIELD_NUMBER: _ClassVar[int]
    model: str
    members: int
    context_tokens: int
    concurrency: int
    memory_bytes: int
    strategy: str
    objective: str
    require: _containers.RepeatedScalarFieldContainer[str]
    exclude: _containers.RepeatedScalarFieldContainer[str]
    rendezvous: str
    name: str
    spare_bytes: int
    quantize_bits: int
    no_guesses: bool
    draft: str
    replanning: str
    choose_plan: bool
    def __init__(self, model: _Optional[str] = ..., members: _Optional[int] = ..., context_tokens: _Optional[int] = ..., concurrency: _Optional[int] = ..., memory_bytes: _Optional[int] = ..., strategy: _Optional[str] = ..., objective: _Optional[str] = ..., require: _Optional[_Iterable[str]] = ..., exclude: _Optional[_Iterable[str]] = ..., rendezvous: _Optional[str] = ..., name: _Optional[str] = ..., spare_bytes: _Optional[int] = ..., quantize_bits: _Optional[int] = ..., no_guesses: _Optional[bool] = ..., draft: _Optional[str] = ..., replanning: _Optional[str] = ..., choose_plan: _Optional[bool] = ...) -> None: ...

class ChoosePlanRequest(_message.Message):
    __slots__ = ("session", "objective", "shown")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    OBJECTIVE_FIELD_NUMBER: _ClassVar[int]
    SHOWN_FIELD_NUMBER: _ClassVar[int]
    session: str
    objective: str
    shown: _containers.RepeatedCompositeFieldContainer[Stage]
    def __init__(self, session: _Optional[str] = ..., objective: _Optional[str] = ..., shown: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ...) -> None: ...

class OpenSessionRequest(_message.Message):
    __slots__ = ("code", "rendezvous", "name", "memory_bytes", "spare_bytes")
    CODE_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    SPARE_BYTES_FIELD_NUMBER: _ClassVar[int]
    code: str
    rendezvous: str
    name: str
    memory_bytes: int
    spare_bytes: int
    def __init__(self, code: _Optional[str] = ..., rendezvous: _Optional[str] = ..., name: _Optional[str] = ..., memory_bytes: _Optional[int] = ..., spare_bytes: _Optional[int] = ...) -> None: ...

class Offer(_message.Message):
    __slots__ = ("session", "joined", "model", "host", "members_present", "members_wanted", "lend_memory_bytes", "download_bytes", "free_disk_bytes", "folder", "offer_ttl_s", "spare_bytes", "notices", "quantization")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_PRESENT_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_WANTED_FIELD_NUMBER: _ClassVar[int]
    LEND_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    OFFER_TTL_S_FIELD_NUMBER: _ClassVar[int]
    SPARE_BYTES_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    session: str
    joined: bool
    model: str
    host: str
    members_present: int
    members_wanted: int
    lend_memory_bytes: int
    download_bytes: int
    free_disk_bytes: int
    folder: str
    offer_ttl_s: float
    spare_bytes: int
    notices: _containers.RepeatedScalarFieldContainer[str]
    quantization: str
    def __init__(self, session: _Optional[str] = ..., joined: _Optional[bool] = ..., model: _Optional[str] = ..., host: _Optional[str] = ..., members_present: _Optional[int] = ..., members_wanted: _Optional[int] = ..., lend_memory_bytes: _Optional[int] = ..., download_bytes: _Optional[int] = ..., free_disk_bytes: _Optional[int] = ..., folder: _Optional[str] = ..., offer_ttl_s: _Optional[float] = ..., spare_bytes: _Optional[int] = ..., notices: _Optional[_Iterable[str]] = ..., quantization: _Optional[str] = ...) -> None: ...

class JoinSessionRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("session",)
    SESSION_FIELD_NUMBER: _ClassVar[int]
    session: str
    def __init__(self, session: _Optional[str] = ...) -> None: ...

class LockRequest(_message.Message):
    __slots__ = ("session", "locked")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    LOCKED_FIELD_NUMBER: _ClassVar[int]
    session: str
    locked: bool
    def __init__(self, session: _Optional[str] = ..., locked: _Optional[bool] = ...) -> None: ...

class KickRequest(_message.Message):
    __slots__ = ("session", "member")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    session: str
    member: str
    def __init__(self, session: _Optional[str] = ..., member: _Optional[str] = ...) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("session", "at_once")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    AT_ONCE_FIELD_NUMBER: _ClassVar[int]
    session: str
    at_once: bool
    def __init__(self, session: _Optional[str] = ..., at_once: _Optional[bool] = ...) -> None: ...

class LeaveSessionReply(_message.Message):
    __slots__ = ("kept_back",)
    KEPT_BACK_FIELD_NUMBER: _ClassVar[int]
    kept_back: str
    def __init__(self, kept_back: _Optional[str] = ...) -> None: ...

class ReplanningRequest(_message.Message):
    __slots__ = ("session", "replanning")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REPLANNING_FIELD_NUMBER: _ClassVar[int]
    session: str
    replanning: str
    def __init__(self, session: _Optional[str] = ..., replanning: _Optional[str] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListSessionsReply(_message.Message):
    __slots__ = ("sessions",)
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[Session]
    def __init__(self, sessions: _Optional[_Iterable[_Union[Session, _Mapping]]] = ...) -> None: ...

class Session(_message.Message):
    __slots__ = ("id", "code", "state", "doing", "failure", "failure_code", "model", "revision", "self", "host", "members_wanted", "context_tokens", "concurrency", "epoch", "members", "stages", "hops", "expected_tokens_per_s", "plan_json", "vehicle", "rendezvous_note", "reserved_memory_bytes", "active_sequences", "last_trace_json", "better_plan", "joining", "notices", "replanning", "limited", "whole_code", "activity")
    ID_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_CODE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SELF_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_WANTED_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    HOPS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    PLAN_JSON_FIELD_NUMBER: _ClassVar[int]
    VEHICLE_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_NOTE_FIELD_NUMBER: _ClassVar[int]
    RESERVED_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    ACTIVE_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    LAST_TRACE_JSON_FIELD_NUMBER: _ClassVar[int]
    BETTER_PLAN_FIELD_NUMBER: _ClassVar[int]
    JOINING_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    REPLANNING_FIELD_NUMBER: _ClassVar[int]
    LIMITED_FIELD_NUMBER: _ClassVar[int]
    WHOLE_CODE_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    id: str
    code: str
    state: str
    doing: str
    failure: str
    failure_code: str
    model: str
    revision: str
    self: str
    host: str
    members_wanted: int
    context_tokens: int
    concurrency: int
    epoch: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    stages: _containers.RepeatedCompositeFieldContainer[Stage]
    hops: _containers.RepeatedCompositeFieldContainer[Hop]
    expected_tokens_per_s: float
    plan_json: str
    vehicle: StubModel
    rendezvous_note: str
    reserved_memory_bytes: int
    active_sequences: int
    last_trace_json: str
    better_plan: str
    joining: str
    notices: _containers.RepeatedScalarFieldContainer[str]
    replanning: str
    limited: _containers.RepeatedScalarFieldContainer[str]
    whole_code: str
    activity: Activity
    def __init__(self_, id: _Optional[str] = ..., code: _Optional[str] = ..., state: _Optional[str] = ..., doing: _Optional[str] = ..., failure: _Optional[str] = ..., failure_code: _Optional[str] = ..., model: _Optional[str] = ..., revision: _Optional[str] = ..., self: _Optional[str] = ..., host: _Optional[str] = ..., members_wanted: _Optional[int] = ..., context_tokens: _Optional[int] = ..., concurrency: _Optional[int] = ..., epoch: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., stages: _Optional[_Iterable[_Union[Stage, _Mapping]]] = ..., hops: _Optional[_Iterable[_Union[Hop, _Mapping]]] = ..., expected_tokens_per_s: _Optional[float] = ..., plan_json: _Optional[str] = ..., vehicle: _Optional[_Union[StubModel, _Mapping]] = ..., rendezvous_note: _Optional[str] = ..., reserved_memory_bytes: _Optional[int] = ..., active_sequences: _Optional[int] = ..., last_trace_json: _Optional[str] = ..., better_plan: _Optional[str] = ..., joining: _Optional[str] = ..., notices: _Optional[_Iterable[str]] = ..., replanning: _Optional[str] = ..., limited: _Optional[_Iterable[str]] = ..., whole_code: _Optional[str] = ..., activity: _Optional[_Union[Activity, _Mapping]] = ...) -> None: ...

class Activity(_message.Message):
    __slots__ = ("tokens_per_s", "waiting", "answering")
    TOKENS_PER_S_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    ANSWERING_FIELD_NUMBER: _ClassVar[int]
    tokens_per_s: float
    waiting: int
    answering: _containers.RepeatedCompositeFieldContainer[Answering]
    def __init__(self, tokens_per_s: _Optional[float] = ..., waiting: _Optional[int] = ..., answering: _Optional[_Iterable[_Union[Answering, _Mapping]]] = ...) -> None: ...

class Answering(_message.Message):
    __slots__ = ("member", "doing", "prompt_tokens", "answer_tokens")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ANSWER_TOKENS_FIELD_NUMBER: _ClassVar[int]
    member: str
    doing: str
    prompt_tokens: int
    answer_tokens: int
    def __init__(self, member: _Optional[str] = ..., doing: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., answer_tokens: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("name", "role", "present", "doing", "usable_memory_bytes", "fetched_bytes", "fetch_total_bytes", "device", "fetch_rate_bytes_per_s", "waits_for", "if_lost", "if_lost_wait_s", "if_lost_missing_bytes", "kafila")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    DOING_FIELD_NUMBER: _ClassVar[int]
    USABLE_MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    FETCHED_BYTES_FIELD_NUMBER: _ClassVar[int]
    FETCH_TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    FETCH_RATE_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    WAITS_FOR_FIELD_NUMBER: _ClassVar[int]
    IF_LOST_FIELD_NUMBER: _ClassVar[int]
    IF_LOST_WAIT_S_FIELD_NUMBER: _ClassVar[int]
    IF_LOST_MISSING_BYTES_FIELD_NUMBER: _ClassVar[int]
    KAFILA_FIELD_NUMBER: _ClassVar[int]
    name: str
    role: str
    present: bool
    doing: str
    usable_memory_bytes: int
    fetched_bytes: int
    fetch_total_bytes: int
    device: str
    fetch_rate_bytes_per_s: float
    waits_for: str
    if_lost: str
    if_lost_wait_s: float
    if_lost_missing_bytes: int
    kafila: str
    def __init__(self, name: _Optional[str] = ..., role: _Optional[str] = ..., present: _Optional[bool] = ..., doing: _Optional[str] = ..., usable_memory_bytes: _Optional[int] = ..., fetched_bytes: _Optional[int] = ..., fetch_total_bytes: _Optional[int] = ..., device: _Optional[str] = ..., fetch_rate_bytes_per_s: _Optional[float] = ..., waits_for: _Optional[str] = ..., if_lost: _Optional[str] = ..., if_lost_wait_s: _Optional[float] = ..., if_lost_missing_bytes: _Optional[int] = ..., kafila: _Optional[str] = ...) -> None: ...

class Stage(_message.Message):
    __slots__ = ("member", "start", "end", "head", "resident_bytes", "predicted_s", "measured_s")
    MEMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    RESIDENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_S_FIELD_NUMBER: _ClassVar[int]
    MEASURED_S_FIELD_NUMBER: _ClassVar[int]
    member: str
    start: int
    end: int
    head: bool
    resident_bytes: int
    predicted_s: float
    measured_s: float
    def __init__(self, member: _Optional[str] = ..., start: _Optional[int] = ..., end: _Optional[int] = ..., head: _Optional[bool] = ..., resident_bytes: _Optional[int] = ..., predicted_s: _Optional[float] = ..., measured_s: _Optional[float] = ...) -> None: ...

class Hop(_message.Message):
    __slots__ = ("to", "path", "predicted_s", "measured_s", "predicted_path", "rtt_s", "formed_s")
    FROM_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_S_FIELD_NUMBER: _ClassVar[int]
    MEASURED_S_FIELD_NUMBER: _ClassVar[int]
    PREDICTED_PATH_FIELD_NUMBER: _ClassVar[int]
    RTT_S_FIELD_NUMBER: _ClassVar[int]
    FORMED_S_FIELD_NUMBER: _ClassVar[int]
    to: str
    path: str
    predicted_s: float
    measured_s: float
    predicted_path: str
    rtt_s: float
    formed_s: float
    def __init__(self, to: _Optional[str] = ..., path: _Optional[str] = ..., predicted_s: _Optional[float] = ..., measured_s: _Optional[float] = ..., predicted_path: _Optional[str] = ..., rtt_s: _Optional[float] = ..., formed_s: _Optional[float] = ..., **kwargs) -> None: ...

class StubModel(_message.Message):
    __slots__ = ("name", "architecture", "context_length", "embedding_length", "parameter_count", "quantization", "parser", "parameters", "weight_bytes", "insert")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_LENGTH_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_COUNT_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    PARSER_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    INSERT_FIELD_NUMBER: _ClassVar[int]
    name: str
    architecture: str
    context_length: int
    embedding_length: int
    parameter_count: int
    quantization: str
    parser: str
    parameters: _containers.ScalarMap[str, float]
    weight_bytes: int
    insert: bool
    def __init__(self, name: _Optional[str] = ..., architecture: _Optional[str] = ..., context_length: _Optional[int] = ..., embedding_length: _Optional[int] = ..., parameter_count: _Optional[int] = ..., quantization: _Optional[str] = ..., parser: _Optional[str] = ..., parameters: _Optional[_Mapping[str, float]] = ..., weight_bytes: _Optional[int] = ..., insert: _Optional[bool] = ...) -> None: ...

class ModelCard(_message.Message):
    __slots__ = ("template", "license", "info")
    class InfoEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TEMPLATE_FIELD_NUMBER: _ClassVar[int]
    LICENSE_FIELD_NUMBER: _ClassVar[int]
    INFO_FIELD_NUMBER: _ClassVar[int]
    template: str
    license: str
    info: _containers.ScalarMap[str, int]
    def __init__(self, template: _Optional[str] = ..., license: _Optional[str] = ..., info: _Optional[_Mapping[str, int]] = ...) -> None: ...

class PlanRequest(_message.Message):
    __slots__ = ("session", "model", "context_tokens", "concurrency", "quantize_bits")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CONCURRENCY_FIELD_NUMBER: _ClassVar[int]
    QUANTIZE_BITS_FIELD_NUMBER: _ClassVar[int]
    session: str
    model: str
    context_tokens: int
    concurrency: int
    quantize_bits: int
    def __init__(self, session: _Optional[str] = ..., model: _Optional[str] = ..., context_tokens: _Optional[int] = ..., concurrency: _Optional[int] = ..., quantize_bits: _Optional[int] = ...) -> None: ...

class PlanReply(_message.Message):
    __slots__ = ("plan_json", "problem_json", "alternatives_json", "download_bytes", "notices", "quantization")
    class AlternativesJsonEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class DownloadBytesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    PLAN_JSON_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_JSON_FIELD_NUMBER: _ClassVar[int]
    ALTERNATIVES_JSON_FIELD_NUMBER: _ClassVar[int]
    DOWNLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    QUANTIZATION_FIELD_NUMBER: _ClassVar[int]
    plan_json: str
    problem_json: str
    alternatives_json: _containers.ScalarMap[str, str]
    download_bytes: _containers.ScalarMap[str, int]
    notices: _containers.RepeatedScalarFieldContainer[str]
    quantization: str
    def __init__(self, plan_json: _Optional[str] = ..., problem_json: _Optional[str] = ..., alternatives_json: _Optional[_Mapping[str, str]] = ..., download_bytes: _Optional[_Mapping[str, int]] = ..., notices: _Optional[_Iterable[str]] = ..., quantization: _Optional[str] = ...) -> None: ...

class GenerateRequest(_message.Message):
    __slots__ = ("session", "prompt", "options", "truncate", "shift", "format", "logprobs", "top_logprobs", "images", "strict", "tools", "plain", "context", "tells_context", "begun", "suffix", "embeds", "tells_headway")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    TRUNCATE_FIELD_NUMBER: _ClassVar[int]
    SHIFT_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    TOP_LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    STRICT_FIELD_NUMBER: _ClassVar[int]
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    PLAIN_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    TELLS_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BEGUN_FIELD_NUMBER: _ClassVar[int]
    SUFFIX_FIELD_NUMBER: _ClassVar[int]
    EMBEDS_FIELD_NUMBER: _ClassVar[int]
    TELLS_HEADWAY_FIELD_NUMBER: _ClassVar[int]
    session: str
    prompt: str
    options: Options
    truncate: bool
    shift: bool
    format: str
    logprobs: bool
    top_logprobs: int
    images: int
    strict: bool
    tools: bool
    plain: bool
    context: _containers.RepeatedScalarFieldContainer[int]
    tells_context: bool
    begun: bool
    suffix: str
    embeds: bool
    tells_headway: bool
    def __init__(self, session: _Optional[str] = ..., prompt: _Optional[str] = ..., options: _Optional[_Union[Options, _Mapping]] = ..., truncate: _Optional[bool] = ..., shift: _Optional[bool] = ..., format: _Optional[str] = ..., logprobs: _Optional[bool] = ..., top_logprobs: _Optional[int] = ..., images: _Optional[int] = ..., strict: _Optional[bool] = ..., tools: _Optional[bool] = ..., plain: _Optional[bool] = ..., context: _Optional[_Iterable[int]] = ..., tells_context: _Optional[bool] = ..., begun: _Optional[bool] = ..., suffix: _Optional[str] = ..., embeds: _Optional[bool] = ..., tells_headway: _Optional[bool] = ...) -> None: ...

class Options(_message.Message):
    __slots__ = ("num_ctx", "num_predict", "num_keep", "temperature", "top_k", "top_p", "min_p", "seed", "repeat_penalty", "repeat_last_n", "presence_penalty", "frequency_penalty", "stop", "guesses")
    NUM_CTX_FIELD_NUMBER: _ClassVar[int]
    NUM_PREDICT_FIELD_NUMBER: _ClassVar[int]
    NUM_KEEP_FIELD_NUMBER: _ClassVar[int]
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    REPEAT_PENALTY_FIELD_NUMBER: _ClassVar[int]
    REPEAT_LAST_N_FIELD_NUMBER: _ClassVar[int]
    PRESENCE_PENALTY_FIELD_NUMBER: _ClassVar[int]
    FREQUENCY_PENALTY_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    GUESSES_FIELD_NUMBER: _ClassVar[int]
    num_ctx: int
    num_predict: int
    num_keep: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    repeat_penalty: float
    repeat_last_n: int
    presence_penalty: float
    frequency_penalty: float
    stop: _containers.RepeatedScalarFieldContainer[str]
    guesses: int
    def __init__(self, num_ctx: _Optional[int] = ..., num_predict: _Optional[int] = ..., num_keep: _Optional[int] = ..., temperature: _Optional[float] = ..., top_k: _Optional[int] = ..., top_p: _Optional[float] = ..., min_p: _Optional[float] = ..., seed: _Optional[int] = ..., repeat_penalty: _Optional[float] = ..., repeat_last_n: _Optional[int] = ..., presence_penalty: _Optional[float] = ..., frequency_penalty: _Optional[float] = ..., stop: _Optional[_Iterable[str]] = ..., guesses: _Optional[int] = ...) -> None: ...

class GenerateReply(_message.Message):
    __slots__ = ("text", "done", "done_reason", "prompt_tokens", "prompt_s", "output_tokens", "output_s", "logprobs", "embedding", "context", "headway")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    DONE_REASON_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    PROMPT_S_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_S_FIELD_NUMBER: _ClassVar[int]
    LOGPROBS_FIELD_NUMBER: _ClassVar[int]
    EMBEDDING_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    HEADWAY_FIELD_NUMBER: _ClassVar[int]
    text: str
    done: bool
    done_reason: DoneReason
    prompt_tokens: int
    prompt_s: float
    output_tokens: int
    output_s: float
    logprobs: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    embedding: _containers.RepeatedScalarFieldContainer[float]
    context: _containers.RepeatedScalarFieldContainer[int]
    headway: Headway
    def __init__(self, text: _Optional[str] = ..., done: _Optional[bool] = ..., done_reason: _Optional[_Union[DoneReason, str]] = ..., prompt_tokens: _Optional[int] = ..., prompt_s: _Optional[float] = ..., output_tokens: _Optional[int] = ..., output_s: _Optional[float] = ..., logprobs: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ..., embedding: _Optional[_Iterable[float]] = ..., context: _Optional[_Iterable[int]] = ..., headway: _Optional[_Union[Headway, _Mapping]] = ...) -> None: ...

class Headway(_message.Message):
    __slots__ = ("doing", "tokens", "of")
    DOING_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    doing: str
    tokens: int
    of: int
    def __init__(self, doing: _Optional[str] = ..., tokens: _Optional[int] = ..., of: _Optional[int] = ...) -> None: ...

class TokenLogprob(_message.Message):
    __slots__ = ("token", "logprob", "top")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    LOGPROB_FIELD_NUMBER: _ClassVar[int]
    TOP_FIELD_NUMBER: _ClassVar[int]
    token: bytes
    logprob: float
    top: _containers.RepeatedCompositeFieldContainer[TokenLogprob]
    def __init__(self, token: _Optional[bytes] = ..., logprob: _Optional[float] = ..., top: _Optional[_Iterable[_Union[TokenLogprob, _Mapping]]] = ...) -> None: ...

class DoctorRequest(_message.Message):
    __slots__ = ("rendezvous",)
    RENDEZVOUS_FIELD_NUMBER: _ClassVar[int]
    rendezvous: str
    def __init__(self, rendezvous: _Optional[str] = ...) -> None: ...

class DoctorReply(_message.Message):
    __slots__ = ("text", "findings", "addresses", "udp", "mapping", "mapping_is_assumed", "filtering", "filtering_is_assumed", "mapped_address", "rtt_s", "clock_ahead_s", "reach", "direct_with", "relayed_with", "rendezvous_here")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    FINDINGS_FIELD_NUMBER: _ClassVar[int]
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    UDP_FIELD_NUMBER: _ClassVar[int]
    MAPPING_FIELD_NUMBER: _ClassVar[int]
    MAPPING_IS_ASSUMED_FIELD_NUMBER: _ClassVar[int]
    FILTERING_FIELD_NUMBER: _ClassVar[int]
    FILTERING_IS_ASSUMED_FIELD_NUMBER: _ClassVar[int]
    MAPPED_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RTT_S_FIELD_NUMBER: _ClassVar[int]
    CLOCK_AHEAD_S_FIELD_NUMBER: _ClassVar[int]
    REACH_FIELD_NUMBER: _ClassVar[int]
    DIRECT_WITH_FIELD_NUMBER: _ClassVar[int]
    RELAYED_WITH_FIELD_NUMBER: _ClassVar[int]
    RENDEZVOUS_HERE_FIELD_NUMBER: _ClassVar[int]
    text: str
    findings: _containers.RepeatedCompositeFieldContainer[Finding]
    addresses: _containers.RepeatedScalarFieldContainer[str]
    udp: str
    mapping: str
    mapping_is_assumed: bool
    filtering: str
    filtering_is_assumed: bool
    mapped_address: str
    rtt_s: float
    clock_ahead_s: float
    reach: str
    direct_with: _containers.RepeatedScalarFieldContainer[str]
    relayed_with: _containers.RepeatedScalarFieldContainer[str]
    rendezvous_here: str
    def __init__(self, text: _Optional[str] = ..., findings: _Optional[_Iterable[_Union[Finding, _Mapping]]] = ..., addresses: _Optional[_Iterable[str]] = ..., udp: _Optional[str] = ..., mapping: _Optional[str] = ..., mapping_is_assumed: _Optional[bool] = ..., filtering: _Optional[str] = ..., filtering_is_assumed: _Optional[bool] = ..., mapped_address: _Optional[str] = ..., rtt_s: _Optional[float] = ..., clock_ahead_s: _Optional[float] = ..., reach: _Optional[str] = ..., direct_with: _Optional[_Iterable[str]] = ..., relayed_with: _Optional[_Iterable[str]] = ..., rendezvous_here: _Optional[str] = ...) -> None: ...

class Finding(_message.Message):
    __slots__ = ("topic", "level", "sentence", "advice")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    SENTENCE_FIELD_NUMBER: _ClassVar[int]
    ADVICE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    level: str
    sentence: str
    advice: str
    def __init__(self, topic: _Optional[str] = ..., level: _Optional[str] = ..., sentence: _Optional[str] = ..., advice: _Optional[str] = ...) -> None: ...

class MetricsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class MetricsReply(_message.Message):
    __slots__ = ("text",)
    TEXT_FIELD_NUMBER: _ClassVar[int]
    text: str
    def __init__(self, text: _Optional[str] = ...) -> None: ...

class TracesRequest(_message.Message):
    __slots__ = ("session", "request", "most")
    SESSION_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    MOST_FIELD_NUMBER: _ClassVar[int]
    session: str
    request: str
    most: int
    def __init__(self, session: _Optional[str] = ..., request: _Optional[str] = ..., most: _Optional[int] = ...) -> None: ...

class TracesReply(_message.Message):
    __slots__ = ("records_json",)
    RECORDS_JSON_FIELD_NUMBER: _ClassVar[int]
    records_json: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, records_json: _Optional[_Iterable[str]] = ...) -> None: ...

class ListModelsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListModelsReply(_message.Message):
    __slots__ = ("models",)
    MODELS_FIELD_NUMBER: _ClassVar[int]
    models: _containers.RepeatedCompositeFieldContainer[NamedModel]
    def __init__(self, models: _Optional[_Iterable[_Union[NamedModel, _Mapping]]] = ...) -> None: ...

class NamedModel(_message.Message):
    __slots__ = ("name", "repository", "weight_bytes", "needed_bytes", "note", "here", "also")
    NAME_FIELD_NUMBER: _ClassVar[int]
    REPOSITORY_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_BYTES_FIELD_NUMBER: _ClassVar[int]
    NEEDED_BYTES_FIELD_NUMBER: _ClassVar[int]
    NOTE_FIELD_NUMBER: _ClassVar[int]
    HERE_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    name: str
    repository: str
    weight_bytes: int
    needed_bytes: _containers.RepeatedScalarFieldContainer[int]
    note: str
    here: bool
    also: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., repository: _Optional[str] = ..., weight_bytes: _Optional[int] = ..., needed_bytes: _Optional[_Iterable[int]] = ..., note: _Optional[str] = ..., here: _Optional[bool] = ..., also: _Optional[_Iterable[str]] = ...) -> None: ...

class ListWeightsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWeightsReply(_message.Message):
    __slots__ = ("weights", "limit_bytes", "free_disk_bytes", "folder")
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    LIMIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    FREE_DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    weights: _containers.RepeatedCompositeFieldContainer[KeptWeights]
    limit_bytes: int
    free_disk_bytes: int
    folder: str
    def __init__(self, weights: _Optional[_Iterable[_Union[KeptWeights, _Mapping]]] = ..., limit_bytes: _Optional[int] = ..., free_disk_bytes: _Optional[int] = ..., folder: _Optional[str] = ...) -> None: ...

class KeptWeights(_message.Message):
    __slots__ = ("model", "revision", "disk_bytes", "whole", "in_use", "last_used_s")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    IN_USE_FIELD_NUMBER: _ClassVar[int]
    LAST_USED_S_FIELD_NUMBER: _ClassVar[int]
    model: str
    revision: str
    disk_bytes: int
    whole: bool
    in_use: bool
    last_used_s: float
    def __init__(self, model: _Optional[str] = ..., revision: _Optional[str] = ..., disk_bytes: _Optional[int] = ..., whole: _Optional[bool] = ..., in_use: _Optional[bool] = ..., last_used_s: _Optional[float] = ...) -> None: ...

class RemoveWeightsRequest(_message.Message):
    __slots__ = ("model", "revision")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    model: str
    revision: str
    def __init__(self, model: _Optional[str] = ..., revision: _Optional[str] = ...) -> None: ...

class PruneWeightsRequest(_message.Message):
    __slots__ = ("unused_for_s",)
    UNUSED_FOR_S_FIELD_NUMBER: _ClassVar[int]
    unused_for_s: float
    def __init__(self, unused_for_s: _Optional[float] = ...) -> None: ...

class FreedReply(_message.Message):
    __slots__ = ("bytes",)
    BYTES_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    def __init__(self, bytes: _Optional[int] = ...) -> None: ...
