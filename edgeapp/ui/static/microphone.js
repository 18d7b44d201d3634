// The browser's microphone: opened, heard block by block, closed.

/** Opens a microphone. heard(buffer, peak): 16-bit samples, and the loudest of them, 0 to 1.
 * Returns {rate, close}; close() resolves when the last block has been handed over. Throws an
 * Error that says why there is no microphone, and what to do. */
export async function openMicrophone(heard) {
  if (!navigator.mediaDevices?.getUserMedia) throw new Error(insecure());
  // Captions are for what is in the room: nothing is to be filtered out of it.
  const audio = { echoCancellation: false, noiseSuppression: false, autoGainControl: true };
  const stream = await navigator.mediaDevices.getUserMedia({ audio }).catch((error) => {
    throw new Error(refusal(error));
  });
  const context = new AudioContext({ latencyHint: "interactive" });
  try {
    await context.audioWorklet.addModule("/edgeapp/static/recorder.js");
  } catch (error) {
    stream.getTracks().forEach((track) => track.stop());
    throw new Error(`This browser cannot record: ${error.message}`);
  }
  await context.resume();
  const source = context.createMediaStreamSource(stream);
  const recorder = new AudioWorkletNode(context, "ea-recorder", { numberOfOutputs: 0 });
  let done = () => {};
  recorder.port.onmessage = ({ data }) => (data.done ? done() : heard(data.audio, data.peak));
  source.connect(recorder);
  const close = async () => {
    await new Promise((resolve) => {
      done = resolve;
      recorder.port.postMessage("flush");
      setTimeout(resolve, 500);
    });
    stream.getTracks().forEach((track) => track.stop());
    await context.close();
  };
  return { rate: context.sampleRate, close, track: stream.getAudioTracks()[0] };
}

function insecure() {
  return (
    "Browsers give the microphone only to pages of this machine (localhost) or over HTTPS, and " +
    `this page came from ${location.host} without it. Start EdgeApp with --ssl-certfile and ` +
    "--ssl-keyfile, or open the page on the machine that it runs on."
  );
}

function refusal(error) {
  const reasons = {
    NotAllowedError:
      "The browser was told not to give the microphone to this page. Allow it beside the " +
      "address, then press Start again.",
    NotFoundError: "There is no microphone. Connect one, then press Start again.",
    NotReadableError: "Another program holds the microphone. Close it, then press Start again.",
  };
  return reasons[error.name] ?? `The microphone cannot be used: ${error.message}`;
}
