"""The store of micro-batches, named by a URL, as in `STREAMTABLE_STORE`. A server's client is imported when it is
needed.

docs/reference/stores.md lists the parameters; a test compares it with `PARAMETERS`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, NamedTuple, NoReturn
from urllib.parse import quote, unquote

from microbatch.stores.memory import MemoryDriver
from microbatch.stores.port import Admin, Driver
from streamtable.errors import ConfigurationError

Kind = Literal["embedded", "memory", "redis", "elasticsearch", "cassandra"]
FIELD_TYPES = ("keyword", "text", "long", "double", "boolean", "date")
FORMS: Mapping[Kind, str] = {
    "embedded": "embedded:",
    "memory": "memory:",
    "redis": "redis://[user:password@]host[:6379][/database], rediss:// with TLS",
    "elasticsearch": "elasticsearch+https://[user:password@]host[:9200]/alias, elasticsearch+http:// without TLS",
    "cassandra": "cassandra://[user:password@]host[,host][:9042]/keyspace/table",
}
_HERE: tuple[Kind, ...] = ("embedded", "memory")
"""The kinds without a server, and thus without hosts and parameters."""
_SCHEMES: Mapping[str, tuple[Kind, bool]] = {
    "redis": ("redis", False),
    "rediss": ("redis", True),
    "elasticsearch+http": ("elasticsearch", False),
    "elasticsearch+https": ("elasticsearch", True),
    "cassandra": ("cassandra", False),
}
_PORTS: Mapping[Kind, int] = {"redis": 6379, "elasticsearch": 9200, "cassandra": 9042}
_URL = re.compile(
    r"(?P<scheme>[a-z+]+)://(?:(?P<login>[^@/?#]*)@)?(?P<hosts>[^@/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?"
)
_SCHEME = re.compile(r"[a-z][a-z+]{0,30}(?=:)")
_HOST = re.compile(r"(?P<host>\[[0-9a-fA-F:.]{2,45}\]|[A-Za-z0-9_.-]{1,253})(?::(?P<port>[0-9]{1,5}))?")
_PATHS: Mapping[Kind, tuple[re.Pattern[str], str]] = {
    "redis": (re.compile(r"/?|/[0-9]{1,4}"), "the path is the number of a database, /0"),
    "elasticsearch": (
        re.compile(r"/[a-z0-9][a-z0-9._-]{0,199}"),
        "the path is the alias of an index, in lower-case letters, digits, dots, hyphens and underscores",
    ),
    "cassandra": (
        re.compile(r"/[a-z][a-z0-9_]{0,47}/[a-z][a-z0-9_]{0,47}"),
        "the path is /keyspace/table, each of 1 to 48 lower-case letters, digits and underscores",
    ),
}
_FIELD = re.compile(rf"[a-z][a-z0-9_]{{0,49}}:({'|'.join(FIELD_TYPES)})")
_LARGEST_PORT = 65_535
_DAY = 86_400


class Parameter(NamedTuple):
    """A parameter of a store's URL.

    Attributes:
        parse: The parser of its text; raises `ValueError` that names the expected form.
        default: The parsed default.
        secret: Whether its value must not be shown.
    """

    parse: Callable[[str], Any]
    default: Any
    secret: bool = False


def _whole(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", text) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def _name(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", text):
        raise ValueError("letters, digits, dots, hyphens and underscores")
    return text


def _text(text: str) -> str:
    if not text or not text.isprintable():
        raise ValueError("text that is not empty")
    return text


def _replicas_by_datacenter(text: str) -> Mapping[str, int]:
    matches = [re.fullmatch(r"([A-Za-z0-9_.-]{1,100}):([1-9])", part) for part in text.split(",")]
    found = {match[1]: int(match[2]) for match in matches if match}
    if len(found) < len(matches):
        raise ValueError("the number of replicas in each datacenter, dc1:3 or dc1:3,dc2:3")
    return found


def _fields(text: str) -> Mapping[str, str]:
    parts = text.split(",")
    names = {part.split(":")[0] for part in parts}
    if not all(_FIELD.fullmatch(part) for part in parts) or len(names) < len(parts):
        raise ValueError(
            f"name:type, several separated by commas, each name once; types are {', '.join(FIELD_TYPES)}"
        )
    return dict(part.split(":", 1) for part in parts)


_TTL = Parameter(_whole(1, 20 * 365 * _DAY), None)
_CA = Parameter(_text, None)
PARAMETERS: Mapping[Kind, Mapping[str, Parameter]] = {
    "embedded": {},
    "memory": {},
    "redis": {"ttl": _TTL, "replicas": Parameter(_whole(0, 9), 0), "ca": _CA},
    "elasticsearch": {
        "fields": Parameter(_fields, {}),
        "shards": Parameter(_whole(1, 1024), 1),
        "replicas": Parameter(_whole(0, 9), 1),
        "refresh": Parameter(_whole(1, 3600), 1),
        "api_key": Parameter(_text, None, secret=True),
        "ca": _CA,
    },
    "cassandra": {
        "datacenter": Parameter(_name, None),
        "replicas": Parameter(_replicas_by_datacenter, None),
        "forgets_after": Parameter(_whole(3600, 365 * _DAY), 10 * _DAY),
        "ttl": _TTL,
    },
}


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """The address and the options of a group's store. Its `str` and `repr` contain no secret.

    Attributes:
        kind: The kind of server.
        tls: Whether connections use TLS.
        hosts: The addresses, as `(host, port)`.
        path: The path of the URL, without the first slash.
        user: The user name; None for no authentication.
        password: The password of the user.
        parameters: The value of each parameter in `PARAMETERS`.
    """

    kind: Kind
    tls: bool = False
    hosts: tuple[tuple[str, int], ...] = ()
    path: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    parameters: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, url: str) -> "StoreSettings":
        """Parse a URL.

        Raises:
            ConfigurationError: The URL is malformed, or has an unknown kind of store or parameter. The message says
                which values are allowed, and shows neither user nor password.
        """
        for kind in _HERE:
            if url == FORMS[kind]:
                return cls(kind)
        found = _SCHEME.match(url)
        scheme = found[0] if found else ""
        if scheme not in _SCHEMES:
            said = f"{scheme!r} is no kind of store" if scheme else "it begins with no kind of store"
            _refuse(f"{said}; {_allowed()}")
        kind, tls = _SCHEMES[scheme]
        match = _URL.fullmatch(url)
        if match is None or not url.isprintable():
            _refuse(
                f"expected {FORMS[kind]}; in user and password, @ : / ? # % are written as %40 %3A %2F %3F %23 %25"
            )
        user, password = _login(match["login"])
        shape, expected = _PATHS[kind]
        path = match["path"] or ""
        if not shape.fullmatch(path):
            _refuse(f"expected {FORMS[kind]}: {expected}")
        hosts = _hosts(kind, match["hosts"])
        parameters = _parameters(kind, match["query"] or "")
        if parameters.get("ca") and not tls:
            _refuse(f"the parameter 'ca' is for TLS, which {scheme}:// does not use")
        if parameters.get("api_key") and user:
            _refuse("give either a user or the parameter 'api_key'")
        return cls(kind, tls, hosts, path[1:], user, password, parameters)

    def __str__(self) -> str:
        if self.kind in _HERE:
            return FORMS[self.kind]
        (scheme,) = (each for each, what in _SCHEMES.items() if what == (self.kind, self.tls))
        hosts = ",".join(f"{host}:{port}" for host, port in self.hosts)
        return f"{scheme}://{hosts}/{self.path}"

    def driver(self, tenant: str) -> Driver:
        """Return the driver; it does not connect before its first call.

        Raises:
            ConfigurationError: The tenant's name is invalid, the server's client is not installed (the message says
                what to install), or the store is embedded and has no server.
        """
        return self._made(tenant)[0]

    def admin(self, tenant: str) -> Admin:
        """Return the driver's admin, which creates and examines the store; close it after use.

        Raises:
            ConfigurationError: As in `driver`, and for a store in memory, which another process cannot administer.
        """
        admin = self._made(tenant)[1]
        if admin is None:  # in memory
            _refuse("a store in memory is gone with its process: there is nothing to create, check or sweep")
        return admin

    def _made(self, tenant: str) -> tuple[Driver, Admin | None]:
        given = self.parameters
        if self.kind == "embedded":
            _refuse(
                "embedded rows are in the group's table and in its processes' state_dir, not in a server: its topic "
                "is created by `streamtable topics apply`, and there is nothing else to create, check or sweep"
            )
        if self.kind == "memory":
            return MemoryDriver(tenant=tenant), None
        module, admin = self._module(self.kind), import_module(f"microbatch.stores.{self.kind}_admin")
        match self.kind:
            case "redis":
                driver = module.RedisDriver(
                    self._redis_url(), tenant=tenant, ttl=given["ttl"], replicas=given["replicas"]
                )
                return driver, admin.RedisAdmin(driver, replicas=given["replicas"])
            case "elasticsearch":
                login = {"basic_auth": (self.user, self.password or "")} if self.user else {}
                options = {name: given[each] for each, name in _ELASTIC_OPTIONS.items() if given[each]}
                scheme = "https" if self.tls else "http"
                driver = module.ElasticsearchDriver(
                    [f"{scheme}://{host}:{port}" for host, port in self.hosts],
                    alias=self.path,
                    tenant=tenant,
                    options={**login, **options},
                )
                chosen = {name: given[name] for name in ("shards", "replicas", "refresh", "fields")}
                return driver, admin.ElasticsearchAdmin(driver, **chosen)
            case "cassandra":
                keyspace, _, table = self.path.partition("/")
                driver = module.CassandraDriver(
                    [host.strip("[]") for host, _ in self.hosts],
                    port=self.hosts[0][1],
                    keyspace=keyspace,
                    table=table,
                    tenant=tenant,
                    datacenter=given["datacenter"],
                    user=self.user,
                    password=self.password,
                    ttl=given["ttl"],
                )
                return driver, admin.CassandraAdmin(
                    driver, replicas=given["replicas"], forgets_after=given["forgets_after"]
                )

    def _module(self, name: str) -> Any:
        try:
            return import_module(f"microbatch.stores.{name}")
        except ModuleNotFoundError as error:
            if error.name is None or error.name.partition(".")[0] != name:
                raise
            raise ConfigurationError(
                f"the client of {name} is not installed: pip install 'streamtable-microbatch[{name}]'"
            ) from error

    def _redis_url(self) -> str:
        login = ":".join(quote(each or "", safe="") for each in (self.user, self.password))
        login = f"{login}@" if self.user or self.password else ""
        ((host, port),) = self.hosts
        ca = f"?ssl_ca_certs={quote(self.parameters['ca'], safe='')}" if self.parameters["ca"] else ""
        return f"{'rediss' if self.tls else 'redis'}://{login}{host}:{port}/{self.path or 0}{ca}"


_ELASTIC_OPTIONS = {"api_key": "api_key", "ca": "ca_certs"}


def service_driver(url: str | None, tenant: str) -> Driver | None:
    """Return the driver of the central store in a service's settings; None: its rows are embedded.

    Args:
        url: `STREAMTABLE_STORE`; None: `embedded:`.
        tenant: The tenant of the rows; by convention the group's name.

    Raises:
        ConfigurationError: As in `store_from`, and for `memory:`, which is gone with its process while the group's
            offsets stay.
    """
    settings = service_store(url)
    return None if settings.kind == "embedded" else settings.driver(tenant)


def service_store(url: str | None) -> StoreSettings:
    """Return the settings of a service's store. Raises like `service_driver`."""
    settings = StoreSettings.parse(url or FORMS["embedded"])
    if settings.kind == "memory":
        _refuse(
            "memory: is for tests and single runs. A restarted service would have its offsets but none of its "
            "rows: use embedded: (the default), which keeps rows in the group's table and needs no server, or name a "
            "central store"
        )
    return settings


def store_from(url: str, tenant: str) -> Driver:
    """Return the driver of the store at a URL, for a tenant's rows.

    Args:
        url: `STREAMTABLE_STORE`. With `memory:`, the rows belong to this driver alone and are gone with it.
        tenant: The tenant of the rows; by convention the group's name.

    Raises:
        ConfigurationError: The URL or the tenant is malformed, or the server's client is not installed.
    """
    return StoreSettings.parse(url).driver(tenant)


def _login(text: str | None) -> tuple[str | None, str | None]:
    if text is None:
        return None, None
    try:
        user, password = (unquote(part, errors="strict") for part in text.partition(":")[::2])
    except UnicodeDecodeError:
        # No cause: it contains the bytes.
        raise ConfigurationError(
            "the store's URL: the percent-encoded user or password is not UTF-8"
        ) from None
    return user or None, password or None


def _hosts(kind: Kind, text: str) -> tuple[tuple[str, int], ...]:
    matches = [_HOST.fullmatch(part) for part in text.split(",")]
    ports = {int(match["port"]) for match in matches if match and match["port"]}
    if not all(matches) or not all(0 < port <= _LARGEST_PORT for port in ports):
        _refuse(f"expected {FORMS[kind]}, with a port from 1 to {_LARGEST_PORT}")
    if kind == "redis" and len(matches) > 1:
        _refuse("one host is expected: a cluster of Redis is not supported")
    if kind == "cassandra" and len(ports) > 1:
        _refuse("all hosts of a Cassandra listen on the same port")
    default = ports.pop() if kind == "cassandra" and ports else _PORTS[kind]
    return tuple((match["host"], int(match["port"] or default)) for match in matches if match)


def _parameters(kind: Kind, query: str) -> dict[str, Any]:
    known = PARAMETERS[kind]
    given: dict[str, Any] = {}
    for part in query.split("&") if query else ():
        name, equals, text = part.partition("=")
        if name not in known or not equals or name in given:
            shown = repr(name) if re.fullmatch(r"[a-z_]{1,30}", name) else "one of them"
            allowed = ", ".join(known)
            _refuse(f"{shown} is not a parameter, has no value, or is repeated: {allowed} are allowed")
        try:
            given[name] = known[name].parse(unquote(text, errors="strict"))
        except ValueError as error:
            expected = "text in UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            shown = "" if known[name].secret else f"={text[:80]!r}"
            # No cause: its text may be a secret.
            raise ConfigurationError(
                f"the store's URL: parameter {name}{shown}: expected {expected}"
            ) from None
    return {name: given.get(name, each.default) for name, each in known.items()}


def _allowed() -> str:
    return "allowed are " + "; ".join(FORMS.values())


def _refuse(problem: str) -> NoReturn:
    raise ConfigurationError(f"the store's URL: {problem}")
