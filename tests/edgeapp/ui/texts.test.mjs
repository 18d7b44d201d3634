// The page's language: which one is chosen, and how texts and the server's messages are found.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

const STATIC = new URL("../../../edgeapp/ui/static/", import.meta.url);
let imports = 0;

/** The module, as in a browser of these languages, with a choice that is stored. */
async function texts(languages, stored = null, found = true) {
  const documentElement = {};
  globalThis.document = { documentElement };
  globalThis.localStorage = { getItem: () => stored };
  Object.defineProperty(globalThis, "navigator", { value: { languages }, configurable: true });
  globalThis.fetch = async (path) => {
    if (!found) throw new TypeError("offline");
    const table = await readFile(new URL(path.replace("/edgeapp/static/", ""), STATIC), "utf-8");
    return { ok: true, json: async () => JSON.parse(table) };
  };
  const module = await import(new URL(`texts.js?${++imports}`, STATIC));
  return { ...module, shown: documentElement.lang };
}

test("the browser's first language that there is", async () => {
  assert.equal((await texts(["it-IT", "fr-CA", "de"])).language, "fr");
  assert.equal((await texts(["it-IT"])).language, "en");
  const german = await texts(["de-AT", "en"]);
  assert.deepEqual([german.language, german.locale, german.shown], ["de", "de-AT", "de"]);
});

test("a language that was chosen wins, a code that is none does not", async () => {
  assert.equal((await texts(["de"], "zh")).language, "zh");
  assert.equal((await texts(["de"], "xx")).language, "de");
});

test("texts, with values, and as they are without a translation", async () => {
  const { t } = await texts(["de"]);
  assert.equal(t("Cancel"), "Abbrechen");
  assert.equal(t("Get {name}", { name: "base" }), "base holen");
  assert.equal(t("A text of tomorrow, {when}", { when: "soon" }), "A text of tomorrow, soon");
});

test("numbers of things", async () => {
  const german = await texts(["de"]);
  assert.equal(german.plural(1, "1 file", "{count} files"), "1 Datei");
  assert.equal(german.plural(1200, "1 file", "{count} files"), "1.200 Dateien");
  const french = await texts(["fr"]);
  assert.equal(french.plural(0, "1 file", "{count} files"), "0 fichier");
  const english = await texts(["en-US"]);
  assert.equal(english.plural(1, "1 file", "{count} files"), "1 file");
  assert.equal(english.plural(2, "1 file", "{count} files"), "2 files");
  assert.equal(german.decimal(12.345, 1), "12,3");
});

test("languages have names", async () => {
  const { languageName } = await texts(["fr"]);
  assert.equal(languageName("de", "German"), "Allemand");
  assert.equal(languageName("not a code", "Whatever"), "Whatever");
  assert.equal((await texts(["en"])).languageName("de", "German"), "German");
});

test("messages of the server, also those with another one in them", async () => {
  const { fromServer } = await texts(["de"]);
  assert.equal(fromServer("this record was deleted"), "dieser Eintrag wurde gelöscht");
  assert.equal(
    fromServer("this machine is busy: 4 sessions run on it already. Try again when one has ended."),
    "dieser Rechner ist ausgelastet: es laufen 4 Sitzungen. Noch einmal versuchen, wenn eine beendet ist.",
  );
  assert.equal(fromServer("talk.mp3 lasts 70 minutes; the limit is 60 minutes"), "talk.mp3 dauert 70 Minuten; die Grenze ist 60 Minuten");
  assert.equal(
    fromServer("this sounds like French, but is written as German, which was given"),
    "das klingt nach French, wird aber als German geschrieben, wie angegeben",
  );
  assert.equal(
    fromServer("Polish is not translated: no translator is on this machine; `edgeapp models pull m2m100` downloads it"),
    "Polish wird nicht übersetzt: auf diesem Rechner ist kein Modell dafür; `edgeapp models pull m2m100` lädt es herunter",
  );
  assert.equal(fromServer("Polish is not translated: not enough memory (GPU)"), "Polish wird nicht übersetzt: nicht genug Speicher (GPU)");
  assert.equal(fromServer("something quite new"), "something quite new");
});

test("without the table the page is in English", async () => {
  const { language, t } = await texts(["de"], null, false);
  assert.deepEqual([language, t("Cancel")], ["en", "Cancel"]);
});
