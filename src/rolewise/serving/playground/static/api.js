// Requests to the server that this page came from, and to no other.

let key = "";

/** Keep an API key in memory, and nowhere else. */
export const useKey = (value) => { key = value; };
export const hasKey = () => key !== "";

export class ApiError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

const DEAD = "The server does not answer. See whether rolewise serve still runs, then try again.";

const address = (path) => new URL(path, document.baseURI);

async function send(path, body, signal) {
  const headers = {};
  if (key) headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(address(path), {
      method: body === undefined ? "GET" : "POST",
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
      referrerPolicy: "no-referrer",
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(DEAD);
  }
  if (response.ok) return response;
  throw new ApiError(await explained(response), response.status);
}

async function explained(response) {
  let message = "";
  try {
    message = (await response.json()).error.message;
  } catch {
    // Not one of our errors: a proxy's, perhaps. The status has to do.
  }
  const wait = response.headers.get("Retry-After");
  const again = wait && /^\d+$/.test(wait) ? ` Try again in ${wait} s.` : "";
  return `${message || "The server refused the request."}${again} (HTTP ${response.status})`;
}

async function json(response) {
  try {
    return await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(DEAD);
  }
}

export const getJson = async (path) => json(await send(path));
export const postJson = async (path, body, signal) => json(await send(path, body, signal));

function parsed(line) {
  try {
    return JSON.parse(line);
  } catch {
    throw new ApiError("The answer broke off: what came from the server is no answer.");
  }
}

/** The events of an answer: objects, one a line, as they arrive. The last is `end` or `error`. */
export async function* postLines(path, body, signal) {
  const response = await send(path, body, signal);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  let ended = false;
  for (;;) {
    let read;
    try {
      read = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError("The answer broke off: the connection to the server was lost.");
    }
    if (read.done) break;
    const lines = (rest + decoder.decode(read.value, { stream: true })).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (!line) continue;
      const event = parsed(line);
      ended = event.type === "end" || event.type === "error";
      yield event;
    }
  }
  if (!ended) throw new ApiError("The answer broke off: the server ended it without a word.");
}
