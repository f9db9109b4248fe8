/** A text as the service takes it: no NUL, no half of a letter, not longer than `max`. */
export const clean = (text: string, max: number): string =>
  text.replaceAll('\u0000', '\ufffd').slice(0, max).toWellFormed()
