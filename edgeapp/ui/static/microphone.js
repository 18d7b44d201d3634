// Sound for live captions: the browser's microphone, or the bundled sample.

const CHOSEN = "ea-input"; // in localStorage: the id of the chosen microphone

/** Open the microphone. onBlock(buffer, peak): 16-bit samples, and their peak, 0 to 1. rate: the
 * sample rate to record at; left out: the device's. Returns {rate, close, onended, label}; close()
 * resolves after the last block was delivered, and onended is called when the device is gone.
 * Throws an Error that says why there is no microphone, and what to do. */
export async function openMicrophone(onBlock, rate = undefined) {
  if (!navigator.mediaDevices?.getUserMedia) throw new Error(insecure());
  // No echo or noise filters: captions are for all speech in the room.
  const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: true };
  const deviceId = localStorage.getItem(CHOSEN);
  if (deviceId) audio.deviceId = { ideal: deviceId };
  const stream = await navigator.mediaDevices.getUserMedia({ audio }).catch((error) => {
    throw new Error(refusal(error));
  });
  const stop = () => stream.getTracks().forEach((track) => track.stop());
  const [track] = stream.getAudioTracks();
  const context = new AudioContext({ latencyHint: "interactive", sampleRate: rate });
  const recorder = await record(context, onBlock).catch((error) => {
    stop();
    throw error;
  });
  context.createMediaStreamSource(stream).connect(recorder.node);
  const opened = { rate: context.sampleRate, label: track.label, onended: () => {} };
  track.onended = () => opened.onended();
  opened.close = async () => {
    await recorder.flush();
    stop();
    await context.close();
  };
  return opened;
}

/** Play the bundled sample aloud, and deliver it as `openMicrophone` does. */
export async function openSample(onBlock) {
  const context = new AudioContext({ latencyHint: "interactive" });
  const reply = await fetch("/edgeapp/sample");
  if (!reply.ok) throw new Error("The sample cannot be loaded.");
  const source = context.createBufferSource();
  source.buffer = await context.decodeAudioData(await reply.arrayBuffer());
  const recorder = await record(context, onBlock);
  source.connect(recorder.node);
  source.connect(context.destination);
  const opened = { rate: context.sampleRate, label: "sample", onended: () => {} };
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
  return inputs.map(({ deviceId, label }, i) => ({ id: deviceId, label: label || `Microphone ${i + 1}` }));
}

/** The id of the microphone to open; "" is the browser's choice. */
export const chosenMicrophone = () => localStorage.getItem(CHOSEN) ?? "";
export const chooseMicrophone = (id) => localStorage.setItem(CHOSEN, id);

/** A node that delivers what it hears to onBlock, and a function that delivers the rest. */
async function record(context, onBlock) {
  try {
    await context.audioWorklet.addModule("/edgeapp/static/recorder.js");
  } catch (error) {
    throw new Error(`This browser cannot record: ${error.message}`);
  }
  await context.resume();
  const node = new AudioWorkletNode(context, "ea-recorder", { numberOfOutputs: 0 });
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
  return (
    "Browsers allow the microphone only on pages of this machine (localhost) or over HTTPS, and " +
    `this page is from ${location.host} without HTTPS. Start EdgeApp with --ssl-certfile and ` +
    "--ssl-keyfile, or open the page on the machine that it runs on."
  );
}

function refusal(error) {
  const reasons = {
    NotAllowedError:
      "The browser does not allow this page to use the microphone. Allow it beside the " +
      "address, then press Start again.",
    NotFoundError: "There is no microphone. Connect one, then press Start again.",
    NotReadableError: "Another program uses the microphone. Close it, then press Start again.",
  };
  return reasons[error.name] ?? `The microphone cannot be used: ${error.message}`;
}
