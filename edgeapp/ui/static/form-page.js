// The pages beside the app, in the page's language: login, login link, captions that have ended.

import { fromServer, translate } from "/edgeapp/static/texts.js";

translate(document.documentElement);
for (const place of document.querySelectorAll(".ea-problem")) place.textContent = fromServer(place.textContent);
