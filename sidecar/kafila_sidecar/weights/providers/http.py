"""One HTTP session with a model host, on `requests`: proxies and certificates as its users know them.

The token goes to the endpoint's own origin alone: not along with a redirect, not from a .netrc, and not in the clear
through a proxy. What goes wrong is told without addresses, since those of redirects are signed. Calls block: see
`weights.threads` for how they are waited for.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase
from requests.utils import select_proxy
from urllib3.exceptions import HTTPError

from kafila_sidecar.errors import Unavailable
from kafila_sidecar.weights.threads import Stop

CONNECT_S = 6.0
SILENCE_S = 30.0
"""The longest wait for the next byte of an answer."""
MAX_REDIRECTS = 5
MOST_CONNECTIONS = 8  # kept open


class Passing(Unavailable):
    """A failure that another try may cure, after `after_s` if the host said so."""

    def __init__(self, sentence: str, after_s: float = 0.0, *, short: str = "") -> None:
        """`short`: what happened, for a sentence that goes on; else it is the sentence itself."""
        super().__init__(sentence)
        self.after_s = after_s
        self.short = short or sentence


class HostSession(requests.Session):
    """Any thread may ask. `certificates`: a file or folder of roots in place of the usual ones."""

    def __init__(self, *, endpoint: str, token: str | None, certificates: Path | None = None) -> None:
        super().__init__()
        self.endpoint = endpoint
        self._origin = origin(endpoint)
        self.auth = TokenFor(self._origin, token)
        self.max_redirects = MAX_REDIRECTS
        self.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        self.headers = {"Accept-Encoding": "identity", "User-Agent": "kafila"}  # type: ignore[assignment]
        if certificates is not None:
            self.verify = str(certificates)
        for scheme in ("http://", "https://"):
            self.mount(scheme, HTTPAdapter(pool_maxsize=MOST_CONNECTIONS))

    @contextmanager
    def answer(self, url: str, what: str, headers: dict[str, str], stop: Stop) -> Iterator[requests.Response]:
        """The answer to a GET, its body unread, whatever its status; `stop` may end the wait for more.

        Raises Passing where another try may help, Unavailable where none will. `what` names it in sentences.
        """
        try:
            with (
                self.get(url, headers=headers, stream=True, timeout=(CONNECT_S, SILENCE_S)) as response,
                stop.while_receiving(response.raw.shutdown),
            ):
                yield response
        except requests.TooManyRedirects:
            raise Unavailable(f"the model host {self.endpoint} redirects {what} again and again") from None
        except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
            raise self._passing(what, error) from None
        except (HTTPError, OSError) as error:  # of the body, which is read without `requests`
            if isinstance(error, requests.RequestException):
                raise Unavailable(f"the model host {self.endpoint} failed for {what}: {reason(error)}") from None
            raise self._passing(what, error) from None

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        """Refuses to go on unencrypted from an encrypted host."""
        target = super().get_redirect_target(resp)
        if target is not None and self._origin[0] == "https" and urlsplit(target).scheme not in ("https", ""):
            resp.close()
            raise Unavailable(f"{self.endpoint} redirects to an unencrypted address: refused")
        return target

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """After a redirect: the token only where it belongs, and nothing of a .netrc."""
        prepared_request.headers.pop("Authorization", None)
        prepared_request.prepare_auth(self.auth)

    def send(self, request: requests.PreparedRequest, **kwargs: Any) -> requests.Response:
        """A proxy reads what is not encrypted: no token then."""
        if urlsplit(request.url).scheme == "http" and select_proxy(str(request.url), kwargs.get("proxies")):
            request.headers.pop("Authorization", None)
        return super().send(request, **kwargs)

    def _passing(self, what: str, error: Exception) -> Passing:
        why = reason(error)
        return Passing(
            f"the model host {self.endpoint} can't be reached for {what}: {why}",
            short=f"the model host can't be reached ({why})",
        )


class TokenFor(AuthBase):
    """Shows the token to one origin. Present without a token too, since `requests` would ask a .netrc otherwise."""

    def __init__(self, at: tuple[str, str, int | None], token: str | None) -> None:
        self._at = at
        self._token = token

    def __call__(self, r: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token is not None and origin(str(r.url)) == self._at:
            r.headers["Authorization"] = f"Bearer {self._token}"
        return r


def origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port (RFC 6454)."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname or "", _port(parts)


def _port(parts: SplitResult) -> int | None:
    return parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def reason(error: BaseException) -> str:
    """Why, in the system's own words where it has some; never an address, which may hold a secret."""
    for cause in causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"its certificate is not trusted ({cause.verify_message}): name the right roots in SSL_CERT_FILE"
        if isinstance(cause, OSError) and cause.strerror and not isinstance(cause, requests.RequestException):
            return cause.strerror
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy does not answer: check HTTPS_PROXY and NO_PROXY"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    return type(error).__name__


def causes(error: BaseException) -> Iterator[BaseException]:
    """The error and those behind it, the innermost first; libraries hand them over in `args` too."""
    found: list[BaseException] = []
    unread: list[BaseException] = [error]
    while unread:
        one = unread.pop()
        if any(one is known for known in found):
            continue
        found.append(one)
        nearest = [one.__cause__, one.__context__, getattr(one, "reason", None), *one.args]
        unread += [cause for cause in nearest if isinstance(cause, BaseException)]
    return reversed(found)
