// The browser's microphone.

/** Open the microphone. onBlock(buffer, peak): 16-bit samples, and their peak, 0 to 1. Returns
 * {rate, close, track}; close() resolves after the last block was delivered. Throws an Error that
 * says why there is no microphone, and what to do. */
export async function openMicrophone(onBlock) {
  if (!navigator.mediaDevices?.getUserMedia) throw new Error(insecure());
  // No echo or noise filters: captions are for all speech in the room.
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
  recorder.port.onmessage = ({ data }) => (data.done ? done() : onBlock(data.audio, data.peak));
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
