// Sound for live captions: the browser's microphone, the sound of a tab or of the system, both, mixed
// or on a channel each, or the bundled sample.

import { t } from "/edgeapp/static/texts.js";

const CHOSEN = "ea-input"; // in localStorage: the id of the chosen microphone

/** @typedef {{rate: number, channels: number, label: string, stream: MediaStream,
 *   close: () => Promise<void>, onended: () => void}} Opened A source that is open. close() resolves after the last block was
 *   delivered; onended is called when the device is gone, or the user has ended the sharing. */

/** Open the microphone. onBlock(buffer, peak): 16-bit samples, those of several channels interleaved,
 * and their peak, 0 to 1. rate: the
 * sample rate to record at; left out: the device's. Throws an Error that says why there is no
 * microphone, and what to do.
 * @returns {Promise<Opened>} */
export async function openMicrophone(onBlock, rate = undefined) {
  return record([await microphone()], onBlock, rate);
}

/** Open the sound of a tab or of the system, which the browser lets the user choose. As
 * `openMicrophone`. */
export async function openTab(onBlock, rate = undefined) {
  return record([await tab()], onBlock, rate);
}

/** Open both. As `openMicrophone`. */
async function openBoth(onBlock, rate, apart) {
  const shared = await tab(); // first: a browser asks only soon after a click
  try {
    return await record([await microphone(), shared], onBlock, rate, apart);
  } catch (error) {
    stop(shared);
    throw error;
  }
}

/** By the value of the picker "Sound"; "two": the microphone on the first channel, the tab or the
 * system on the second. */
export const SOURCES = {
  "": openMicrophone,
  tab: openTab,
  both: (onBlock, rate) => openBoth(onBlock, rate, false),
  two: (onBlock, rate) => openBoth(onBlock, rate, true),
};

/** Whether this browser can share the sound of a tab. */
export const sharesTabs = () => Boolean(navigator.mediaDevices?.getDisplayMedia);

async function microphone() {
  if (!navigator.mediaDevices?.getUserMedia) throw new Error(insecure());
  // No echo or noise filters: captions are for all speech in the room.
  const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: true };
  const deviceId = localStorage.getItem(CHOSEN);
  if (deviceId) audio.deviceId = { ideal: deviceId };
  return navigator.mediaDevices.getUserMedia({ audio }).catch((error) => {
    throw new Error(refusal(error));
  });
}

async function tab() {
  if (!sharesTabs()) throw new Error(t("This browser cannot share the sound of a tab; Chromium on a computer can."));
  const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: false };
  // Browsers share sound with a picture only; nothing is done with the picture.
  const wanted = { video: { frameRate: 1 }, audio, systemAudio: "include" };
  const stream = await navigator.mediaDevices.getDisplayMedia(wanted).catch((error) => {
    const refused = error.name === "NotAllowedError";
    throw new Error(refused ? t("No tab or screen was chosen.") : t("The sound cannot be shared: {reason}", { reason: error.message }));
  });
  if (stream.getAudioTracks().length) return stream;
  stop(stream);
  throw new Error(t("What was chosen has no sound: choose a tab, and tick “Also share tab audio”."));
}

function stop(stream) {
  stream.getTracks().forEach((track) => track.stop());
}

/** Record streams. apart: each is a channel of its own; else they are mixed. */
async function record(streams, onBlock, rate, apart = false) {
  const tracks = streams.flatMap((stream) => stream.getAudioTracks());
  const context = new AudioContext({ latencyHint: "interactive", sampleRate: rate });
  try {
    const channels = apart ? streams.length : 1;
    const recorder = await addRecorder(context, onBlock, channels);
    const mixed = context.createMediaStreamDestination();
    streams.forEach((stream, i) => {
      const source = context.createMediaStreamSource(stream);
      source.connect(recorder.node, 0, apart ? i : 0);
      source.connect(mixed);
    });
    const label = tracks.map((track) => track.label).join(" + ");
    const opened = { rate: context.sampleRate, channels, label, stream: mixed.stream, onended: () => {} };
    for (const track of tracks) track.onended = () => opened.onended();
    opened.close = async () => {
      await recorder.flush();
      streams.forEach(stop);
      await context.close();
    };
    return opened;
  } catch (error) {
    streams.forEach(stop);
    context.close();
    throw error;
  }
}

/** Play the bundled sample aloud, and deliver it as `openMicrophone` does. */
export async function openSample(onBlock) {
  const context = new AudioContext({ latencyHint: "interactive" });
  const reply = await fetch("/edgeapp/sample");
  if (!reply.ok) throw new Error(t("The sample cannot be loaded."));
  const source = context.createBufferSource();
  source.buffer = await context.decodeAudioData(await reply.arrayBuffer());
  const recorder = await addRecorder(context, onBlock);
  const played = context.createMediaStreamDestination();
  source.connect(recorder.node);
  source.connect(played);
  source.connect(context.destination);
  const opened = { rate: context.sampleRate, channels: 1, label: "sample", stream: played.stream, onended: () => {} };
  source.onended = () => opened.onended();
  opened.close = async () => {
    await recorder.flush();
    source.onended = null;
    await context.close();
  };
  source.start();
  return opened;
}

/** The microphones that the browser knows: {id, label}. Labels are known once one was opened. */
export async function microphones() {
  const devices = (await navigator.mediaDevices?.enumerateDevices?.()) ?? [];
  const inputs = devices.filter(({ kind, deviceId }) => kind === "audioinput" && deviceId);
  return inputs.map(({ deviceId, label }, i) => ({ id: deviceId, label: label || t("Microphone {number}", { number: i + 1 }) }));
}

/** The id of the microphone to open; "" is the browser's choice. */
export const chosenMicrophone = () => localStorage.getItem(CHOSEN) ?? "";
export const chooseMicrophone = (id) => localStorage.setItem(CHOSEN, id);

/** A node that delivers what it hears to onBlock, and a function that delivers the rest. channels:
 * its inputs. */
async function addRecorder(context, onBlock, channels = 1) {
  try {
    await context.audioWorklet.addModule("/edgeapp/static/recorder.js");
  } catch (error) {
    throw new Error(t("This browser cannot record: {reason}", { reason: error.message }));
  }
  await context.resume();
  const node = new AudioWorkletNode(context, "ea-recorder", { numberOfInputs: channels, numberOfOutputs: 0 });
  let done = () => {};
  node.port.onmessage = ({ data }) => (data.done ? done() : onBlock(data.audio, data.peak));
  const flush = () =>
    new Promise((resolve) => {
      done = resolve;
      node.port.postMessage("flush");
      setTimeout(resolve, 500);
    });
  return { node, flush };
}

function insecure() {
  return t(
    "Browsers allow the microphone only on pages of this machine (localhost) or over HTTPS, and this page is from {host} without HTTPS. Start EdgeApp with --lan, or with --ssl-certfile and --ssl-keyfile, or open the page on the machine that it runs on.",
    { host: location.host },
  );
}

function refusal(error) {
  const reasons = {
    NotAllowedError: t(
      "The browser does not allow this page to use the microphone. Allow it beside the address, then press Start again.",
    ),
    NotFoundError: t("There is no microphone. Connect one, then press Start again."),
    NotReadableError: t("Another program uses the microphone. Close it, then press Start again."),
  };
  return reasons[error.name] ?? t("The microphone cannot be used: {reason}", { reason: error.message });
}
