"""A headless Chromium, driven by the WebDriver protocol; no package is needed for the few calls that tests make."""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from localkafka.process import reserve_port
from localkafka.waiting import Deadline

_INTERRUPTED = "ERR_NETWORK_CHANGED"
ATTACKER = "attacker.example"
TAB, ENTER, SPACE = "\ue004", "\ue007", "\ue00d"


class Browser:
    """One window.

    Args:
        http: to the driver, at the session's address.
    """

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self._said: list[str] = []

    def _post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        answer = self._http.post(path, json=body or {}).json()["value"]
        if isinstance(answer, dict) and "error" in answer:
            raise AssertionError(f"{answer['error']}: {answer['message'][:500]}")
        return answer

    def open(self, url: str) -> None:
        for _ in range(10):
            answer = self._http.post("/url", json={"url": url}).json()["value"]
            if answer is None and not self._interrupted():
                return
        raise AssertionError(f"{url} cannot be opened: {answer}")

    def back(self) -> None:
        """Go back as the browser's button does. A script could not: its own page, which is to answer, is left."""
        self._post("/back")

    def _interrupted(self) -> bool:
        """Chromium aborts pending requests whenever a network interface of the machine comes or goes."""
        said = [each["message"] for each in self._log("browser") if each["level"] in {"SEVERE", "WARNING"}]
        self._said += [each for each in said if _INTERRUPTED not in each]
        return any(_INTERRUPTED in each for each in said)

    def run(self, script: str, *arguments: Any) -> Any:
        """Run the body of a function and return its result."""
        return self._post("/execute/sync", {"script": script, "args": arguments})

    def text(self, selector: str = "body") -> str:
        """Return the visible text of the first matching element; "" if there is none."""
        script = "const e = document.querySelector(arguments[0]); return e?.innerText ?? e?.textContent ?? ''"
        return str(self.run(script, selector))

    def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Wait until it is true, and return what it gave."""
        deadline = Deadline(seconds)
        while not (found := condition()):
            if deadline.passed():
                said = f"the page says: {self.text()[:2000]}; the browser says: {self.complaints()}"
                raise AssertionError(f"it did not come true in time; {said}")
            if self._interrupted():
                self._post("/refresh")
            time.sleep(0.2)
        return found

    def until_text(self, *parts: str, selector: str = "body", seconds: float = 60.0) -> None:
        self.until(lambda: all(part in self.text(selector) for part in parts), seconds)

    def press(self, *keys: str) -> None:
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._post("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def command(self, name: str, **parameters: Any) -> Any:
        """A command of Chromium's own protocol."""
        return self._post("/goog/cdp/execute", {"cmd": name, "params": parameters})

    def look(self, *, width: int, height: int, dark: bool, phone: bool = False) -> None:
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[feature])

    def picture(self, path: Path, *, whole: bool = False) -> None:
        found = self.command("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def processor_seconds(self) -> float:
        """Return the processor time of the page's thread so far; the time of the clock says little on a shared machine."""
        self.command("Performance.enable", timeDomain="threadTicks")
        found = self.command("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in found if each["name"] == "TaskDuration"))

    def complaints(self) -> list[str]:
        """Return the errors in the browser's console since the last call: of scripts, policy and network."""
        self._interrupted()
        found, self._said = self._said, []
        return found

    def requested(self) -> set[str]:
        """The addresses that were asked for since the last time."""
        events = [json.loads(each["message"])["message"] for each in self._log("performance")]
        return {
            each["params"]["request"]["url"]
            for each in events
            if each["method"] == "Network.requestWillBeSent"
        }

    def _log(self, kind: str) -> list[dict[str, Any]]:
        return list(self._post("/se/log", {"type": kind}))


def missing() -> str:
    """Return the reason why no browser can be started; "" if one can."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser whose profile is in `folder`."""
    with (
        reserve_port() as held,
        _driver(held.getsockname()[1]) as url,
        httpx.Client(base_url=url, timeout=120) as http,
    ):
        _wait_for(http)
        session = http.post("/session", json={"capabilities": {"alwaysMatch": _capabilities(folder)}}).json()
        name = session["value"]["sessionId"]
        try:
            with httpx.Client(base_url=f"{url}/session/{name}", timeout=120) as own:
                yield Browser(own)
        finally:
            http.delete(f"/session/{name}")


@contextmanager
def _driver(port: int) -> Iterator[str]:
    with subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as driver:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            driver.terminate()


def _capabilities(folder: Path) -> dict[str, Any]:
    arguments = [
        "--headless=new",
        "--no-sandbox",  # tests may run as root
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--window-size=1360,900",
        f"--host-resolver-rules=MAP {ATTACKER} 127.0.0.1",  # what DNS rebinding comes to
        f"--user-data-dir={folder / 'profile'}",
    ]
    return {
        "browserName": "chrome",
        "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": arguments},
        "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
    }


def _wait_for(http: httpx.Client) -> None:
    end = Deadline(60)
    while True:
        try:
            if http.get("/status").json()["value"]["ready"]:
                return
        except httpx.HTTPError:
            pass
        assert not end.passed(), "the driver does not answer"
        time.sleep(0.1)
