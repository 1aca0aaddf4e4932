"""Rows in Redis or Valkey: a string per row, whose first 19 characters are the number of its write.

The commands of a batch are pipelined: one round trip. A script on the server compares the numbers, as texts of fixed
width, because Lua's floating-point numbers would lose the low bits.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha1
from typing import Any

from redis import ConnectionPool, RedisError
from redis.backoff import NoBackoff
from redis.exceptions import (
    AuthenticationError,
    ClusterDownError,
    MasterDownError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)
from redis.retry import Retry

from microbatch.stores.port import OWN, Deletion, Found, Row, WriteResult, tenant_name
from microbatch.stores.versions import HEAD_BYTES, Head
from streamtable.errors import ConfigurationError, RetryLater, StateLost

# KEYS: rows. ARGV: the number (zero: no condition), the TTL in milliseconds (0: none), then for each row the part after
# its number. Returns the indexes of the rejected rows. An error ends the script: rows written before it stay.
_SCRIPT = b"""
local refused = {}
local plain = ARGV[1] == string.rep('0', 19)
for place, key in ipairs(KEYS) do
  local data = ARGV[place + 2]
  local done
  if not plain and redis.call('GETRANGE', key, 0, 18) > ARGV[1] then
    refused[#refused + 1] = place
  elseif plain and data == '-' then
    redis.call('DEL', key)
  elseif ARGV[2] == '0' then
    done = redis.pcall('SET', key, ARGV[1] .. data)
  else
    done = redis.pcall('SET', key, ARGV[1] .. data, 'PX', ARGV[2])
  end
  if done and done.err then return done end
end
return refused
"""
# KEYS: rows. ARGV: the number of each. Removes the rows that still have their number, and returns how many.
_FORGET = b"""
local gone = 0
for place, key in ipairs(KEYS) do
  if redis.call('GETRANGE', key, 0, 18) == ARGV[place] then
    gone = gone + redis.call('DEL', key)
  end
end
return gone
"""
_SHA = sha1(_SCRIPT, usedforsecurity=False).hexdigest().encode()  # the script's name in Redis
_DIGITS = 19
_ROW, _DELETED = b"+", b"-"
_PAGE = 1000
_CHUNK = 200  # rows per script call, which blocks all other clients for about 200 microseconds
# Transient errors: full memory, a replica after or before a failover, a failing disk, start-up.
_PASSING = (OutOfMemoryError, ReadOnlyError, MasterDownError, TryAgainError, ClusterDownError)
# In a script, Redis 6 prefixes them with the place: "@user_script: 12: -READONLY You can't write ...".
_PASSING_CODES = re.compile("(^|: -)(?:BUSY|LOADING|MASTERDOWN|MISCONF|NOREPLICAS|OOM|READONLY|UNKILLABLE) ")


class RedisDriver:
    """A tenant's rows in one Redis or Valkey. Redis Cluster is not supported.

    Args:
        url: `redis://user:password@host:6379/0`, `rediss://` with TLS, `unix:///path`.
        tenant: The tenant of the rows; the keys in Redis are `<tenant>:<key>`.
        ttl: The time to live of a row after its last write, in seconds; None: unlimited. Ledger rows have none.
        replicas: The number of replicas that must have a write before it is acknowledged; with 0, a failover can lose it.
    """

    def __init__(self, url: str, *, tenant: str, ttl: float | None = None, replicas: int = 0) -> None:
        if ttl is not None and ttl < 1:
            raise ConfigurationError(f"a row cannot live for {ttl} s: a second at least")
        self._prefix = tenant_name(tenant).encode() + b":"
        self.ttl = ttl
        self._ttl_ms = b"%d" % int((ttl or 0) * 1000)
        self._replicas = replicas
        try:
            # One attempt only: retries are up to the caller.
            self._pool = ConnectionPool.from_url(
                url,
                socket_connect_timeout=3.0,
                socket_timeout=3.0,
                retry=Retry(NoBackoff(), 0),
                protocol=2,
                max_connections=2,
            )
        except ValueError as error:
            raise ConfigurationError(f"not the address of a Redis: {error}") from error

    def read(self, keys: Sequence[bytes], timeout: float) -> Found:
        (answer,) = self.ask([(b"MGET", *(self._prefix + key for key in keys))], timeout)
        if isinstance(answer, ResponseError):
            return Found({}, dict.fromkeys(keys, self.passing(answer)))
        rows = {}
        for key, text in zip(keys, answer, strict=True):
            if text is None or text[_DIGITS : _DIGITS + 1] == _DELETED:
                continue
            if text[_DIGITS : _DIGITS + 1] != _ROW or not text[:_DIGITS].isdigit():
                raise StateLost(
                    f"{(self._prefix + key)!r} in Redis is not a row of this library: another program wrote it"
                )
            rows[key] = Row(int(text[:_DIGITS]), text[_DIGITS + 1 :])
        return Found(rows)

    def write(self, rows: Mapping[bytes, bytes | None], number: int | None, timeout: float) -> WriteResult:
        chunks = _chunks(rows)
        commands = [self._command({key: rows[key] for key in chunk}, number) for chunk in chunks]
        answers, replicas = self._write(commands, timeout)
        if any(isinstance(answer, NoScriptError) for answer in answers):
            # The script is missing after a restart, a failover or a script flush. Writing chunks twice is harmless.
            answers, replicas = self._write([(b"SCRIPT", b"LOAD", _SCRIPT), *commands], timeout)
            del answers[0]
        failed: dict[bytes, str] = {}
        refused: set[bytes] = set()
        for chunk, answer in zip(chunks, answers, strict=True):
            if isinstance(answer, ResponseError):
                failed.update(dict.fromkeys(chunk, self.passing(answer)))
            else:
                refused.update(chunk[place - 1] for place in answer)
        if replicas < self._replicas:
            failed = dict.fromkeys(rows, f"{replicas} of {self._replicas} replicas have it") | failed
        return WriteResult(failed, frozenset(refused))

    def flush(self, timeout: float) -> None:
        """Do nothing: a write in Redis is visible at once."""

    def close(self) -> None:
        self._pool.disconnect()

    def _command(self, rows: Mapping[bytes, bytes | None], number: int | None) -> Sequence[bytes]:
        names = (self._prefix + key for key in rows)
        data = (_DELETED if each is None else _ROW + each for each in rows.values())
        digits = b"%0*d" % (_DIGITS, number or 0)
        ttl_ms = b"0" if next(iter(rows)).startswith(OWN) else self._ttl_ms
        return (b"EVALSHA", _SHA, b"%d" % len(rows), *names, digits, ttl_ms, *data)

    def _write(self, commands: Sequence[Sequence[bytes]], timeout: float) -> tuple[list[Any], int]:
        """Return the answers, and the number of replicas that have all writes (counted only up to the required number)."""
        if not self._replicas:
            return self.ask(commands, timeout), 0
        # Half of the timeout, so that an answer such as "one of two" arrives in time.
        wait = (b"WAIT", b"%d" % self._replicas, b"%d" % max(1, int(timeout * 500)))
        *answers, replicas = self.ask([*commands, wait], timeout)
        if isinstance(replicas, ResponseError):
            raise RetryLater(f"Redis: {self.passing(replicas)}")
        return answers, replicas

    def ask(self, commands: Sequence[Sequence[bytes]], timeout: float) -> list[Any]:
        """Send all commands, then read the answers; an error of Redis takes the place of its answer.

        Raises:
            RetryLater: There is no answer.
            ConfigurationError: Redis rejects the login.
        """
        try:
            connection: Any = self._pool.get_connection()  # many of its methods have no types
            try:
                connection.send_packed_command([b"".join(map(_packed, commands))])
                answers: list[Any] = []
                for _ in commands:
                    try:
                        answers.append(connection.read_response(timeout=timeout))
                    except ResponseError as error:
                        answers.append(error)
                if any(isinstance(answer, ResponseError) for answer in answers):
                    connection.disconnect()  # if it is a replica now, the host name may lead to the new master
            except BaseException:
                connection.disconnect()  # unread responses are still in flight
                raise
            finally:
                self._pool.release(connection)
        except ResponseError as error:  # from the handshake: password, database, or Redis is still loading
            raise RetryLater(f"Redis: {self.passing(error)}") from error
        except AuthenticationError as error:
            raise ConfigurationError(f"Redis refuses: {error}") from error
        except (RedisError, OSError) as error:
            raise RetryLater(f"Redis: {error}") from error
        return answers

    def deletions(self, timeout: float) -> Iterator[Sequence[Deletion]]:
        """Yield rows whose cell is a deletion. Scans all keys of the database, including other tenants' keys."""
        cursor = b"0"
        pattern = self._prefix + b"*"
        while True:
            (answer,) = self.ask([(b"SCAN", cursor, b"MATCH", pattern, b"COUNT", b"%d" % _PAGE)], timeout)
            if isinstance(answer, ResponseError):
                raise RetryLater(f"Redis: {self.passing(answer)}")
            cursor, keys = answer
            ranges = [(b"GETRANGE", key, b"0", b"%d" % (_DIGITS + HEAD_BYTES)) for key in keys]
            starts = self.ask(ranges, timeout) if ranges else []
            found = []
            for key, start in zip(keys, starts, strict=True):
                if isinstance(start, ResponseError) or start[_DIGITS : _DIGITS + 1] != _ROW:
                    continue  # not a string, deleted meanwhile, or not a cell
                head = Head.of(start[_DIGITS + 1 :])
                if head and head.deleted:
                    found.append(Deletion(key[len(self._prefix) :], int(start[:_DIGITS]), head.partition))
            yield found
            if cursor == b"0":
                return

    def forget(self, deletions: Sequence[Deletion], timeout: float) -> int:
        if not deletions:
            return 0
        keys = [self._prefix + each.key for each in deletions]
        numbers = [b"%0*d" % (_DIGITS, each.number) for each in deletions]
        (answer,) = self.ask([(b"EVAL", _FORGET, b"%d" % len(keys), *keys, *numbers)], timeout)
        if isinstance(answer, ResponseError):
            raise RetryLater(f"Redis: {self.passing(answer)}")
        return int(answer)

    @staticmethod
    def passing(error: Exception) -> str:
        """Return the reason if a retry makes sense; otherwise raise the error."""
        if isinstance(error, _PASSING) or _PASSING_CODES.search(str(error)):
            return str(error)
        raise ConfigurationError(f"Redis refuses: {error}") from error


def _chunks(keys: Iterable[bytes]) -> list[list[bytes]]:
    """Split keys into the chunks of one script each: the library's own rows separately, as they have no TTL."""
    parts: tuple[list[bytes], list[bytes]] = ([], [])
    for key in keys:
        parts[key.startswith(OWN)].append(key)
    return [part[at : at + _CHUNK] for part in parts for at in range(0, len(part), _CHUNK)]


def _packed(command: Sequence[bytes]) -> bytes:
    """Encode a command. The client's own encoder checks the type of each argument, which takes three times as long."""
    arguments = b"".join([b"$%d\r\n%b\r\n" % (len(each), each) for each in command])
    return b"*%d\r\n%b" % (len(command), arguments)
