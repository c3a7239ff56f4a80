"use strict";
// Replaces each part of the page that has changed. A part with the focus or a selection
// stays as it is, because somebody is reading it.
const state = document.getElementById("state");
const pause = document.getElementById("pause");
const waiting = new Map();
let paused = false, connected = false, source;

function busy(part) {
  const selection = document.getSelection();
  return part.contains(document.activeElement) ||
    (!selection.isCollapsed && part.contains(selection.anchorNode));
}

function place() {
  for (const [id, html] of waiting) {
    const part = document.getElementById(id);
    if (part && (paused || busy(part))) continue;
    waiting.delete(id);
    if (!part) continue;
    const scrolled = [...part.querySelectorAll(".scroll")].map(e => [e.scrollLeft, e.scrollTop]);
    part.innerHTML = html; // from the server, which escapes all data in it
    part.querySelectorAll(".scroll").forEach((e, i) => { if (scrolled[i]) [e.scrollLeft, e.scrollTop] = scrolled[i]; });
  }
}

function say() {
  const text = paused ? "Paused" : connected ? "Live" : "Connection lost: these figures are old";
  if (state.textContent !== text) state.textContent = text;
}

let lost;
function connect() {
  source = new EventSource("events" + location.search);
  source.onmessage = e => {
    clearTimeout(lost);
    connected = true;
    for (const part of JSON.parse(e.data)) waiting.set(part.id, part.html);
    place();
    say();
  };
  // The server ends a stream every half minute, and the next begins a second later.
  source.onerror = () => {
    clearTimeout(lost);
    lost = setTimeout(() => { connected = false; say(); }, 3000);
    if (source.readyState === EventSource.CLOSED) setTimeout(connect, 5000);
  };
}

pause.hidden = false;
pause.addEventListener("click", () => {
  paused = !paused;
  pause.textContent = paused ? "Resume" : "Pause";
  place();
  say();
});
connect();
