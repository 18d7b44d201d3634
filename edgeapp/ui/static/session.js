// The page's own line to the server: one WebSocket, shared by all tabs of the page.

const PAUSES_MS = [300, 1000, 3000, 8000];

const listeners = new Map();
const questions = new Map();
let socket = null;
let greeting = null;
let attempts = 0;
let asked = 0;

/** Call `heard` with every message of a type. "lost": the line broke, and what ran has ended. */
export function on(type, heard) {
  if (!listeners.has(type)) listeners.set(type, new Set());
  listeners.get(type).add(heard);
  if (type === "hello" && greeting) heard(greeting);
}

/** The server's last greeting: {session, limits, history}; null while there is no line. */
export const hello = () => greeting;

/** Send a message; false where there is no line. */
export function send(message) {
  if (!greeting) return false;
  socket.send(JSON.stringify(message));
  return true;
}

/** Send 16-bit samples. */
export function sendAudio(buffer) {
  if (greeting) socket.send(buffer);
}

/** Ask, and get the answer; throws an Error with what the server said went wrong. */
export function ask(message) {
  const id = ++asked;
  return new Promise((resolve, reject) => {
    questions.set(id, { resolve, reject });
    if (!send({ ...message, id })) lost(id);
  });
}

/** Whether this browser's work is to be kept in the history. */
export const keeps = () => localStorage.getItem("ea-keep") !== "no";

function lost(id) {
  const question = questions.get(id);
  questions.delete(id);
  question?.reject(new Error("The connection to EdgeApp is lost; it is tried again."));
}

function tell(type, message) {
  for (const heard of listeners.get(type) ?? []) heard(message);
}

function hear(message) {
  if (message.type === "reply") {
    const question = questions.get(message.id);
    questions.delete(message.id);
    if (message.error) question?.reject(new Error(message.error));
    else question?.resolve(message);
    return;
  }
  if (message.type === "hello") {
    greeting = message;
    window.edgeappReady = true;
    attempts = 0;
  }
  tell(message.type, message);
}

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/edgeapp/session`);
  socket.binaryType = "arraybuffer";
  socket.onmessage = (event) => hear(JSON.parse(event.data));
  socket.onclose = () => {
    const had = greeting !== null;
    greeting = null;
    for (const id of [...questions.keys()]) lost(id);
    if (had) tell("lost", {});
    else outside();
    setTimeout(connect, PAUSES_MS[Math.min(attempts++, PAUSES_MS.length - 1)]);
  };
}

/** Whoever is not logged in any more (the server was restarted) is led to the door. */
async function outside() {
  const answer = await fetch("/edgeapp/user").catch(() => null);
  if (answer?.status === 401) location.reload();
}

connect();
