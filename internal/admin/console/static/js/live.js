// The stream of what changes: server-sent events over fetch, because EventSource
// cannot send the token. It reports immediately when it is lost, and since when.
import { open } from "./api.js";
import { elapsed, serverTime } from "./time.js";

const silence = 40_000; // the server sends something every few seconds
// A browser opens six connections to a server at most, for all its tabs. So a
// page that nobody sees gives its own back; hidden ones after a while.
const hidden = 15_000;
const waits = [1000, 2000, 4000, 8000];
// The server reports after at most so long that its database does not answer.
const noticed = 4000;

class Live extends EventTarget {
  state = "connecting"; // connecting, live, lost
  heard = elapsed();
  since = null; // when it was lost
  #frozen = null; // since when the database does not answer
  #unread = new Map(); // by its reader: a page that cannot be read again
  retryAt = null;
  #stop = null;
  #wake = null;
  #resting = false; // nobody sees the page
  #rested = false; // and so it missed something

  async run() {
    let timer;
    const rest = () => { this.#resting = true; this.#stop?.abort(); };
    const resume = () => { clearTimeout(timer); if (this.#resting) { this.#resting = false; this.#wake?.(); } };
    addEventListener("pagehide", rest);
    addEventListener("pageshow", resume);
    document.addEventListener("visibilitychange", () => { if (document.hidden) timer = setTimeout(rest, hidden); else resume(); });
    for (let failed = 0; ; ) {
      if (this.#resting) await new Promise((resolve) => { this.#wake = resolve; });
      this.#stop = new AbortController();
      try {
        await this.#read(() => { failed = 0; });
      } catch (err) {
        if (err.status === 401) return;
      }
      if (this.#resting) { this.#rested = true; this.#set("connecting"); continue; }
      if (this.state !== "lost") this.#set("lost");
      const wait = waits[Math.min(failed++, waits.length - 1)];
      this.retryAt = elapsed() + wait;
      this.#tell("state");
      await new Promise((resolve) => { this.#wake = resolve; setTimeout(resolve, wait); });
    }
  }

  // outdated is why a page may show what holds no longer, and since when; null if it is up to date.
  get outdated() {
    if (this.state === "lost") return { why: "connection", since: this.since };
    if (this.#frozen) return { why: "database", since: this.#frozen };
    const [first] = [...this.#unread.values()].sort((a, b) => a.since - b.since);
    return first ?? null;
  }

  // mark records that a reader could not read its page again since then; without err, that it could.
  mark(reader, since, err) {
    if (!err && !this.#unread.delete(reader)) return;
    if (err) this.#unread.set(reader, { why: "page", since, err });
    this.#tell("state");
  }

  // hear takes an event of the stream.
  hear(name, data) {
    if (name === "database" && data.reachable === Boolean(this.#frozen)) {
      this.#frozen = data.reachable ? null : serverTime() - noticed;
      this.#tell("state");
      if (data.reachable) this.#tell("again");
    }
    this.#tell(name, data);
  }

  // retry does not wait for the next try.
  retry() { this.#wake?.(); }

  async #read(opened) {
    const { signal } = this.#stop;
    const watch = setInterval(() => { if (elapsed() - this.heard > silence) this.#stop.abort(); }, 1000);
    try {
      this.heard = elapsed();
      const res = await open("/v1/live", { headers: { Accept: "text/event-stream" }, signal });
      const again = this.state === "lost" || this.#rested;
      this.#rested = false;
      this.heard = elapsed();
      opened();
      this.#set("live");
      if (again) this.#tell("again");
      const reader = res.body.pipeThrough(new TextDecoderStream()).getReader();
      const parse = parser((name, data) => this.hear(name, data));
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        this.heard = elapsed();
        parse(value);
      }
    } finally {
      clearInterval(watch);
      this.#stop.abort();
    }
  }

  #set(state) {
    if (state === "lost") this.since = serverTime() - (elapsed() - this.heard);
    if (state === "live") this.#frozen = null; // the stream begins with what holds
    this.state = state;
    this.retryAt = null;
    this.#tell("state");
  }

  #tell(name, detail) { this.dispatchEvent(new CustomEvent(name, { detail })); }
}

// parser takes a stream of text apart into events, as the HTML standard has it.
function parser(emit) {
  let rest = "", name = "", data = [];
  return (chunk) => {
    const lines = (rest + chunk).split(/\r\n|\n|\r(?!$)/);
    rest = lines.pop();
    for (const line of lines) {
      if (line === "") {
        if (data.length) { try { emit(name || "message", JSON.parse(data.join("\n"))); } catch { /* not ours */ } }
        name = ""; data = [];
      } else if (!line.startsWith(":")) {
        const i = line.indexOf(":"), field = i < 0 ? line : line.slice(0, i), value = i < 0 ? "" : line.slice(i + 1).replace(/^ /, "");
        if (field === "event") name = value;
        if (field === "data") data.push(value);
      }
    }
  };
}

export const live = new Live();
