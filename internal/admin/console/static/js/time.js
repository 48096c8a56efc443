// The time by the server's clock, which all times on the pages are of: that of the browser may be
// wrong. The Date header of each response has it, in whole seconds.

let ahead = 0; // of the browser, in milliseconds

// learn takes the Date header of a response to a request that was sent at a time of elapsed. The
// server made it between then and now; a clock that agrees with this is kept as it is.
export function learn(header, sent) {
  const date = Date.parse(header ?? "");
  if (!Number.isNaN(date)) ahead = Math.min(Math.max(ahead, date - elapsed()), date + 1000 - sent);
}

// serverTime is the time of the server, in milliseconds since 1970.
export const serverTime = () => Date.now() + ahead;

// elapsed measures durations: it is the clock of the browser, whose time means nothing.
export const elapsed = () => Date.now();
