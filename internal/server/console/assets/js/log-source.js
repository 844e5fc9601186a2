// The lines of a log, which are read from the server in blocks when they are needed.
const blockSize = 500;
const maxBlocks = 40;

export const flags = { error: 1, warning: 2, cut: 4, joined: 8, remark: 16 };

export class LogSource {
  constructor(base, attempt, changed) {
    this.base = base;
    this.attempt = attempt;
    this.changed = changed; // called with step and its number of lines after lines have arrived
    this.blocks = new Map(); // by step and block, the least recently used one first
    this.loading = new Map();
  }

  url(path, query) {
    return `${this.base}/${path}?${new URLSearchParams({ ...query, try: this.attempt })}`;
  }

  async ask(path, query, signal) {
    const answer = await fetch(this.url(path, query), { headers: { Accept: "application/json" }, signal });
    if (answer.ok) return answer.json();
    const text = await answer.text();
    let message = text;
    try {
      message = JSON.parse(text).message ?? text;
    } catch {
      // The answer is of a proxy.
    }
    throw new Error(message);
  }

  // line returns a line as [time, flags, text], or undefined if it is not loaded.
  line(step, n) {
    return this.blocks.get(`${step}:${Math.floor(n / blockSize)}`)?.[n % blockSize];
  }

  // need loads the blocks of the lines from first to last, which exist.
  need(step, first, last, lines) {
    for (let b = Math.floor(first / blockSize); b <= Math.floor(last / blockSize); b++) {
      const key = `${step}:${b}`;
      const block = this.blocks.get(key);
      if (block) {
        this.blocks.delete(key);
        this.blocks.set(key, block);
      }
      const wanted = Math.min(blockSize, lines - b * blockSize);
      if (wanted > 0 && (block?.length ?? 0) < wanted && !this.loading.has(key)) this.load(step, b, key);
    }
  }

  async load(step, b, key) {
    this.loading.set(key, true);
    let part;
    try {
      const have = this.blocks.get(key)?.length ?? 0;
      part = await this.ask(step, { from: b * blockSize + have, count: blockSize - have });
      const block = this.blocks.get(key) ?? [];
      if (block.length === have) block.push(...part.rows);
      this.blocks.delete(key);
      this.blocks.set(key, block);
      for (const old of this.blocks.keys()) {
        if (this.blocks.size <= maxBlocks) break;
        this.blocks.delete(old);
      }
      this.loading.delete(key);
    } catch {
      // The next painting after the pause tries again.
      setTimeout(() => {
        this.loading.delete(key);
        this.changed(step, 0);
      }, 2000);
      return;
    }
    this.changed(step, part.lines);
  }

  // whole replaces a cut line by all of it.
  async whole(step, n) {
    const part = await this.ask(step, { from: n, count: 1, whole: "on" });
    const block = this.blocks.get(`${step}:${Math.floor(n / blockSize)}`);
    if (block && part.rows.length) block[n % blockSize] = part.rows[0];
    this.changed(step, part.lines);
  }

  // loaded returns the lines from first to last, or undefined if not all of them are here.
  loaded(step, first, last) {
    const rows = [];
    for (let n = first; n <= last; n++) {
      const row = this.line(step, n);
      if (!row || row[1] & flags.cut) return undefined;
      rows.push(row);
    }
    return rows;
  }

  // read returns the lines from first to last, with all of long ones.
  async read(step, first, last) {
    const rows = [];
    while (first + rows.length <= last) {
      const from = first + rows.length;
      const part = await this.ask(step, { from, count: Math.min(2000, last - from + 1), whole: "on" });
      if (part.rows.length === 0) break;
      rows.push(...part.rows);
    }
    return rows;
  }
}
