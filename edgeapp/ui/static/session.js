// The WebSocket to the server, shared by all tabs of the page. Reconnects when it is closed.

import { fromServer, t } from "/edgeapp/static/texts.js";

const RETRY_DELAYS_MS = [300, 1000, 2000, 4000];
const CONNECTS_MS = 6000;

const listeners = new Map(); // message type → set of functions
const requests = new Map(); // id → {resolve, reject}
let socket = null;
let serverHello = null;
let attempts = 0;
let lastId = 0;
let retry = 0;

/** Call `listener` with every message of a type. Type "lost": the connection was closed. What was
 * running goes on only if it is resumable (see live-line.js). Returns a function that stops it. */
export function on(type, listener) {
  if (!listeners.has(type)) listeners.set(type, new Set());
  listeners.get(type).add(listener);
  if (type === "hello" && serverHello) listener(serverHello);
  return () => listeners.get(type).delete(listener);
}


/** The server's first message: {session, limits, history, user, download}; null while not connected. */
export const hello = () => serverHello;

/** Send a message; false while not connected. */
export function send(message) {
  if (!serverHello) return false;
  socket.send(JSON.stringify(message));
  return true;
}

/** Send 16-bit samples. */
export function sendAudio(buffer) {
  if (serverHello) socket.send(buffer);
}

/** Send a request; resolves to the reply, rejects with an Error that has the server's message. */
export function ask(message) {
  const id = ++lastId;
  return new Promise((resolve, reject) => {
    requests.set(id, { resolve, reject });
    if (!send({ ...message, id })) fail(id);
  });
}

/** Whether this browser stores its sessions in the history. */
export const keeps = () => localStorage.getItem("ea-keep") !== "no";

function fail(id) {
  const request = requests.get(id);
  requests.delete(id);
  request?.reject(new Error(t("The connection to EdgeApp is lost; reconnecting.")));
}

function notify(type, message) {
  for (const listener of [...(listeners.get(type) ?? [])]) listener(message);
}

function receive(message) {
  if (message.type === "reply") {
    const request = requests.get(message.id);
    requests.delete(message.id);
    if (message.error) request?.reject(new Error(fromServer(message.error)));
    else request?.resolve(message);
    return;
  }
  if (message.type === "hello") {
    serverHello = message;
    window.edgeappReady = true;
    attempts = 0;
  }
  if (message.message) message.message = fromServer(message.message); // of an error or a warning
  notify(message.type, message);
}

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  clearTimeout(retry);
  socket = new WebSocket(`${scheme}://${location.host}/edgeapp/session`);
  socket.binaryType = "arraybuffer";
  socket.onmessage = (event) => receive(JSON.parse(event.data));
  socket.onclose = closed;
  // Over a line that swallows everything, an attempt would last for minutes.
  retry = setTimeout(() => serverHello || reconnect(), CONNECTS_MS);
}

function closed() {
  const connected = serverHello !== null;
  serverHello = null;
  for (const id of [...requests.keys()]) fail(id);
  if (connected) notify("lost", {});
  else checkLogin();
  clearTimeout(retry);
  retry = setTimeout(connect, RETRY_DELAYS_MS[Math.min(attempts++, RETRY_DELAYS_MS.length - 1)]);
}

/** Give the connection up and open another one. */
export function reconnect() {
  socket.onclose = socket.onmessage = null; // the closing handshake may take long, too
  socket.close();
  closed();
}

/** Show the login page if the login is not valid any more, as after a restart of the server. */
async function checkLogin() {
  const response = await fetch("/edgeapp/user").catch(() => null);
  if (response?.status === 401) location.reload();
}

addEventListener("online", () => serverHello || reconnect());
connect();
