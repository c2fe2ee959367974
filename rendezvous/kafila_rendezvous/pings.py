"""How members and server ask each other by HTTP/2 pings whether they are still there: both ends' settings in one place.

A server takes pings that come too often for a flood, and ends the connection ("too_many_pings"). Too often is one in
five minutes unless it is told otherwise, and its count only falls when it sends something itself: a server that was not
told, or by a name that gRPC doesn't know and so ignores, drops members when there is little else to say. gRPC's clients
ping for two reasons: to keep the connection, and to measure bandwidth, as often as data comes in. Members don't
measure, and keep `EVERY_S` between two pings; the server wants a small part of that.
"""

EVERY_S = 5
PATIENCE_S = 10  # with `EVERY_S`: who vanished is noticed within 15 s; who stands still for 10 s is not missed
LEAST_MS = 200  # between two pings that the server takes
MOST_HASTY = 8  # pings that come sooner, then the connection ends
WINDOW_BYTES = 1 << 20  # of a stream, since without measuring it does not grow: 10 MiB/s at 100 ms

_BOTH = [
    ("grpc.keepalive_time_ms", EVERY_S * 1000),
    ("grpc.keepalive_timeout_ms", PATIENCE_S * 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),  # who only listens has to ask as well
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", WINDOW_BYTES),
]
MEMBER_OPTIONS = _BOTH
SERVER_OPTIONS = [
    *_BOTH,
    ("grpc.http2.min_ping_interval_without_data_ms", LEAST_MS),  # received ones; gRPC's header calls it MIN_RECV
    ("grpc.http2.max_ping_strikes", MOST_HASTY),
]
