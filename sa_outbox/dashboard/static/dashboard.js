// Keeps the overview up to date. Everything else works without a script.
"use strict";

const live = document.getElementById("live");
const said = document.getElementById("live-state");

if (live && said && "EventSource" in window) {
  const word = document.createElement("span");
  const pause = document.createElement("button");
  pause.type = "button";
  pause.className = "quiet";
  said.append(word, pause);
  let source = null;

  const tell = (text, tone) => {
    word.textContent = text;
    word.className = `state ${tone}`;
    pause.textContent = source ? "Pause updates" : "Resume updates";
  };

  // The inside of each part was made by the server, where all text is escaped. A part in which
  // somebody is just using the keyboard is left alone until they have moved on.
  const replace = (id, inside) => {
    const part = document.getElementById(id);
    if (!part || part.contains(document.activeElement)) return;
    const template = document.createElement("template");
    template.innerHTML = inside;
    part.replaceChildren(template.content);
  };

  const open = () => {
    source = new EventSource(live.dataset.source);
    tell("connecting", "quiet");
    source.addEventListener("parts", (message) => {
      for (const [id, inside] of Object.entries(JSON.parse(message.data))) replace(id, inside);
      live.dataset.updates = String(Number(live.dataset.updates || 0) + 1);
      if (word.textContent !== "live") tell("live", "good");
    });
    source.addEventListener("error", () => tell("not connected, trying again", "warn"));
  };

  const close = () => {
    if (source) source.close();
    source = null;
    tell("paused", "quiet");
  };

  pause.addEventListener("click", () => (source ? close() : open()));
  // A page nobody sees asks for nothing.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden && source) { close(); live.dataset.hidden = "1"; }
    else if (!document.hidden && live.dataset.hidden) { delete live.dataset.hidden; open(); }
  });
  open();
}

// Choose every row of a list at once.
for (const form of document.querySelectorAll("form")) {
  const boxes = [...form.querySelectorAll("input[type=checkbox][name=id]")];
  const bulk = form.querySelector(".bulk");
  if (boxes.length < 2 || !bulk) continue;
  const button = document.createElement("button");
  button.type = "button";
  const every = () => boxes.every((each) => each.checked);
  const label = () => { button.textContent = every() ? "Choose none" : "Choose all on this page"; };
  button.addEventListener("click", () => {
    const wanted = !every();
    for (const each of boxes) each.checked = wanted;
    label();
  });
  form.addEventListener("change", label);
  label();
  bulk.prepend(button);
}
