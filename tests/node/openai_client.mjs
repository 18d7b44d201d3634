// The npm package openai as a client of a server: `node openai_client.mjs URL RECORDING PCM24`.
// Prints one JSON object with what it got. `npm install --prefix tests/node` installs the package.
import fs from "node:fs";
import OpenAI from "openai";
import WebSocket from "ws";

const [url, recording, pcm] = process.argv.slice(2);

const client = new OpenAI({ baseURL: `${url}v1`, apiKey: "unused", maxRetries: 0 });
const found = {};

const models = await client.models.list();
found.models = models.data.map((model) => model.id);

const file = () => fs.createReadStream(recording);
const verbose = await client.audio.transcriptions.create({
  file: file(),
  model: "whisper-1",
  language: "en",
  response_format: "verbose_json",
  timestamp_granularities: ["word", "segment"],
});
found.text = verbose.text;
found.words = verbose.words.length;
found.segments = verbose.segments.length;
found.usage = verbose.usage;

found.srt = await client.audio.transcriptions.create({
  file: file(),
  model: "whisper-1",
  response_format: "srt",
});

const stream = await client.audio.transcriptions.create({
  file: file(),
  model: "whisper-1",
  stream: true,
});
found.events = [];
for await (const event of stream) found.events.push(event);

found.translation = (
  await client.audio.translations.create({ file: file(), model: "whisper-1" })
).text;

try {
  await client.audio.transcriptions.create({ file: file(), model: "not-here" });
} catch (error) {
  found.error = { status: error.status, code: error.code, param: error.param };
}

// Over plain HTTP the package's own Realtime class does not connect: it insists on wss.
found.realtime = await new Promise((resolve, reject) => {
  const address = `${url.replace("http", "ws")}v1/realtime?intent=transcription`;
  const socket = new WebSocket(address, { headers: { Authorization: "Bearer unused" } });
  const send = (event) => socket.send(JSON.stringify(event));
  const events = [];
  socket.on("error", reject);
  socket.on("message", (text) => {
    const event = JSON.parse(text);
    events.push(event.type);
    if (event.type === "conversation.item.input_audio_transcription.completed") {
      socket.close();
      resolve({ events, transcript: event.transcript });
    }
  });
  socket.on("open", () => {
    const input = { transcription: { language: "en" } };
    send({ type: "session.update", session: { type: "transcription", audio: { input } } });
    const audio = fs.readFileSync(pcm);
    for (let at = 0; at < audio.length; at += 9600) {
      const block = audio.subarray(at, at + 9600).toString("base64");
      send({ type: "input_audio_buffer.append", audio: block });
    }
  });
});

console.log(JSON.stringify(found));
