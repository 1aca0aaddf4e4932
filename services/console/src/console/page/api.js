// Requests to the service, and the events that it sends. A key, if one is asked for, lives as long as this tab.

import { element } from "./dom.js";

const KEY = "streamtable-console-key";
let asking = null;

export class Problem extends Error {}

function headers(more) {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...more, Authorization: `Bearer ${key}` } : { ...more };
}

function askForKey(problem) {
  asking ??= new Promise((done) => {
    const dialog = element("sign-in");
    element("sign-in-problem").textContent = problem;
    element("sign-in-form").onsubmit = () => {
      sessionStorage.setItem(KEY, element("key").value.trim());
      element("key").value = "";
      asking = null;
      done();
    };
    dialog.oncancel = (event) => event.preventDefault();
    if (!dialog.open) dialog.showModal();
  });
  return asking;
}

async function asked(address, options = {}) {
  for (;;) {
    const key = sessionStorage.getItem(KEY);
    const answer = await fetch(address, { ...options, headers: headers(options.headers) });
    if (answer.status !== 401) return answer;
    if (key === sessionStorage.getItem(KEY)) await askForKey(key ? "This key is not known." : "");
  }
}

async function problem(answer) {
  const document = await answer.json().catch(() => ({}));
  const errors = (document.errors ?? []).map((each) => `${each.where.replace(/^(query|path|body)\./, "")} ${each.what}`);
  return new Problem(errors.join("; ") || document.detail || `the service answered ${answer.status}`);
}

export async function get(address, signal) {
  for (let attempt = 0; ; attempt += 1) {
    const answer = await asked(address, { signal });
    if (answer.ok) return answer.json();
    // A table that is looked at for the first time is loaded first.
    if (answer.status !== 503 || attempt >= 5) throw await problem(answer);
    await new Promise((done) => setTimeout(done, 1000));
  }
}

export async function post(address, body) {
  const answer = await asked(address, {
    method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  });
  if (!answer.ok) throw await problem(answer);
  return answer.json();
}

function untilShown() {
  return new Promise((done) => {
    function look() {
      if (document.hidden) return;
      document.removeEventListener("visibilitychange", look);
      done();
    }
    document.addEventListener("visibilitychange", look);
    look();
  });
}

// Server-sent events, by hand: the browser's own EventSource cannot authenticate. Browsers open six connections to a server,
// so a page that is in the background, or that is kept for the button "Back", closes its own until it is shown again.
export function follow(address, onEvent, connected = () => {}) {
  const stop = new AbortController();
  (async () => {
    while (!stop.signal.aborted) {
      await untilShown();
      const hidden = new AbortController();
      const hide = () => { if (document.hidden) hidden.abort(); };
      document.addEventListener("visibilitychange", hide);
      try {
        const answer = await asked(address, { signal: AbortSignal.any([stop.signal, hidden.signal]) });
        if (!answer.ok) throw await problem(answer);
        connected(true);
        await events(answer.body.pipeThrough(new TextDecoderStream()).getReader(), onEvent);
      } catch (error) {
        if (stop.signal.aborted) return;
        if (!hidden.signal.aborted) connected(false, error);
      } finally {
        document.removeEventListener("visibilitychange", hide);
      }
      if (!hidden.signal.aborted) await new Promise((done) => setTimeout(done, 1500));
    }
  })();
  return () => stop.abort();
}

async function events(reader, onEvent) {
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = Object.fromEntries(part.split("\n").map((line) => {
        const colon = line.indexOf(":");
        return [line.slice(0, colon), line.slice(colon + 1).trimStart()];
      }));
      if (fields.event) onEvent(fields.event, JSON.parse(fields.data));
    }
  }
}
