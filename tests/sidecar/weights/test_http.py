"""What travels to whom: tokens, proxies, certificates, redirects, and what sentences may show of them."""

import datetime
import ipaddress
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kafila_sidecar.errors import Denied, KafilaError, Unavailable
from kafila_sidecar.weights.providers.hub import FilePlace, Hub
from tests.support.model_host import ModelHost

Make = Callable[..., Path]
REPO = "kafila/model"
TOKEN = "hf_secretsecretsecret"
SIGNATURE = "X-Signature=5ecre7"


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this machine's owner has set for proxies and certificates is no matter here."""
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy", "requests_ca_bundle", "curl_ca_bundle"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


class Recording(ThreadingHTTPServer):
    """A server that keeps the headers of each request; `answer` does the rest."""

    daemon_threads = True

    def __init__(self, answer: Callable[[BaseHTTPRequestHandler], None]) -> None:
        self.paths: list[str] = []
        self.authorizations: list[str | None] = []
        recording = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                recording.paths.append(self.path)
                recording.authorizations.append(self.headers.get("Authorization"))
                answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Answering)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def running(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def forward(request: BaseHTTPRequestHandler) -> None:
    """As a proxy does for what is not encrypted."""
    wanted = urlsplit(request.path)
    connection = HTTPConnection(wanted.netloc, timeout=5)
    connection.request("GET", f"{wanted.path}?{wanted.query}", headers=dict(request.headers))
    answer = connection.getresponse()
    body = answer.read()
    request.send_response(answer.status)
    request.send_header("Content-Length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)
    connection.close()


def redirecting(target: str) -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(302)
        request.send_header("Location", target)
        request.send_header("Content-Length", "0")
        request.end_headers()

    return answer


def saying(status: int, body: bytes = b"") -> Callable[[BaseHTTPRequestHandler], None]:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


async def config_of(hub: Hub, repo: str = REPO) -> bytes:
    with hub:
        return await hub.small_file(FilePlace(repo, "0" * 40, "config.json"))


def quick(endpoint: str, token: str | None = TOKEN, certificates: Path | None = None) -> Hub:
    return Hub(endpoint=endpoint, token=token, certificates=certificates, retry_wait_s=0.001, small_file_s=10)


async def test_proxy_when_one_is_set_then_it_is_used_and_never_reads_the_token(
    checkpoint_folder: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Recording(forward)
    with running(proxy), ModelHost({REPO: checkpoint_folder()}) as host:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        with Hub(endpoint=host.endpoint, token=TOKEN) as hub:
            assert (await hub.info(REPO, "main"))["sha"] == host.revisions[REPO]
    assert proxy.paths
    assert set(proxy.authorizations) == {None}


async def test_proxy_when_the_host_is_named_in_no_proxy_then_it_is_left_out(
    checkpoint_folder: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = Recording(forward)
    with running(proxy), ModelHost({REPO: checkpoint_folder()}, gated={REPO: TOKEN}) as host:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with Hub(endpoint=host.endpoint, token=TOKEN) as hub:
            await hub.info(REPO, "main")
            await hub.small_file(FilePlace(REPO, "main", "config.json"))
    assert not proxy.paths


async def test_proxy_when_it_does_not_answer_then_the_sentence_shows_no_password(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://me:pa55word@127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "")
    with pytest.raises(Unavailable) as refused:
        await config_of(quick("http://192.0.2.1"))
    assert "pa55word" not in str(refused.value)


async def test_netrc_when_it_names_the_host_then_nothing_of_it_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1\nlogin me\npassword pa55word\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    elsewhere = Recording(saying(200, b"{}"))
    with running(elsewhere):
        host = Recording(redirecting(f"{elsewhere.url}/file"))
        with running(host):
            assert await config_of(quick(host.url, token=None)) == b"{}"
            assert await config_of(quick(host.url)) == b"{}"
    assert host.authorizations == [None, f"Bearer {TOKEN}"]
    assert elsewhere.authorizations == [None, None]


@pytest.mark.parametrize("status", [403, 404, 418, 500])
async def test_redirect_when_it_fails_elsewhere_then_the_sentence_shows_neither_signature_nor_token(
    status: int,
) -> None:
    elsewhere = Recording(saying(status))
    with running(elsewhere):
        host = Recording(redirecting(f"{elsewhere.url}/file?{SIGNATURE}"))
        with running(host), pytest.raises(KafilaError) as refused:
            await config_of(quick(host.url))
    assert SIGNATURE in elsewhere.paths[0]
    assert not [secret for secret in (SIGNATURE, TOKEN, "/file") if secret in str(refused.value)]
    assert set(elsewhere.authorizations) == {None}


async def test_redirect_when_it_leads_nowhere_or_in_circles_then_unavailable_without_its_address() -> None:
    for target in (f"http://127.0.0.1:9/file?{SIGNATURE}", f"/again?{SIGNATURE}"):
        host = Recording(redirecting(target))
        with running(host), pytest.raises(Unavailable) as refused:
            await config_of(quick(host.url))
        assert SIGNATURE not in str(refused.value)
        assert len(host.paths) <= 6 * 3


async def test_token_when_the_host_refuses_it_then_the_sentence_does_not_show_it() -> None:
    host = Recording(saying(401))
    with running(host), pytest.raises(Denied, match="HF_TOKEN") as refused:
        await config_of(quick(host.url))
    assert TOKEN not in str(refused.value)


async def test_body_when_it_stops_early_then_it_is_asked_for_again() -> None:
    def cut(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.send_header("Content-Length", "100")
        request.end_headers()
        request.wfile.write(b"{")
        request.close_connection = True

    host = Recording(cut)
    with running(host), pytest.raises(Unavailable, match=r"stopped in the middle|can't be reached"):
        await config_of(quick(host.url))
    assert len(host.paths) == 3


async def test_https_when_its_certificate_is_not_trusted_then_told_and_with_its_root_it_works(tmp_path: Path) -> None:
    certificate = self_signed(tmp_path)
    host = Recording(saying(200, b"{}"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    host.socket = context.wrap_socket(host.socket, server_side=True)
    endpoint = f"https://127.0.0.1:{host.server_port}"
    with running(host):
        with pytest.raises(Unavailable, match=r"certificate is not trusted .*SSL_CERT_FILE"):
            await config_of(quick(endpoint))
        assert await config_of(quick(endpoint, certificates=certificate)) == b"{}"


async def test_https_when_the_host_redirects_to_an_unencrypted_address_then_nothing_is_asked_there(
    tmp_path: Path,
) -> None:
    certificate = self_signed(tmp_path)
    elsewhere = Recording(saying(200, b"{}"))
    with running(elsewhere):
        host = Recording(redirecting(f"{elsewhere.url}/file"))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        host.socket = context.wrap_socket(host.socket, server_side=True)
        with running(host), pytest.raises(Unavailable, match="unencrypted"):
            await config_of(quick(f"https://127.0.0.1:{host.server_port}", certificates=certificate))
    assert not elsewhere.paths


async def test_hub_when_offline_then_nothing_is_asked() -> None:
    host = Recording(saying(200, b"{}"))
    with running(host), pytest.raises(Unavailable, match="HF_HUB_OFFLINE"):
        await config_of(Hub(endpoint=host.url, offline=True))
    assert not host.paths


def self_signed(folder: Path) -> Path:
    """Certificate and key for 127.0.0.1, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "model host")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "host.pem"
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path
