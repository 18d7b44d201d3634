// The viewers' page: somebody else's captions, in a language and a size of one's own. As an overlay
// (/overlay/…#de) it shows the last two lines on a transparent ground, for a video program.

import { Captions } from "/edgeapp/static/captions.js";
import { fromServer, languageName, t, translate } from "/edgeapp/static/texts.js";

const RETRY_DELAYS_MS = [500, 1000, 2000, 5000];
const GONE = 4410; // close code: the captions have ended
const SIZES = [0.8, 1, 1.25, 1.6, 2, 2.6, 3.4];
const QUIET_MS = 8000; // an overlay hides what was said that long ago
const STOPPED = t("The speaker has stopped. This page goes on with the next Start.");

const [, page, token] = location.pathname.split("/");
const find = (selector) => document.querySelector(selector);
translate(document.documentElement); // the title, too
const captions = new Captions(document.body);
const languages = find("[name=target]");
const original = find("[name=original]");

let socket = null;
let attempts = 0; // to connect again; 0: the line is there
let target = page === "overlay" ? location.hash.slice(1) : (localStorage.getItem("ea-view-language") ?? "");

/** @param {string} text What the viewer should know; "" if all is well. */
function say(text) {
  find(".ea-says").textContent = text;
}

/** @param {{type: string, [field: string]: any}} message */
function receive(message) {
  if (message.type === "live_line") captions.show(message);
  else if (message.type === "view") begin(message);
  else if (message.type === "view_live") say(STOPPED);
  else if (message.type === "view_problem") say(fromServer(message.message));
  else if (message.type === "view_ended") ended();
}

/** All that was said so far, in the language that the server gives. */
function begin({ languages: offered, target: given, lines, live, language }) {
  captions.forget();
  captions.follow = true;
  languages.replaceChildren(new Option(t("As spoken"), ""), ...offered.map(([code, name]) => new Option(languageName(code, name), code)));
  languages.value = given;
  document.body.dataset.state = "open";
  document.body.dataset.translated = given ? "yes" : "no";
  find(".ea-captions").lang = given || language || "";
  find(".ea-original").hidden = !given;
  for (const line of lines) captions.show(line);
  if (lines.length) say(live ? "" : STOPPED);
  else say(live ? t("The captions will be here.") : t("The speaker has not started yet."));
}

function ended() {
  document.body.dataset.state = "ended";
  say(t("These captions have ended."));
}

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/edgeapp/view/${token}`);
  socket.onopen = () => {
    attempts = 0;
    choose(target);
  };
  socket.onmessage = (event) => receive(JSON.parse(event.data));
  socket.onclose = ({ code }) => {
    if (document.body.dataset.state === "ended") return;
    if (code === GONE) return ended();
    say(t("The line is broken. Connecting again."));
    setTimeout(connect, RETRY_DELAYS_MS[Math.min(attempts++, RETRY_DELAYS_MS.length - 1)]);
  };
}

/** @param {string} language The code to translate into; "": as spoken. */
function choose(language) {
  target = language;
  if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ target }));
}

/** @param {number} step How many sizes larger. */
function resize(step) {
  const stored = Number(localStorage.getItem("ea-view-size") ?? 1);
  const size = Math.max(0, Math.min(SIZES.length - 1, stored + step));
  localStorage.setItem("ea-view-size", String(size));
  document.body.style.setProperty("--size", String(SIZES[size]));
  find(".ea-smaller").disabled = size === 0;
  find(".ea-larger").disabled = size === SIZES.length - 1;
  captions.scroll();
}

languages.onchange = () => {
  localStorage.setItem("ea-view-language", languages.value);
  choose(languages.value);
};
original.checked = localStorage.getItem("ea-view-original") !== "no";
original.onchange = () => {
  localStorage.setItem("ea-view-original", original.checked ? "yes" : "no");
  document.body.dataset.original = original.checked ? "yes" : "no";
  captions.scroll();
};
document.body.dataset.original = original.checked ? "yes" : "no";
find(".ea-smaller").onclick = () => resize(-1);
find(".ea-larger").onclick = () => resize(1);
addEventListener("hashchange", () => page === "overlay" && choose(location.hash.slice(1)));
captions.changed = () => {
  if (captions.lines.size && !attempts) say("");
  if (page !== "overlay") return;
  document.body.dataset.quiet = "no";
  clearTimeout(captions.quiet);
  captions.quiet = setTimeout(() => (document.body.dataset.quiet = "yes"), QUIET_MS);
};
navigator.wakeLock?.request("screen").catch(() => {});
resize(0);
connect();
