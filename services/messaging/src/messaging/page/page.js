"use strict";

const element = (id) => document.getElementById(id);
let source = null;

function say(text, wrong = false) {
  element("status").textContent = text;
  element("status").classList.toggle("wrong", wrong);
}

async function post(address, body, done) {
  try {
    const answer = await fetch(address, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    if (answer.ok) {
      say(done);
      return true;
    }
    const problem = await answer.json();
    const errors = (problem.errors ?? []).map((error) => `${error.where.replace(/^body\./, "")} ${error.what}`);
    say(errors.join("; ") || problem.detail, true);
  } catch {
    say("The service does not answer. Try again.", true);
  }
  return false;
}

function item(message) {
  const made = document.createElement("li");
  const head = document.createElement("header");
  const sender = document.createElement("strong");
  sender.textContent = message.sender;
  const time = document.createElement("time");
  time.dateTime = new Date(message.at).toISOString();
  time.textContent = new Date(message.at).toLocaleTimeString();
  const block = document.createElement("button");
  block.type = "button";
  block.textContent = "Block";
  block.setAttribute("aria-label", `Block ${message.sender}`);
  block.addEventListener("click", () => setBlocked(message.sender, true));
  head.append(sender, time, block);
  const text = document.createElement("p");
  text.textContent = message.text;
  made.append(head, text);
  made.dataset.id = message.id;
  return made;
}

/* Only what is new is added, at the top: so a screen reader reads that, and not the whole feed again. */
function show(messages) {
  const feed = element("feed");
  const wanted = new Set(messages.map((message) => message.id));
  const shown = new Set();
  for (const each of [...feed.children]) {
    if (wanted.has(each.dataset.id)) shown.add(each.dataset.id);
    else each.remove();
  }
  for (const message of messages) {
    if (!shown.has(message.id)) feed.prepend(item(message));
  }
  element("nothing").textContent = "Nothing was written to you yet.";
  element("nothing").hidden = messages.length > 0;
}

function follow(user) {
  source?.close();
  element("feed").replaceChildren();
  source = new EventSource(`users/${encodeURIComponent(user)}/feed/events`);
  source.addEventListener("feed", (event) => show(JSON.parse(event.data).messages));
  source.addEventListener("open", () => say(`This is the feed of ${user}.`));
  source.addEventListener("error", () => {
    const ended = source.readyState === EventSource.CLOSED;
    say(ended ? "This feed cannot be shown: the name may be wrong, or too many feeds are open." : "The connection is lost; trying again.", true);
  });
}

function setBlocked(sender, blocked) {
  const done = blocked ? `You get no more messages of ${sender}.` : `You get messages of ${sender} again.`;
  return post("blocks", { sender, recipient: element("user").value, blocked }, done);
}

function onSubmit(id, action) {
  element(id).addEventListener("submit", (event) => {
    event.preventDefault();
    if (id !== "who" && !element("user").value) {
      say("Say who you are first.", true);
      element("user").focus();
      return;
    }
    action();
  });
}

onSubmit("who", () => {
  location.hash = encodeURIComponent(element("user").value);
  follow(element("user").value);
});

onSubmit("send", async () => {
  const [recipient, text] = [element("recipient").value, element("text").value];
  if (await post("messages", { sender: element("user").value, recipient, text }, `Sent to ${recipient}.`)) {
    element("text").value = "";
    element("text").focus();
  }
});

onSubmit("unblock", () => setBlocked(element("unblocked").value, false));

onSubmit("translate", () => {
  const [word, replacement] = [element("word").value, element("replacement").value || null];
  const done = replacement === null ? `“${word}” is not replaced any more.` : `“${word}” is replaced from now on.`;
  return post("translations", { word, replacement }, done);
});

if (location.hash) {
  element("user").value = decodeURIComponent(location.hash.slice(1));
  follow(element("user").value);
}
