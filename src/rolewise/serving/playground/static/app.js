// The page: what is typed goes to the server, what comes back is shown. State lives in this page only.

import { getJson, useKey } from "./api.js";
import { Answers } from "./answers.js";
import { Library } from "./attacks.js";
import { Boxes } from "./boxes.js";
import { EXAMPLES } from "./examples.js";
import { copy, curl, packed, unpacked } from "./share.js";
import { byId, debounced, option, visible } from "./text.js";
import { Tokens } from "./tokens.js";

const say = (text, bad = false) => {
  byId("status").textContent = text;
  byId("status").classList.toggle("bad-text", bad);
};

const model = () => byId("tokens-model").value;
const tokens = new Tokens();
const size = () => boxes.all.reduce((sum, box) => sum + box.text.length, 0);
const refreshTokens = debounced(() => tokens.refresh(model(), boxes.messages()), () => (size() > 20000 ? 1500 : 300));
const boxes = new Boxes(() => { say(""); refreshTokens(); }, (box) => library.open(box));
const library = new Library(boxes, model, (witness) => { byId("witness").value = witness; });
const answers = new Answers(() => {
  byId("stop").disabled = !answers.busy;
  byId("send").disabled = answers.busy;
});

// --- sampling ---
const LIMITS = { temperature: "Temperature", "max-tokens": "Max tokens", seed: "Seed" };

/** The settings of an answer, or null when one is out of range, which the page then says. */
function sampling() {
  for (const [id, name] of Object.entries(LIMITS)) {
    const field = byId(id);
    const needed = id !== "seed";
    const bad = !field.validity.valid || (needed && field.value === "");
    field.setAttribute("aria-invalid", String(bad));
    if (bad) {
      say(`${name} ${field.max ? `must be a number from ${field.min} to ${field.max}` : "must be a whole number"}.`, true);
      field.focus();
      return null;
    }
  }
  const seed = byId("seed").value;
  return {
    temperature: Number(byId("temperature").value),
    max_tokens: Number(byId("max-tokens").value),
    ...(seed === "" ? {} : { seed: Number(seed) }),
  };
}

// --- asking ---
async function ask() {
  if (answers.busy) return;
  const messages = boxes.messages();
  if (!messages.length) {
    say("Write something into a box first.", true);
    boxes.user.area.focus();
    return;
  }
  if (!answers.asked.length) {
    say("Tick an answer to ask for.", true);
    answers.columns[0].box.focus();
    return;
  }
  const how = sampling();
  if (how === null) return;
  const button = byId("send");
  const focused = document.activeElement === button;
  say("Answering…");
  if (matchMedia("(max-width: 60rem)").matches) byId("answers-title").scrollIntoView();
  const asking = answers.ask({ messages, ...how });
  if (focused) byId("stop").focus();  // the button that was pressed is disabled now
  await asking;
  if (document.activeElement === byId("stop") || document.activeElement === document.body) button.focus();
  const failed = answers.asked.filter((column) => column.output === null).length;
  say(failed ? `${failed} of ${answers.asked.length} answers failed.` : "Done.", failed > 0);
}

byId("send").addEventListener("click", ask);
byId("stop").addEventListener("click", () => answers.stop());
document.addEventListener("keydown", (event) => {
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    ask();
  } else if (event.key === "Escape" && answers.busy) {
    answers.stop();
  }
});
byId("witness").addEventListener("input", debounced(() => { if (!answers.busy) answers.judge(); }, () => 300));

// --- boxes, examples, theme ---
byId("add-data").addEventListener("click", () => boxes.add()?.area.focus());
byId("attack").addEventListener("click", () => library.open());
byId("tokens-model").addEventListener("change", () => tokens.refresh(model(), boxes.messages()));
EXAMPLES.forEach(({ name }, at) => option(byId("example"), at, name));
byId("example").addEventListener("change", (event) => {
  const example = EXAMPLES[event.target.value];
  event.target.value = "";
  if (!example) return;
  boxes.fill(example);
  byId("witness").value = example.witness ?? "";
  say(`Loaded: ${example.name}.`);
});
byId("theme").addEventListener("change", (event) => { document.documentElement.dataset.theme = event.target.value; });

// --- taking away ---
byId("copy-curl").addEventListener("click", async () => {
  const how = sampling();
  if (how === null) return;
  const asked = answers.asked[0]?.model ?? model();
  const { max_tokens, ...rest } = how;
  const body = { model: asked, messages: boxes.messages(), max_completion_tokens: max_tokens, ...rest };
  say(await copy(curl(body), "a curl command"));
});
byId("copy-json").addEventListener("click", async () => {
  say(await copy(JSON.stringify({ messages: boxes.messages() }, null, 2), "the messages"));
});
byId("copy-link").addEventListener("click", async () => {
  const how = sampling();
  if (how === null) return;
  const hash = packed({
    system: boxes.system.text,
    user: boxes.user.text,
    data: boxes.data.map((box) => box.text),
    witness: byId("witness").value,
    columns: answers.chosen,
    ...how,
  });
  if (hash === null) {
    say("These texts are too long for a link. Copy them as JSON.", true);
    return;
  }
  history.replaceState(null, "", hash);
  say(await copy(location.href, "a link. Whoever opens it sees these texts"));
});

function restore() {
  const state = unpacked(location.hash);
  if (state === null) return false;
  boxes.fill(state);
  byId("witness").value = state.witness;
  for (const [id, key] of [["temperature", "temperature"], ["max-tokens", "max_tokens"], ["seed", "seed"]]) {
    if (state[key] !== null) byId(id).value = state[key];
  }
  answers.chosen = state.columns;
  return true;
}
addEventListener("hashchange", restore);

// --- begin ---
async function begin() {
  byId("banner").hidden = true;
  let models, info;
  try {
    models = (await getJson("v1/models")).data;  // first, as it asks for the key
    info = await getJson("playground/info");
  } catch (error) {
    if (error.status === 401) return askForKey();
    byId("banner-text").textContent = visible(error.message);
    byId("banner").hidden = false;
    return;
  }
  byId("key-form").hidden = true;
  show(models, info);
}

let keyTried = false;

function askForKey() {
  byId("key-error").textContent = keyTried ? "The server does not take this key." : "";
  byId("key-form").hidden = false;
  byId("key").value = "";
  byId("key").focus();
}

function show(models, info) {
  byId("models").textContent = models.map(({ id }) => visible(id)).join(" · ");
  byId("version").textContent = `Rolewise ${info.version}.`;
  models.forEach(({ id }) => option(byId("tokens-model"), id, visible(id)));
  byId("tokens-of").hidden = models.length < 2;
  byId("max-tokens").max = info.limits.max_tokens;
  byId("max-tokens").value = Math.min(256, info.limits.max_tokens);
  boxes.allowed = info.limits;
  answers.show(models, info.models);
  library.show(info);
  byId("main").hidden = false;
  if (!restore()) {
    boxes.fill(EXAMPLES[1]);
    byId("witness").value = EXAMPLES[1].witness;
  }
}

byId("banner-retry").addEventListener("click", begin);
byId("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  keyTried = true;
  useKey(byId("key").value);
  begin();
});
byId("copy-close").addEventListener("click", () => byId("copy-dialog").close());
begin();
